"""What people do with the command, one after the other, against a store as `make run` starts it."""

import csv
import json
import time
from pathlib import Path

import pytest

from ops.local_store import LocalStore
from tests.client.end_to_end.people import Person, a_person, a_sample, contents

pytestmark = pytest.mark.spec("CLI-90")


def deposit(person: Person, folder: Path, *more: str) -> dict[str, object]:
    found: dict[str, object] = person.gets(
        "upload", "--src-dir", str(folder), "--replica", "aws", "--no-progress", *more
    )
    return found


def where(person: Person, uuid: object) -> Path:
    """The folder that a download of this bundle made."""
    (found,) = (path for path in person.folder.iterdir() if path.name.startswith(str(uuid)))
    return found


def test_uploaded_directory_downloads_unchanged(
    wrangler: Person, scientist: Person, tmp_path: Path
) -> None:
    source = a_sample(tmp_path / "sample", seed=1)
    made = deposit(wrangler, source)
    done = scientist.types(
        "download", "--bundle-uuid", str(made["bundle_uuid"]), "--replica", "aws", "--no-progress"
    )
    assert done.returncode == 0, done.stderr
    assert contents(where(scientist, made["bundle_uuid"])) == contents(source)


def test_the_same_directory_again_is_nothing_to_do(wrangler: Person, tmp_path: Path) -> None:
    source = a_sample(tmp_path / "sample", seed=2)
    first = deposit(wrangler, source)
    second = deposit(wrangler, source)
    assert (second["bundle_uuid"], second["version"]) == (first["bundle_uuid"], first["version"])
    (source / "sample.json").write_text('{"organism": "Mus musculus"}')
    third = deposit(wrangler, source, "--bundle-uuid", str(first["bundle_uuid"]))
    assert third["bundle_uuid"] == first["bundle_uuid"]
    assert str(third["version"]) > str(first["version"])


def test_metadata_is_found_and_data_has_its_type(
    wrangler: Person, scientist: Person, tmp_path: Path
) -> None:
    made = deposit(wrangler, a_sample(tmp_path / "sample", seed=31337))
    query = json.dumps({"term": {"files.sample_json.donor": 31337}})
    for _ in range(300):
        found = scientist.gets("post-search", "--replica", "gcp", "--es-query", query)
        if found["results"]:
            break
        time.sleep(0.1)
    (hit,) = found["results"]
    assert hit["bundle_fqid"] == f"{made['bundle_uuid']}.{made['version']}"
    shown = scientist.gets("get-bundle", "--uuid", str(made["bundle_uuid"]), "--replica", "aws")
    kinds = {file["name"]: (file["content-type"], file["indexed"]) for file in files_of(shown)}
    assert kinds["sample.json"] == ("application/json", True)
    assert kinds["reads/lane 1/R0.fastq.gz"] == ("application/gzip", False)


def files_of(shown: object) -> list[dict[str, object]]:
    """The entries, whether pages were put together or not."""
    assert isinstance(shown, dict)
    found: list[dict[str, object]] = shown["bundle"]["files"]
    return found


def test_downloads_manifest_and_writes_paths(
    wrangler: Person, scientist: Person, tmp_path: Path
) -> None:
    source = a_sample(tmp_path / "sample", seed=3)
    made = deposit(wrangler, source)
    shown = scientist.gets("get-bundle", "--uuid", str(made["bundle_uuid"]), "--replica", "aws")
    columns = [
        "file_size",
        "note",
        "bundle_version",
        "file_name",
        "file_sha256",
        "bundle_uuid",
        "file_uuid",
    ]
    with (scientist.folder / "wanted.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t")
        writer.writeheader()
        for one in files_of(shown):
            writer.writerow(
                {
                    "bundle_uuid": made["bundle_uuid"],
                    "bundle_version": made["version"],
                    "file_name": one["name"],
                    "file_uuid": one["uuid"],
                    "file_sha256": one["sha256"],
                    "file_size": one["size"],
                    "note": "kept",
                }
            )
    done = scientist.types(
        *("download-manifest", "--manifest", "wanted.tsv", "--replica", "aws"),
        *("--layout", "bundle", "--no-progress"),
    )
    assert done.returncode == 0, done.stderr
    assert contents(where(scientist, made["bundle_uuid"])) == contents(source)
    copies = [path for path in scientist.folder.rglob("wanted*.tsv") if path.name != "wanted.tsv"]
    copies += scientist.folder.rglob("*/wanted.tsv")
    with copies[0].open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == len(contents(source))
    for row in rows:
        assert row["note"] == "kept"
        assert (scientist.folder / row["file_path"]).read_bytes() == contents(source)[
            row["file_name"]
        ]


def test_downloads_collection_with_targets(wrangler: Person, tmp_path: Path) -> None:
    source = a_sample(tmp_path / "sample", seed=4)
    made = deposit(wrangler, source)
    bundle = {"type": "bundle", "uuid": made["bundle_uuid"], "version": made["version"]}
    uuid = "c0113c71-0000-4000-8000-000000000001"
    version = wrangler.types("create-version").stdout.strip()
    collection = wrangler.gets(
        *("put-collection", "--uuid", uuid, "--version", version, "--replica", "aws"),
        *("--name", "mine", "--description", "all of it", "--details", "{}"),
        *("--contents", json.dumps([bundle])),
    )
    assert collection["uuid"] == uuid
    done = wrangler.types("download-collection", "--uuid", uuid, "--replica", "aws")
    assert done.returncode == 0, done.stderr
    (found,) = (path.parent for path in wrangler.folder.rglob("sample.json"))
    assert contents(found) == contents(source)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("get-bundle", "--uuid", "00000000-0000-4000-8000-000000000000", "--replica", "aws"), 5),
        (("get-bundle", "--uuid", "not a uuid", "--replica", "aws"), 2),
        (("get-bundle", "--replica", "aws"), 2),
        (("get-bundle", "--uuid", "00000000-0000-4000-8000-000000000000", "--replica", "az"), 2),
        (("no-such-command",), 2),
        (("get-collections",), 4),
        (("download", "--bundle-uuid", "0" * 8, "--replica", "aws"), 2),
        (("upload", "--src-dir", "/nowhere", "--replica", "aws"), 2),
        (("--help",), 0),
        (("doctor",), 0),
    ],
)
def test_exit_code_tells_what_happened(
    scientist: Person, words: tuple[str, ...], code: int
) -> None:
    done = scientist.types(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert len(done.stderr.strip().splitlines()) <= 4, done.stderr


def test_reports_missing_store(tmp_path: Path) -> None:
    person = a_person(tmp_path, "http://127.0.0.1:9")
    done = person.types("get-bundles-all", "--replica", "aws")
    assert done.returncode == 7
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_credentials_are_private(wrangler: Person, stage: LocalStore) -> None:
    kept = list((wrangler.home / "client" / "credentials").glob("*.json"))
    assert kept
    for path in kept:
        assert path.stat().st_mode & 0o777 == 0o600
    assert stage.token not in wrangler.types("whoami").stdout
    assert wrangler.types("logout").returncode == 0
    assert not any(path.exists() for path in kept)
    assert wrangler.types("get-collections").returncode == 4


def test_every_operation_of_both_services_is_a_command(scientist: Person) -> None:
    shown = scientist.types("api", "--help").stdout
    for name in ("get-bundle", "post-search", "put-subscription", "get-v1-users", "post-v1-role"):
        assert f"  {name} " in shown, name
