"""S3 sources, against a simulated S3 and against a server that breaks off."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from moto import mock_aws

from storage.blobs.clients import Limits, PerProcess
from storage.blobs.s3_client import s3_client
from storage.blobs.source_s3 import S3Source
from storage.errors import RangeNotSatisfiable, SourceChanged, Unavailable, Unprocessable
from tests.serving import serving

SUMS = {
    "store-sha1": "a" * 40,
    "store-sha256": "b" * 64,
    "store-crc32c": "c" * 8,
    "store-s3_etag": "d" * 32,
}


@pytest.fixture(autouse=True)
def _ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = s3_client(Limits())
        client.create_bucket(Bucket="staging")
        yield client


def source(client: Any, key: str = "k", bucket: str = "staging") -> S3Source:
    return S3Source(bucket, key, lambda: client)


def content(found: S3Source, pin: str | None = None, **which: int) -> bytes:
    return b"".join(found.read(pin or found.head().pin, **which))


def test_metadata_size_and_type_are_the_objects(s3: Any) -> None:
    s3.put_object(Bucket="staging", Key="a b/ü", Body=b"content", ContentType="x/y", Metadata=SUMS)
    head = source(s3, "a b/ü").head()
    assert (head.key, head.size, head.content_type) == ("a b/ü", 7, "x/y")
    assert head.metadata == SUMS
    assert head.etag is not None
    assert len(head.etag) == 32


def test_tags_fill_what_metadata_lacks(s3: Any) -> None:
    s3.put_object(
        Bucket="staging",
        Key="k",
        Body=b"content",
        Metadata={"store-sha1": "1" * 40},
        Tagging="&".join(f"{name}={value}" for name, value in SUMS.items()),
    )
    head = source(s3).head()
    assert head.metadata == {**SUMS, "store-sha1": "1" * 40}
    assert head.content_type is None


def test_ranges(s3: Any) -> None:
    s3.put_object(Bucket="staging", Key="k", Body=b"0123456789")
    found = source(s3)
    assert content(found) == b"0123456789"
    assert content(found, start=3, length=4) == b"3456"
    assert content(found, start=8) == b"89"
    assert content(found, length=0) == b""
    with pytest.raises(RangeNotSatisfiable):
        content(found, start=11)


def test_an_empty_object_is_read(s3: Any) -> None:
    s3.put_object(Bucket="staging", Key="k", Body=b"")
    assert content(source(s3)) == b""


@pytest.mark.parametrize("versioned", [False, True])
def test_a_pin_outlives_no_change(s3: Any, versioned: bool) -> None:
    if versioned:
        s3.put_bucket_versioning(Bucket="staging", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="staging", Key="k", Body=b"one")
    pin = source(s3).head().pin
    s3.put_object(Bucket="staging", Key="k", Body=b"two")
    if versioned:
        assert content(source(s3), pin) == b"one"
        s3.delete_object(Bucket="staging", Key="k", VersionId=pin[2:])
    with pytest.raises(SourceChanged):
        content(source(s3), pin)


def test_what_is_absent_is_not_found(s3: Any) -> None:
    for found in (source(s3), source(s3, bucket="absent"), source(s3, bucket="no bucket!")):
        with pytest.raises(Unprocessable) as caught:
            found.head()
        assert caught.value.code == "source_not_found"


def test_without_credentials_it_may_work_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(Unavailable):
        source(s3_client(Limits())).head()


def test_one_client_serves_the_process() -> None:
    client = PerProcess(object)
    assert client() is client()


class Breaking(BaseHTTPRequestHandler):
    """Answers GETs with the right range, but closes the connection after `most` bytes."""

    protocol_version = "HTTP/1.1"
    data = bytes(range(256)) * 20_000
    most = 1_500_000
    asked: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        rest = self.data[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(rest)))
        if wanted:
            whole = len(self.data)
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.send_header("ETag", '"tag"')
        self.end_headers()
        self.wfile.write(rest[: self.most])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Breaking]]:
    class Handler(Breaking):
        asked: list[str | None] = []  # noqa: RUF012

    with serving(Handler) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        yield Handler


def test_a_stream_that_breaks_is_taken_up_where_it_broke(breaking: type[Breaking]) -> None:
    assert content(source(s3_client(Limits())), 'e:"tag"') == Breaking.data
    assert breaking.asked[0] is None
    assert all(asked is not None for asked in breaking.asked[1:])
    assert len(breaking.asked) >= 4


def test_a_stream_that_never_moves_is_given_up(breaking: type[Breaking]) -> None:
    breaking.most = 0
    with pytest.raises(Unavailable):
        content(source(s3_client(Limits())), 'e:"tag"')
