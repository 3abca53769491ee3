"""Pages of a bundle: contents, history, differences, withdrawal, and hostile deposits."""

import io
import json
import re
import zipfile
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from datacite import schema45
from flask import Flask
from werkzeug.test import TestResponse

from config import Settings
from pipelines import failover
from pipelines.linked_data import Publisher, describe_datacite, describe_dataset
from storage.errors import Unavailable
from storage.model import FQID, BundleVersion
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.web.conftest import Visit, text_of
from web import bundles
from web.formats import TreeBuilder, reveal

LICENSE = "https://creativecommons.org/licenses/by/4.0/"
LATER = "2026-03-01T000000.000000Z"
SAMPLE = {
    "title": "Liver of <b>zebrafish</b>",
    "donors": [{"age": 3, "url": "https://example.org/d"}],
}


SIZE = len(json.dumps(SAMPLE)) + len("# Read me") + len("one") + len("two")


@pytest.fixture
def keyed_settings(keyed_settings: Settings) -> Settings:
    """Settings that name the field of titles and the license."""
    titles = ("files.none", "files.sample_json.title")
    return replace(keyed_settings, web_title_fields=titles, data_license=LICENSE)


def put(
    depositor: Depositor,
    number: int,
    contents: dict[str, bytes],
    *,
    version: str = VERSION,
    types: dict[str, str] | None = None,
) -> str:
    """A bundle of new files of these contents; JSON ones are metadata."""
    entries = []
    for place, (name, data) in enumerate(contents.items()):
        uuid = uuid_of(0x1000 * number + 0x100 * (version == LATER) + place)
        kind = "application/json" if name.endswith(".json") else "text/plain"
        kind = (types or {}).get(name, kind)
        source = depositor.stage(data, f"f{number}-{place}-{version[:7]}", kind)
        assert depositor.put_file(uuid, source=source).status_code in (200, 202)
        indexed = kind == "application/json"
        entries.append({"uuid": uuid, "version": VERSION, "name": name, "indexed": indexed})
    depositor.drain()
    uuid = uuid_of(number)
    answer = depositor.put_bundle(uuid, entries, version=version)
    assert answer.status_code == 201, answer.text
    depositor.drain()
    return uuid


def sample(depositor: Depositor) -> str:
    contents = {
        "sample.json": json.dumps(SAMPLE).encode(),
        "README.md": b"# Read me",
        "raw/1.txt": b"one",
        "raw/deep/2.txt": b"two",
    }
    return put(depositor, 1, contents)


def test_bundle_shows_title_metadata_files_and_commands(visit: Visit, depositor: Depositor) -> None:
    uuid = sample(depositor)
    page = visit().get(f"/bundles/{uuid}")
    assert page.status_code == 200
    assert "<h1>Liver of &lt;b&gt;zebrafish&lt;/b&gt;</h1>" in page.text
    text = text_of(page)
    assert f"4 files, {SIZE} bytes" in text
    assert re.search(r"raw/\s+6 bytes\s+2 files", text)
    assert 'href="https://example.org/d" rel="nofollow noopener noreferrer"' in page.text
    command = f"store download --bundle-uuid {uuid} --version {VERSION} --replica aws"
    assert f"{command} --download-dir data --url http" in text
    assert f"/bundles/{uuid}?version={VERSION}" in text
    assert "@misc{bundle-" in text
    assert re.search(r'<iframe class="preview" sandbox [^>]*src="/preview/files/', page.text)
    assert "ingest@example.org" not in page.text
    assert "Withdraw" not in page.text


def cut_dataset(page: TestResponse) -> tuple[Any, str]:
    """Return the dataset that a page describes, as a browser delimits it, and the rest."""
    start = '<script type="application/ld+json">'
    before, _, after = page.text.partition(start)
    data, end, rest = after.partition("</script>")
    assert end
    assert start not in rest
    return json.loads(data), before + rest


def test_bundle_is_described_to_search_engines(visit: Visit, depositor: Depositor) -> None:
    uuid = sample(depositor)
    dataset, _ = cut_dataset(visit().get(f"/bundles/{uuid}"))
    assert dataset["@context"] == "https://schema.org/"
    assert dataset["@type"] == "Dataset"
    assert dataset["@id"] == f"http://localhost/bundles/{uuid}?version={VERSION}"
    assert (dataset["identifier"], dataset["version"]) == (f"{uuid}.{VERSION}", VERSION)
    assert dataset["name"] == SAMPLE["title"]
    assert f"4 files, {SIZE} bytes" in dataset["description"]
    moment = datetime.fromisoformat(dataset["datePublished"])
    assert moment == datetime.fromisoformat(VERSION)
    assert dataset["license"] == LICENSE
    catalog = {"@type": "DataCatalog", "name": "Data store", "url": "http://localhost"}
    assert dataset["includedInDataCatalog"] == catalog
    forms = {one["name"]: one["contentUrl"] for one in dataset["distribution"]}
    assert forms.pop("GA4GH DRS") == f"drs://localhost/{uuid}.{VERSION}"
    assert sorted(forms) == ["Manifest", "bagit", "ro-crate", "tar", "zip"]
    for url in forms.values():
        path = url.removeprefix("http://localhost")
        assert visit().client.get(path, buffered=True).status_code == 200, url


@pytest.mark.parametrize(
    "title",
    ["</script><script>alert(1)</script>", "<!--<script>", "\u2028&amp;'\"", "\u202e</SCRIPT >"],
)
def test_title_cannot_end_the_description(visit: Visit, depositor: Depositor, title: str) -> None:
    uuid = put(depositor, 4, {"sample.json": json.dumps({"title": title}).encode()})
    page = visit().get(f"/bundles/{uuid}")
    dataset, rest = cut_dataset(page)
    assert dataset["name"] == reveal(" ".join(title.split()))
    assert "<script>" not in rest
    data = page.text.partition('ld+json">')[2].partition("</script>")[0]
    assert data.isascii()
    assert not set(data) & set("<>&'")


def test_datacite_metadata_satisfies_its_schema(visit: Visit, depositor: Depositor) -> None:
    uuid = sample(depositor)
    link = re.search(
        rf'href="(/bundles/{uuid}/datacite[^"]*)"', visit().get(f"/bundles/{uuid}").text
    )
    assert link is not None
    answer = visit().get(link[1].replace("&amp;", "&"))
    assert answer.content_type == "application/vnd.datacite.datacite+json"
    described = json.loads(answer.data)
    schema45.validator.validate(described)
    assert described["titles"] == [{"title": SAMPLE["title"]}]
    assert (described["version"], described["publicationYear"]) == (VERSION, VERSION[:4])
    assert described["url"] == f"http://localhost/bundles/{uuid}?version={VERSION}"
    assert described["sizes"] == ["4 files", f"{SIZE} bytes"]
    assert described["rightsList"] == [{"rights": LICENSE, "rightsUri": LICENSE}]
    # The XML that DataCite accepts, too.
    xml = schema45.tostring({**described, "doi": "10.5072/example"})
    assert f">{VERSION}</version>" in xml
    assert visit().get(f"/bundles/{uuid_of(99)}/datacite").status_code == 404
    assert visit().get(f"/bundles/{uuid}/datacite?version={LATER}").status_code == 404


@pytest.mark.parametrize("license_", ["", "Ask us."])
def test_datacite_rights_are_those_of_the_settings(license_: str) -> None:
    row = BundleVersion(
        id=1,
        fqid=FQID(uuid_of(1), VERSION),
        creator_uid=1,
        origin="aws",
        file_count=1,
        created_us=1,
        parent=None,
        digest="",
        author="a@example.org",
        event_id="",
        published=True,
    )
    publisher = Publisher("Atlas", "https://store.example", license_)
    described = describe_datacite(row, publisher, title="Liver", size=3)
    schema45.validator.validate(described)
    assert described["rightsList"] == ([{"rights": license_}] if license_ else [])
    dataset = describe_dataset(row, "aws", publisher, title="Liver", size=3, archives=[])
    assert dataset.get("license", "") == license_


def test_folders_and_pages_of_files(visit: Visit, depositor: Depositor, monkeypatch) -> None:
    uuid = sample(depositor)
    folder = visit().get(f"/bundles/{uuid}?path=raw/")
    assert "1.txt" in text_of(folder)
    assert "deep/" in text_of(folder)
    assert "README.md" not in folder.text
    assert "2.txt" in visit().get(f"/bundles/{uuid}?path=raw/deep").text
    assert "nothing in this folder" in visit().get(f"/bundles/{uuid}?path=none/").text
    monkeypatch.setattr(bundles, "FILES_PER_PAGE", 2)
    first = visit().get(f"/bundles/{uuid}")
    assert f"4 files, {SIZE} bytes" in text_of(first)
    following = re.search(r'href="([^"]+)#files" rel="next"', first.text)
    assert following is not None
    second = visit().get(following[1].replace("&amp;", "&"))
    assert "sample.json" in second.text
    assert "README.md" not in text_of(second)


def test_bundle_is_exported_as_archive_list_and_document(
    visit: Visit, depositor: Depositor
) -> None:
    uuid = sample(depositor)
    shown = visit().get(f"/bundles/{uuid}")
    stem = f"{uuid}.{VERSION}"
    links = re.findall(r'href="(/bundles/[^"]*/(?:archive|manifest|metadata)[^"]*)"', shown.text)
    urls = {link.replace("&amp;", "&") for link in links}
    got = {url: visit().client.get(url, buffered=True) for url in urls}
    assert {answer.status_code for answer in got.values()} == {200}
    archives = {link.rpartition("=")[2]: one for link, one in got.items() if "/archive?" in link}
    assert sorted(archives) == ["bagit", "ro-crate", "tar", "zip"]
    with zipfile.ZipFile(io.BytesIO(archives["zip"].data)) as zipped:
        assert f"{stem}/README.md" in zipped.namelist()
    assert archives["tar"].headers["Content-Disposition"] == f'attachment; filename="{stem}.tar"'
    (table,) = (one.text for link, one in got.items() if "/manifest?" in link)
    assert table.splitlines()[0].split("\t")[:3] == ["bundle_uuid", "bundle_version", "file_name"]
    assert f"{uuid}\t{VERSION}\tREADME.md\t" in table
    (document,) = (one.json for link, one in got.items() if "/metadata?" in link)
    assert document["files"]["sample_json"] == [SAMPLE]
    assert "script-src" in archives["zip"].headers["Content-Security-Policy"]


@pytest.mark.parametrize("query", ["version=x", "replica=nowhere", f"after={'x' * 5000}"])
def test_rejects_bad_parameters(visit: Visit, depositor: Depositor, query: str) -> None:
    uuid = sample(depositor)
    assert visit().get(f"/bundles/{uuid}?{query}").status_code == 400


def test_unknown_bundle_is_404(visit: Visit) -> None:
    for path in ("", "/versions", f"/diff?from={VERSION}&to={LATER}"):
        assert visit().get(f"/bundles/{uuid_of(9)}{path}").status_code == 404
    assert visit().get("/bundles/nonsense").status_code in (400, 404)


def test_bundle_page_is_complete_while_its_bucket_is_away(
    visit: Visit, depositor: Depositor, monkeypatch
) -> None:
    uuid = sample(depositor)

    def fail(*_args: object) -> bytes:
        raise Unavailable("The bucket is away.")

    monkeypatch.setattr(failover, "read_blob", fail)
    page = visit("reader").get(f"/bundles/{uuid}")
    assert page.status_code == 200
    assert "The bucket is away." in page.text
    assert "README.md" in page.text


def test_versions_are_listed_and_compared(visit: Visit, depositor: Depositor) -> None:
    uuid = sample(depositor)
    changed = {**SAMPLE, "title": "Kidney"}
    put(
        depositor,
        1,
        {"sample.json": json.dumps(changed).encode(), "new.txt": b"new", "moved.txt": b"one"},
        version=LATER,
    )
    old = visit().get(f"/bundles/{uuid}?version={VERSION}")
    assert "not the latest" in old.text
    listed = visit("reader").get(f"/bundles/{uuid}/versions")
    assert text_of(listed).count("live") == 2
    assert text_of(listed).count("(ingest@example.org)") == 2, "those who are logged in see authors"
    assert "ingest@example.org" not in visit().get(f"/bundles/{uuid}/versions").text
    assert "CREATE" in listed.text
    link = re.search(rf'href="(/bundles/{uuid}/diff[^"]+)"', listed.text)
    assert link is not None
    diff = visit().get(link[1].replace("&amp;", "&"))
    text = text_of(diff)
    assert "Added: 1" in text
    assert "Removed: 2" in text
    assert "Renamed: 1" in text
    assert "<del><bdi>&#34;Liver of &lt;b&gt;zebrafish&lt;/b&gt;&#34;</bdi></del>" in diff.text
    assert "<ins><bdi>&#34;Kidney&#34;</bdi></ins>" in diff.text
    same = visit().get(f"/bundles/{uuid}/diff?from={VERSION}&to={VERSION}")
    assert "The versions have the same files." in same.text
    assert visit().get(f"/bundles/{uuid}/diff?from={VERSION}").status_code == 400


def test_withdrawal_says_what_happens_and_shows_reason(visit: Visit, depositor: Depositor) -> None:
    uuid = sample(depositor)
    put(depositor, 1, {"a.txt": b"a"}, version=LATER)
    where = f"/bundles/{uuid}/withdraw?version={LATER}"
    assert visit().get(where).headers["Location"].startswith("/login")
    assert visit("reader").get(where).status_code == 403
    visitor = visit("ingest")
    assert "cannot be undone" in visitor.get(where).text
    refused = visitor.post(where, reason="")
    assert refused.status_code == 400
    assert "reason" in text_of(refused)
    done = visitor.post(where, reason="wrong <donor>", scope="version")
    assert (done.status_code, done.headers["Location"]) == (303, f"/bundles/{uuid}?version={LATER}")
    gone = visitor.get(done.headers["Location"])
    assert gone.status_code == 410
    assert "The bundle was withdrawn." in gone.text
    assert "wrong &lt;donor&gt;" in gone.text
    assert "ingest@example.org" in gone.text
    assert VERSION in gone.text
    anonymous = visit().get(f"/bundles/{uuid}?version={LATER}")
    assert "wrong &lt;donor&gt;" in anonymous.text
    assert "ingest@example.org" not in anonymous.text
    latest = visit().get(f"/bundles/{uuid}")
    assert latest.status_code == 200
    assert "not the latest" not in latest.text
    assert "withdrawn" in visit().get(f"/bundles/{uuid}/versions").text
    assert visitor.post(where, reason="again").status_code == 409
    all_gone = visitor.post(
        f"/bundles/{uuid}/withdraw?version={VERSION}", reason="consent", scope="bundle"
    )
    assert all_gone.status_code == 303
    assert visit().get(f"/bundles/{uuid}").status_code == 410
    assert visitor.get(f"/bundles/{uuid}/withdraw?version={VERSION}").status_code == 409


def test_bundle_of_other_replica_says_where_it_is(visit: Visit, depositor: Depositor) -> None:
    entry = depositor.file(0x20)
    uuid = uuid_of(2)
    assert depositor.put_bundle(uuid, [entry]).status_code == 201
    page = visit().get(f"/bundles/{uuid}?replica=gcp")
    assert page.status_code == 404
    assert "being copied" in page.text
    assert f"/bundles/{uuid}?replica=aws" in page.text


def test_own_collections_and_subscriptions_are_shown(
    app: Flask, visit: Visit, depositor: Depositor
) -> None:
    uuid = sample(depositor)
    made = app.test_client().put(
        "/v1/subscriptions?replica=aws",
        json={
            "callback_url": "http://127.0.0.1:9/hook",
            "jmespath_query": "files.sample_json[?donors]",
        },
        headers=INGEST,
    )
    assert made.status_code == 201, made.text
    visitor = visit("ingest")
    added = visitor.post(f"/bundles/{uuid}/collect?version={VERSION}", name="Fish")
    assert added.status_code == 303
    page = visitor.get(f"/bundles/{uuid}")
    assert ">Fish</bdi>" in page.text
    assert f"/subscriptions/{made.json['uuid']}" in page.text
    assert "Fish" not in visit("other").get(f"/bundles/{uuid}").text
    assert (
        visit("reader").post(f"/bundles/{uuid}/collect?version={VERSION}", name="x").status_code
        == 403
    )


HOSTILE = {
    "<script>alert(1)</script>.txt": b"x",
    "\u202egnp.exe": b"x",
    "javascript:alert(1)": b"x",
    '"><img src=x onerror=alert(1)>': b"x",
    "sample.json": json.dumps(
        {
            "title": "<script>alert(1)</script>",
            "link": "javascript:alert(1)",
            "<img src=x>": "</details></main>",
            "data": "data:text/html,<script>alert(1)</script>",
        }
    ).encode(),
}


def test_hostile_names_and_metadata_are_text(visit: Visit, depositor: Depositor) -> None:
    uuid = put(depositor, 3, HOSTILE)
    put(depositor, 3, {"sample.json": b'{"title": "<svg onload=alert(1)>"}'}, version=LATER)
    paths = [
        f"/bundles/{uuid}?version={VERSION}",
        f"/bundles/{uuid}/diff?from={VERSION}&to={LATER}",
    ]
    for path in paths:
        page = visit("admin").get(path)
        assert page.status_code == 200
        for harm in ("<script>a", "<img src=x", "<svg", "</details></main>"):
            assert harm not in page.text, path
        assert not re.search(r'href="(javascript|data):', page.text)
        assert "\u202e" not in re.sub(r'data-copy="[^"]*"', "", page.text)
        rest = cut_dataset(page)[1] if "?version=" in path else page.text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<[^>]+\son\w+=", rest)


def test_direction_of_names_is_revealed(visit: Visit, depositor: Depositor) -> None:
    uuid = put(depositor, 3, {**HOSTILE, "sample.json": b'{"title": "\\u202egnp.exe"}'})
    page = visit().get(f"/bundles/{uuid}")
    assert "<h1>[U+202E]gnp.exe</h1>" in page.text
    assert "<bdi>[U+202E]gnp.exe</bdi>" in page.text


def test_tree_is_bounded() -> None:
    deep: object = "end"
    for _ in range(50):
        deep = {"a": deep}
    node = TreeBuilder().build("root", deep)
    levels = 0
    while node.children:
        node = node.children[0]
        levels += 1
    assert (levels, node.left_out) == (12, 1)
    wide = TreeBuilder().build("root", list(range(100_000)))
    assert (len(wide.children), wide.left_out) == (200, 99_800)
    small = TreeBuilder(3).build("root", {"a": 1, "b": [2, 3], "c": "x" * 9_000})
    assert [one.name for one in small.children] == ["a", "b"]
    assert small.left_out == 1
    assert TreeBuilder().build("n", None).text == "null"
    assert len(TreeBuilder().build("n", "x" * 9_000).text or "") == 2_000


def test_bibtex_escapes_titles() -> None:
    assert bundles._escape_tex("50% {a_b} \\ $&#~^") == (
        r"50\% \{a\_b\} \textbackslash{} \$\&\#\textasciitilde{}\textasciicircum{}"
    )
