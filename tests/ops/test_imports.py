"""The command `import`: objects of a public bucket become files and bundles, once each."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from config import Settings
from ops.procfile import ROOT
from pipelines.imports import ImportRequest, import_files, list_sources
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.blobs.clients import SourceAccess
from storage.catalog import bundles, files
from storage.connect import connect
from storage.model import FQID
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.ops.commands import opened, run, run_json, typed
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.s3_server import found, lasting_s3

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
        ("s3://no-such-bucket-here/x", "NoSuchBucket"),
    ],
)
def test_rejects_bad_sources(home: Path, bucket: str, source: str, message: str) -> None:
    result = typed("import", source, "--endpoint", lasting_s3())
    assert result.exit_code == 1
    assert message in result.output
    assert run_json("usage")["usage"] == []


def test_rejects_a_bad_endpoint(home: Path, bucket: str) -> None:
    result = typed("import", f"s3://{bucket}/", "--endpoint", "file:///etc")
    assert result.exit_code == 2
    assert "must be an http or https URL" in result.output


def test_a_dry_run_changes_nothing(home: Path, bucket: str) -> None:
    planned = run_json(*words(bucket, "data/", "--dry-run"))["objects"]
    assert [one["size"] for one in planned] == [5, 2, 6]
    assert not any(one["present"] for one in planned)
    assert run_json("usage")["usage"] == []
    assert run_json(*words(bucket, "data/", "--limit", "1"))["imported"] == 1
    assert [
        one["present"] for one in run_json(*words(bucket, "data/", "--dry-run"))["objects"]
    ] == [
        True,
        False,
        False,
    ]


def test_is_refused_while_the_store_is_read_only(home: Path, bucket: str) -> None:
    run("read-only", "on")
    result = typed(*words(bucket))
    assert result.exit_code == 1
    assert "read-only" in result.output


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
    )
    assert killed.returncode == -signal.SIGKILL
    assert run_json("usage")["usage"] == []
    after = run_json(*words(bucket))
    assert (after["imported"], after["present"], after["failed"]) == (3, 0, 0)
    assert run_json(*words(bucket))["present"] == 3


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
