"""The commands of `store bundle`: how bundles are named, shown, listed and compared."""

import json

import pytest

from store_client.downloads.manifests import REQUIRED
from tests.client.cli.people import Typist
from tests.client.download.deposits import VERSION, uuid_of
from tests.client.nouns.conftest import LATER, Shelf, rows

pytestmark = pytest.mark.spec("CLI-150")

UNKNOWN = uuid_of(0xFFFF)


@pytest.mark.parametrize(
    ("spelling", "version"),
    [
        ("{uuid}", LATER),
        ("{upper}", LATER),
        (" {uuid} ", LATER),
        ("{uuid}.{version}", VERSION),
        ("{upper}.{version}", VERSION),
        ("{url}/bundles/{uuid}", LATER),
        ("{url}/bundles/{uuid}?version={version}", VERSION),
        ("{url}/bundles/{uuid}?version={version}&replica=gcp", VERSION),
        ("{url}/v1/bundles/{uuid}?replica=aws&version={version}#files", VERSION),
        ("{url}/bundles/{uuid}%2E{version}", VERSION),
        ("{url}/bundles/{uuid}/files", LATER),
        ("drs://{host}/{uuid}", LATER),
        ("drs://{host}/{uuid}.{version}", VERSION),
        ("drs://{host}/{uuid}%2e{version}", VERSION),
    ],
)
def test_accepts_spellings_of_ids(shelf: Shelf, admin: Typist, spelling: str, version: str) -> None:
    said = spelling.format(
        uuid=shelf.liver,
        upper=shelf.liver.upper(),
        version=VERSION,
        url=shelf.store.url,
        host=shelf.host,
    )
    (shown,) = rows(admin.types("bundle", "show", said).stdout)
    assert (shown["uuid"], shown["version"]) == (shelf.liver, version)


def test_replica_of_url_is_used_unless_another_is_given(shelf: Shelf, admin: Typist) -> None:
    page = f"{shelf.store.url}/bundles/{shelf.liver}?replica=gcp"
    assert "replica=gcp" in rows(admin.types("bundle", "show", page).stdout)[0]["page"]
    other = admin.types("bundle", "show", page, "--replica", "aws")
    assert "replica" not in rows(other.stdout)[0]["page"]


def test_show_has_count_size_metadata_and_page(shelf: Shelf, admin: Typist) -> None:
    shown = admin.reads("bundle", "show", shelf.liver, "--json")
    files = shown.pop("files")
    assert [one["name"] for one in files] == ["sample.json", "readme.txt", "reads.fastq.gz"]
    assert shown == {
        "uuid": shelf.liver,
        "version": LATER,
        "creator_uid": 7,
        "count": 3,
        "size": sum(one["size"] for one in files),
        "metadata": ["sample.json"],
        "page": f"{shelf.store.url}/bundles/{shelf.liver}?version={LATER}",
    }


def test_files_of_several_bundles_name_their_bundle(shelf: Shelf, admin: Typist) -> None:
    alone = rows(admin.types("bundle", "files", shelf.heart).stdout)
    assert all("bundle" not in row for row in alone)
    done = admin.types("bundle", "files", "-", given=f"{shelf.liver}.{VERSION}\n{shelf.heart}\n")
    found = rows(done.stdout)
    assert [row["bundle"].split(".")[0] for row in found] == [shelf.liver] * 3 + [
        shelf.heart
    ] * len(alone)
    assert found[0]["bundle"] == f"{shelf.liver}.{VERSION}"
    assert [row["name"] for row in found[3:]] == [row["name"] for row in alone]


def test_shows_several_bundles_each_once(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "show", shelf.liver, shelf.heart, shelf.liver.upper())
    assert [row["uuid"] for row in rows(done.stdout)] == [shelf.liver, shelf.heart]
    table = admin.types("bundle", "show", shelf.liver, shelf.heart, "--format", "table")
    first, second = table.stdout.split("\n\n")
    assert first.startswith("uuid:")
    assert shelf.liver in first
    assert shelf.heart in second


def fed(admin: Typist, given: str) -> list[tuple[str, str]]:
    """The bundles that `bundle show -` shows of this standard input."""
    done = admin.types("bundle", "show", "-", given=given)
    assert done.exit_code == 0, done.output
    return [(row["uuid"], row["version"]) for row in rows(done.stdout)]


def test_reads_ids_from_standard_input(shelf: Shelf, admin: Typist) -> None:
    both = [(shelf.liver, LATER), (shelf.heart, VERSION)]
    page = f"{shelf.store.url}/bundles/{shelf.heart}"
    assert fed(admin, f"{shelf.liver}\n\n{page}\n") == both
    assert fed(admin, f"{shelf.liver}\r\n{shelf.heart}\r\n") == both
    assert fed(admin, f"uuid\tversion\n{shelf.liver}\t{LATER}\n{shelf.heart}\t{VERSION}\n") == both
    assert fed(admin, f'"uuid","version"\n"{shelf.liver}",\n"{shelf.heart}","{VERSION}"\n') == both
    assert fed(admin, f"\ufeffuuid,size\n{shelf.liver},7\n{shelf.heart},7\n") == both
    line = json.dumps({"bundle_fqid": f"{shelf.heart}.{VERSION}"})
    assert fed(admin, f"{shelf.liver}\n{line}\n") == both


def test_version_column_of_a_table_is_used(shelf: Shelf, admin: Typist) -> None:
    old = [(shelf.liver, VERSION)]
    assert fed(admin, f"uuid\tversion\n{shelf.liver}\t{VERSION}\n") == old
    assert fed(admin, f"version,uuid\n{VERSION},{shelf.liver}\n") == old
    heads = ["note", *REQUIRED]
    values = {"bundle_uuid": shelf.liver, "bundle_version": VERSION}
    manifest = "\t".join(heads) + "\n" + "\t".join(values.get(one, "x") for one in heads)
    assert fed(admin, manifest) == old


def test_reports_of_transfers_name_the_version(shelf: Shelf, admin: Typist) -> None:
    report = json.dumps({"bundle_uuid": shelf.liver, "version": VERSION, "state": "uploaded"})
    assert fed(admin, f"{report}\n") == [(shelf.liver, VERSION)]
    many = json.dumps([{"bundle_uuid": shelf.liver, "version": VERSION, "folder": "a"}])
    assert fed(admin, many) == [(shelf.liver, VERSION)]


@pytest.mark.parametrize(
    "words",
    [
        ["bundle", "list"],
        ["bundle", "list", "--format", "tsv"],
        ["bundle", "list", "--format", "csv"],
        ["bundle", "list", "--json"],
        ["bundle", "list", "--json", "uuid,version"],
        ["search"],
        ["search", "--format", "csv"],
        ["search", "--fields", "organ,uuid,version", "--format", "tsv"],
        ["search", "--json", "uuid,version"],
        ["bundle", "versions", "{liver}"],
    ],
)
def test_what_commands_write_can_be_piped_into_others(
    shelf: Shelf, admin: Typist, words: list[str]
) -> None:
    written = admin.types(*(word.format(liver=shelf.liver) for word in words)).stdout
    shown = fed(admin, written)
    assert (shelf.liver, LATER) in shown
    assert (shelf.liver, VERSION) in shown


@pytest.mark.parametrize("given", ["", "\n \n", "uuid\tversion\n", "[]", "\ufeff"])
def test_empty_standard_input_is_an_error(shelf: Shelf, admin: Typist, given: str) -> None:
    done = admin.types("bundle", "show", "-", given=given)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no bundle on standard input" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{",
        "[1",
        "[1]",
        '{"uuid": 7}',
        '{"name": "x"}',
        "{}",
        "[" * 100_000,
        "a" * 200_000,
    ],
)
def test_error_names_the_line(shelf: Shelf, admin: Typist, line: str) -> None:
    done = admin.types("bundle", "show", "-", given=f"{shelf.liver}\n{line}\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "line 2: " in done.stderr
    assert len(done.stderr) < 1000
    assert "Traceback" not in done.stderr


def test_standard_input_that_is_not_text_is_an_error(admin: Typist) -> None:
    done = admin.types("bundle", "show", "-", given=b"\xff\xfe\x00\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "an error in this client" not in done.stderr


@pytest.mark.parametrize(
    ("words", "noun"),
    [
        (["bundle", "show"], "bundle"),
        (["bundle", "files"], "bundle"),
        (["bundle", "versions"], "bundle"),
        (["bundle", "diff"], "bundle"),
        (["bundle", "delete", "--yes", "--reason", "x"], "bundle"),
        (["download"], "bundle"),
        (["file", "show"], "file"),
        (["file", "cat"], "file"),
        (["file", "cp"], "file"),
        (["collection", "show"], "collection"),
        (["collection", "delete", "--yes"], "collection"),
        (["subscription", "show"], "subscription"),
        (["subscription", "deliveries"], "subscription"),
        (["subscription", "pause"], "subscription"),
        (["subscription", "delete", "--yes"], "subscription"),
    ],
)
def test_url_of_another_noun_is_refused(offline: Typist, words: list[str], noun: str) -> None:
    other = "file" if noun == "bundle" else "bundle"
    done = offline.types(*words, f"https://store.example/{other}s/{UNKNOWN}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"is a {other}, not a {noun}" in done.stderr


HOSTILE = [
    "",
    " ",
    "..",
    "../../etc/passwd",
    f"{UNKNOWN}/../../x",
    f"{UNKNOWN}.",
    f"{UNKNOWN}.latest",
    f"{UNKNOWN}.2026-13-31T235959.000000Z",
    f"{UNKNOWN}.{VERSION}.{VERSION}",
    f"{UNKNOWN}\n{UNKNOWN}",
    f"{UNKNOWN}\x00",
    "\x1b[2J\x07\u202e",
    "x" * 1_000_000,
    f"https://store.example/bundles/..%2F..%2F{UNKNOWN}",
    f"https://store.example/{UNKNOWN}",
    f"ftp://store.example/bundles/{UNKNOWN}",
    f"https://[::1/bundles/{UNKNOWN}",
    "https://",
    "drs://",
    "drs://host/",
    "drs://host/../x",
    "://",
    f"https://store.example/bundles/{UNKNOWN}?version=../../x",
    f"https://store.example/bundles/{UNKNOWN}?replica=azure",
    f"https://store.example/bundles/{UNKNOWN}?version=%00",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[repr(one[:40]) for one in HOSTILE])
@pytest.mark.parametrize("words", [["bundle", "show"], ["bundle", "files"], ["bundle", "diff"]])
def test_hostile_ids_are_refused_without_a_request(
    offline: Typist, words: list[str], text: str
) -> None:
    done = offline.types(*words, text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000
    assert len(done.stderr.splitlines()) <= 2


def test_unknown_bundle_is_not_found(admin: Typist) -> None:
    for verb in ("show", "files", "versions", "diff"):
        done = admin.types("bundle", verb, UNKNOWN)
        assert (done.exit_code, done.stdout) == (5, ""), verb
        assert UNKNOWN in done.stderr


def test_lists_by_prefix_and_limit(shelf: Shelf, admin: Typist) -> None:
    listed = [(row["uuid"], row["version"]) for row in rows(admin.types("bundle", "list").stdout)]
    assert {(shelf.liver, VERSION), (shelf.liver, LATER), (shelf.heart, VERSION)} <= set(listed)
    one = rows(admin.types("bundle", "list", "--limit", "1").stdout)
    assert len(one) == 1
    few = rows(admin.types("bundle", "list", "--prefix", shelf.heart).stdout)
    assert few == [{"uuid": shelf.heart, "version": VERSION}]
    none = admin.types("bundle", "list", "--prefix", "ffffffff")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "There are no such bundles." in none.stderr
    assert admin.types("bundle", "list", "--prefix", "zz").exit_code in (0, 2)
    assert admin.types("bundle", "list", "--limit", "0").exit_code == 2


def test_lists_files_and_versions(shelf: Shelf, admin: Typist) -> None:
    names = [row["name"] for row in rows(admin.types("bundle", "files", shelf.liver).stdout)]
    assert names == ["sample.json", "readme.txt", "reads.fastq.gz"]
    old = f"{shelf.liver}.{VERSION}"
    names = [row["name"] for row in rows(admin.types("bundle", "files", old).stdout)]
    assert names == ["sample.json", "reads.fastq.gz", "notes.txt"]
    found = rows(admin.types("bundle", "versions", shelf.liver).stdout)
    assert [row["version"] for row in found] == [LATER, VERSION]


def test_compares_versions(shelf: Shelf, admin: Typist) -> None:
    expected = [
        ("removed", "notes.txt", 4, None),
        ("added", "readme.txt", None, 4),
        ("changed", "sample.json", 126, 126),
    ]
    both = (f"{shelf.liver}.{VERSION}", f"{shelf.liver}.{LATER}")
    for said in ((shelf.liver,), both):
        found = rows(admin.types("bundle", "diff", *said).stdout)
        assert [
            (row["change"], row["name"], row["size_before"], row["size"]) for row in found
        ] == expected
    same = admin.types("bundle", "diff", shelf.liver, f"{shelf.liver}.{LATER}")
    assert (same.exit_code, same.stdout) == (0, "")
    assert "have the same files" in same.stderr
    first = admin.types("bundle", "diff", f"{shelf.liver}.{VERSION}")
    assert (first.exit_code, first.stdout) == (2, "")
    assert "has no earlier version" in first.stderr


def test_patch_shows_lines_of_metadata(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "diff", shelf.liver, "--patch", "--format", "table")
    assert f"{shelf.liver}.{VERSION} → {shelf.liver}.{LATER}" in done.stdout
    assert '\n-  "donor": 1,\n+  "donor": 2,\n' in done.stdout
    assert "reads" not in done.stdout


def test_patch_of_deeply_nested_metadata_compares_its_text(shelf: Shelf, admin: Typist) -> None:
    deep = b"[" * 20_000 + b"%d" + b"]" * 20_000
    made = [shelf.depositor.bundle(40 + n, {"deep.json": deep % n}) for n in range(2)]
    try:
        done = admin.types("bundle", "diff", *made, "--patch")
        assert done.exit_code == 0
        assert "+" + (deep % 1).decode() in done.stdout
    finally:
        admin.types("bundle", "delete", *made, "--reason", "a test", "--yes")
