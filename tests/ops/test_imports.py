"""The command `import`: objects of a public bucket become files and bundles, once each."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from config import Settings
from ops import imports
from ops.procfile import ROOT
from pipelines import areas, checksums
from pipelines.area_files import checksum_metadata
from pipelines.imports import (
    ImportRequest,
    ImportResult,
    ImportSource,
    deposit_file,
    import_files,
    list_sources,
)
from pipelines.ingest import IngestRequest
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.blobs.clients import SourceAccess
from storage.catalog import bundles, files
from storage.connect import connect
from storage.model import FQID
from storage.protocols import SourceObject
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.ops.commands import opened, run, run_json, typed
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.s3_server import found, lasting_s3
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.spec("OPS-60")

OBJECTS = {
    "data/a/1.txt": b"first",
    "data/a/meta.json": b"{}",
    "data/b/2.txt": b"second",
    "data/b/empty/": b"",
    "other/3.txt": b"third",
}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with objects, on a server that the environment names no credentials for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"public-{uuid4()}"
    client = make_client()
    client.create_bucket(Bucket=name)
    for key, content in OBJECTS.items():
        client.put_object(Bucket=name, Key=key, Body=content, ContentType="x/y", ACL="public-read")
    return name


def make_client() -> Any:
    return boto3.client(
        "s3",
        endpoint_url=lasting_s3(),
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def words(bucket: str, prefix: str = "data/", *more: str) -> tuple[str, ...]:
    return ("import", f"s3://{bucket}/{prefix}", "--endpoint", lasting_s3(), *more)


def test_imports_each_object_once(home: Path, bucket: str) -> None:
    first = run_json(*words(bucket))
    assert (first["imported"], first["present"], first["failed"]) == (3, 0, 0)
    assert first["bytes"] == sum(map(len, (b"first", b"{}", b"second")))
    again = run_json(*words(bucket))
    assert (again["imported"], again["present"], again["failed"]) == (0, 3, 0)
    (usage,) = run_json("usage")["usage"]
    assert (usage["owner"], usage["files"], usage["bytes"]) == ("admin@local", 3, 13)


def test_the_spelling_of_an_endpoint_makes_no_other_files(home: Path, bucket: str) -> None:
    assert run_json(*words(bucket))["imported"] == 3
    endpoint = lasting_s3().replace("http://", "HTTP://") + "/"
    again = run_json("import", f"s3://{bucket}/data/", "--endpoint", endpoint)
    assert (again["imported"], again["present"]) == (0, 3)


def test_reports_progress_on_standard_error(
    home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "PROGRESS_S", 0.0)
    done = typed(*words(bucket), "--json")
    assert json.loads(done.stdout)["imported"] == 3
    lines = done.stderr.splitlines()
    assert [line.partition(" objects")[0] for line in lines] == [
        "so far imported 1",
        "so far imported 2",
        "so far imported 3",
    ]
    assert lines[-1].endswith(" with 13 bytes; 0 already stored, 0 failed")


def test_stores_the_bytes_with_all_checksums(home: Path, bucket: str) -> None:
    stores, request = open_with_endpoint(home), make_request(bucket, "data/a/1")
    ((source, result),) = import_files(stores, request, list_sources(stores, request))
    assert result.outcome == "imported"
    with stores.catalog.read() as tx:
        (row,) = files.find_all(tx, [source.fqid])
    assert row.published
    assert (row.content_type, row.size, row.author) == ("x/y", 5, "owner@example.org")
    assert row.checksums.s3_etag == "8b04d5e3775d298e78455efc5ca404d5"
    blob = stores.replicas["aws"].read(keys.blob_key(row.checksums.sha256))
    assert b"".join(blob) == b"first"


def make_request(bucket: str, prefix: str) -> ImportRequest:
    return ImportRequest(f"s3://{bucket}/{prefix}", "aws", "owner@example.org", 0, lasting_s3())


def open_with_endpoint(home: Path) -> Stores:
    return connect(
        Settings(home=home, secret_key="a secret for tests only"),
        notices=MemoryPubSub(),
        source_access=SourceAccess(anonymous=True, s3_endpoint=lasting_s3()),
    )


def test_makes_a_bundle_of_each_folder(home: Path, bucket: str) -> None:
    first = run_json(*words(bucket, "", "--bundle-by", "folder"))
    folders = [one["folder"].removeprefix(f"s3://{bucket}/") for one in first["bundles"]]
    assert folders == ["data/a/", "data/b/", "other/"]
    assert run_json(*words(bucket, "", "--bundle-by", "folder"))["bundles"] == first["bundles"]
    ident = first["bundles"][0]
    with opened(home).catalog.read() as tx:
        (row,) = bundles.find_all(tx, [FQID(ident["uuid"], ident["version"])])
        entries = bundles.list_entries(tx, row.id, start=0, limit=9, span=SEGMENT_ENTRIES)
    assert [(one.name, one.indexed) for one in entries] == [("1.txt", False), ("meta.json", True)]


def test_names_what_a_bundle_cannot_hold(home: Path, bucket: str) -> None:
    for key in ("data/a/e\u0301.txt", "data/a/\u00e9.txt", "data/b/c\\d.txt"):
        make_client().put_object(Bucket=bucket, Key=key, Body=b"x", ACL="public-read")
    result = typed(*words(bucket, "data/", "--bundle-by", "folder"), "--json")
    reasons = [one["reason"] for one in json.loads(result.stdout)["failures"]]
    assert reasons == [
        "File names must be unique. \u00e9.txt: Entry 1 has the same name.",
        "1 file names are invalid. c\\d.txt: A name must be relative, without a leading '/' or '~/'"
        " and without a backslash.",
    ]


def test_refuses_an_object_whose_etag_lies(home: Path, bucket: str) -> None:
    found(bucket, "data/a/1.txt")._etag = "0" * 32
    result = typed(*words(bucket, "data/", "--bundle-by", "folder"), "--json")
    assert result.exit_code == 1
    assert "its ETag is stated as 00000000000000000000000000000000" in result.stdout
    assert '"imported": 2' in result.stdout
    assert "1 of its 2 files were not imported" in result.stdout
    assert "2 objects or bundles were not imported" in result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("s3://", "must be s3://bucket/prefix"),
        ("data/folder", "must be s3://bucket/prefix"),
        ("https://example.org/x", "must be s3://bucket/prefix"),
        ("s3://p/x", "bucket p must be at least 2 letters"),
        ("s3://no-such-bucket-here/x", "NoSuchBucket"),
    ],
)
def test_rejects_bad_sources(home: Path, bucket: str, source: str, message: str) -> None:
    result = typed("import", source, "--endpoint", lasting_s3())
    assert result.exit_code == 1
    assert message in result.output
    assert run_json("usage")["usage"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("s3://bucket/", "--endpoint", "file:///etc"), "must be an http or https URL with a host"),
        (("s3://bucket/", "--endpoint", "http://"), "must be an http or https URL with a host"),
        (("gs://bucket/", "--endpoint", "http://localhost"), "--endpoint is for sources in S3"),
        (("s3://bucket/", "--owner", "nobody here"), "--owner: Not an e-mail address"),
        (("s3://bucket/", "--owner", "nobody here"), "(got nobody here)"),
        (("s3://bucket/", "--owner", ""), "'--owner': must not be empty"),
        (("s3://bucket/", "--creator-uid", "9" * 23), "--creator-uid"),
    ],
)
def test_rejects_bad_options(home: Path, options: tuple[str, ...], message: str) -> None:
    result = typed("import", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_fails_if_there_is_no_object(home: Path, bucket: str, more: tuple[str, ...]) -> None:
    result = typed(*words(bucket, "nothing/", *more))
    assert result.exit_code == 1
    assert f"no object below s3://{bucket}/nothing/" in result.stderr


def test_sums_up_what_was_new(home: Path, bucket: str) -> None:
    run(*words(bucket, "data/a/", "--bundle-by", "folder"))
    summary = run(*words(bucket, "", "--bundle-by", "folder")).splitlines()[-1]
    assert summary == (
        "imported 2 objects with 11 bytes; 2 already stored, 0 failed; 3 bundles, 2 new"
    )


def test_a_dry_run_changes_nothing(home: Path, bucket: str) -> None:
    planned = run_json(*words(bucket, "data/", "--dry-run"))["objects"]
    assert [one["size"] for one in planned] == [5, 2, 6]
    assert {one["state"] for one in planned} == {"new"}
    assert run_json("usage")["usage"] == []
    assert run_json(*words(bucket, "data/", "--limit", "1"))["imported"] == 1
    planned = run_json(*words(bucket, "data/", "--dry-run"))["objects"]
    assert [one["state"] for one in planned] == ["present", "new", "new"]


def test_a_dry_run_shows_conflicts(home: Path, bucket: str) -> None:
    stores, request = open_with_endpoint(home), make_request(bucket, "data/a/1")
    (source,) = list_sources(stores, request)
    take_name(stores, source, b"other bytes", "other@example.org")
    planned = run_json(*words(bucket, "data/", "--dry-run"))["objects"]
    assert [one["state"] for one in planned] == ["conflict", "new", "new"]
    assert "conflict" in run(*words(bucket, "data/", "--dry-run"))


def take_name(stores: Stores, source: ImportSource, content: bytes, author: str) -> None:
    """Deposit these bytes, from an upload area, as the file that an object would become."""
    area = str(uuid4())
    areas.create(stores, area, author)
    sums = checksums.compute_checksums([content], len(content)).checksums
    key = keys.area_file_key(area, "file")
    stores.areas.put(key, content, metadata=checksum_metadata(sums))
    new = IngestRequest(source.fqid, "aws", stores.areas.direct_url(key), 0)
    deposit_file(stores, new, stores.areas.head(key), author)


@pytest.mark.parametrize(
    ("etag", "content", "outcome"),
    [
        ("0123456789abcdef0123456789abcdef-2", b"false", "failed"),
        ("0123456789abcdef0123456789abcdef-2", b"first", "present"),
        ("8b04d5e3775d298e78455efc5ca404d5", b"false", "failed"),
        ("8b04d5e3775d298e78455efc5ca404d5", b"first", "present"),
    ],
    ids=["other-multipart", "same-multipart", "other", "same"],
)
def test_compares_files_of_other_depositors(
    home: Path, bucket: str, etag: str, content: bytes, outcome: str
) -> None:
    found(bucket, "data/a/1.txt")._etag = etag
    stores, request = open_with_endpoint(home), make_request(bucket, "data/a/1")
    (source,) = list_sources(stores, request)
    assert source.info.etag == etag
    take_name(stores, source, content, "other@example.org")
    ((_, result),) = import_files(stores, request, iter([source]))
    assert result.outcome == outcome
    assert ("other content" in result.reason) == (outcome == "failed")


def test_an_unexpected_error_fails_one_object(
    home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, request = open_with_endpoint(home), make_request(bucket, "data/")
    infos = list(stores.sources.list(request.source_url))
    # A listing in JSON can have such a key.
    broken = replace(infos[0], key="data/\udc80")
    opened_source = stores.sources.open

    def open_source(url: str) -> SourceObject:
        if url.endswith("meta.json"):
            raise ZeroDivisionError("of this test")
        return opened_source(url)

    monkeypatch.setattr(stores.sources, "list", lambda _: iter([broken, *infos]))
    monkeypatch.setattr(stores.sources, "open", open_source)
    results = [one for _, one in import_files(stores, request, list_sources(stores, request))]
    assert [one.outcome for one in results] == ["failed", "imported", "failed", "imported"]
    assert results[0].url.endswith("/data/\\udc80")
    assert results[0].reason == "its key is not valid Unicode"
    assert results[2].reason == "ZeroDivisionError: of this test"


def test_is_refused_while_the_store_is_read_only(home: Path, bucket: str) -> None:
    run("read-only", "on")
    result = typed(*words(bucket))
    assert result.exit_code == 1
    assert "read-only" in result.output


def test_is_refused_in_a_mirror(home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_MIRROR_OF", "https://source.example.org")
    result = typed(*words(bucket))
    assert result.exit_code == 1
    assert "a read-only mirror of https://source.example.org" in result.output
    assert run_json("usage")["usage"] == []


def test_goes_on_after_a_kill(home: Path, bucket: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from pipelines import ingest\n"
        "def publish(*args):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ingest._publish_file = publish\n"
        "from ops.__main__ import cli\n"
        "cli(sys.argv[1:])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, *words(bucket)],
        cwd=ROOT,
        env={**os.environ, "STORE_HOME": str(home)},
        check=False,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert killed.returncode == -signal.SIGKILL
    assert run_json("usage")["usage"] == []
    after = run_json(*words(bucket))
    assert (after["imported"], after["present"], after["failed"]) == (3, 0, 0)
    assert run_json(*words(bucket))["present"] == 3


def test_two_imports_at_once_fail_no_object(
    home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes the object over while the first one stores it, and ends after it."""
    stores, request = open_with_endpoint(home), make_request(bucket, "data/a/1")
    other = open_with_endpoint(home)
    (source,) = list_sources(stores, request)
    first_read, took_over = threading.Event(), threading.Event()

    def run_second() -> list[tuple[ImportSource, ImportResult]]:
        return list(import_files(other, request, iter([source])))

    def start_second() -> None:
        seconds.append(pool.submit(run_second))
        assert took_over.wait(PATIENCE_S)

    def hold_second() -> None:
        took_over.set()
        assert first_read.wait(PATIENCE_S)

    seconds = list[Future[list[tuple[ImportSource, ImportResult]]]]()
    with ThreadPoolExecutor(1) as pool:
        for one, before, after in (
            (stores, start_second, first_read.set),
            (other, hold_second, lambda: None),
        ):
            pause_second_reading(one, monkeypatch, before, after)
        try:
            ((_, first),) = import_files(stores, request, iter([source]))
        finally:
            first_read.set()
    ((_, second),) = seconds[0].result()
    assert (first.outcome, first.reason) == ("imported", "")
    assert (second.outcome, second.reason) == ("imported", "")
    assert run_json(*words(bucket, "data/a/1"))["present"] == 1


def pause_second_reading(
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[], None],
    after: Callable[[], None],
) -> None:
    """Call functions before and after the reading that stores an object."""
    open_source, opened_sources = stores.sources.open, list[SourceObject]()

    class PausedSource:
        def __init__(self, inner: SourceObject) -> None:
            self.head = inner.head
            self._read = inner.read

        def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
            before()
            yield from self._read(pin, start, length)
            after()

    def open_paused(url: str) -> SourceObject:
        opened_sources.append(open_source(url))
        latest = opened_sources[-1]
        return PausedSource(latest) if len(opened_sources) > 1 else latest

    monkeypatch.setattr(stores.sources, "open", open_paused)


def test_imports_from_google_cloud_storage(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects there have generations and CRC-32Cs; the file goes into the replica of the scheme."""
    with running(tmp_path) as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
        credentials = list[str]()
        monkeypatch.setattr(
            type(gcs.tokens), "expect", lambda _self, sent: credentials.append(sent)
        )
        gcs.objects.make_bucket("public")
        for name in ("data/a.txt", "data/b.txt", "other"):
            gcs.objects.put("public", {"name": name}, name.encode(), {})
        planned = run_json("import", "gs://public/data/", "--dry-run")["objects"]
        assert run_json("import", "gs://public/data/")["imported"] == 2
        again = run_json("import", "gs://public/data/")
    assert (again["imported"], again["present"], again["failed"]) == (0, 2, 0)
    assert set(credentials) == {""}
    stores = opened(home)
    with stores.catalog.read() as tx:
        rows = files.find_all(tx, [FQID(one["uuid"], one["version"]) for one in planned])
    blobs = [stores.replicas["gcp"].read(keys.blob_key(row.checksums.sha256)) for row in rows]
    assert {b"".join(blob) for blob in blobs} == {b"data/a.txt", b"data/b.txt"}
