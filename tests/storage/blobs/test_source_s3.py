"""S3 sources against a simulated S3 and a failing server."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest
from moto import mock_aws

from storage.blobs.clients import CloudLimits, PerProcess, SourceReader
from storage.blobs.s3 import S3Source
from storage.blobs.s3_client import S3Connection, S3Server, open_s3_source_reader
from storage.errors import RangeNotSatisfiable, SourceChanged, Unavailable, Unprocessable
from tests.http_server import serving

pytestmark = pytest.mark.spec("SVC-02", "FIL-17")

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
def simulated() -> Iterator[S3Connection]:
    """What the simulation, which is no server, is read by: nothing but boto3."""
    with mock_aws():
        connection = S3Connection(S3Server(), CloudLimits())
        # The fast path of unsigned connections makes no calls.
        connection.small = S3Connection(S3Server(), CloudLimits(), signed=False).small
        connection.client.create_bucket(Bucket="staging")
        yield connection


@pytest.fixture
def s3(simulated: S3Connection) -> Any:
    return simulated.client


def source(connection: S3Connection, key: str = "k", bucket: str = "staging") -> S3Source:
    return S3Source(bucket, key, lambda: connection)


def content(found: S3Source, pin: str | None = None, **which: int) -> bytes:
    return b"".join(found.read(pin or found.head().pin, **which))


def test_metadata_size_and_type_are_the_objects(s3: Any, simulated: S3Connection) -> None:
    s3.put_object(Bucket="staging", Key="a b/ü", Body=b"content", ContentType="x/y", Metadata=SUMS)
    head = source(simulated, "a b/ü").head()
    assert (head.key, head.size, head.content_type) == ("a b/ü", 7, "x/y")
    assert head.metadata == SUMS
    assert head.etag is not None
    assert len(head.etag) == 32


class Described(BaseHTTPRequestHandler):
    """Says all that a HEAD can say of an object."""

    asked: ClassVar[list[tuple[str, bool]]] = []

    def do_HEAD(self) -> None:
        self.asked.append((self.command, "amz-sdk-invocation-id" in self.headers))
        self.send_response(200)
        for name, value in SUMS.items():
            self.send_header(f"x-amz-meta-{name}", value)
        self.send_header("x-amz-meta-content-type", "metadata, in spite of its name")
        self.send_header("Content-Type", "x/y; z=1")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Length", "7")
        self.send_header("ETag", '"tag"')
        self.send_header("x-amz-version-id", "v1")
        self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


def test_a_head_is_one_cheap_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Described) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        head = source(open_s3_source_reader(QUICK).client, "a b/ü").head()
    assert Described.asked == [("HEAD", False)]
    assert (head.key, head.size, head.content_type) == ("a b/ü", 7, "x/y; z=1")
    assert (head.pin, head.etag) == ("v:v1", "tag")
    assert head.metadata == {**SUMS, "content-type": "metadata, in spite of its name"}


@pytest.mark.spec("FIL-07")
def test_tags_fill_what_metadata_lacks(s3: Any, simulated: S3Connection) -> None:
    s3.put_object(
        Bucket="staging",
        Key="k",
        Body=b"content",
        Metadata={"store-sha1": "1" * 40},
        Tagging="&".join(f"{name}={value}" for name, value in SUMS.items()),
    )
    head = source(simulated).head()
    assert head.metadata == {**SUMS, "store-sha1": "1" * 40}
    assert head.content_type is None


def test_ranges(s3: Any, simulated: S3Connection) -> None:
    s3.put_object(Bucket="staging", Key="k", Body=b"0123456789")
    found = source(simulated)
    assert content(found) == b"0123456789"
    assert content(found, start=3, length=4) == b"3456"
    assert content(found, start=8) == b"89"
    assert content(found, length=0) == b""
    with pytest.raises(RangeNotSatisfiable):
        content(found, start=11)


def test_an_empty_object_is_read(s3: Any, simulated: S3Connection) -> None:
    s3.put_object(Bucket="staging", Key="k", Body=b"")
    assert content(source(simulated)) == b""


@pytest.mark.parametrize("versioned", [False, True])
def test_a_pin_outlives_no_change(s3: Any, simulated: S3Connection, versioned: bool) -> None:
    if versioned:
        s3.put_bucket_versioning(Bucket="staging", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="staging", Key="k", Body=b"one")
    pin = source(simulated).head().pin
    s3.put_object(Bucket="staging", Key="k", Body=b"two")
    if versioned:
        assert content(source(simulated), pin) == b"one"
        s3.delete_object(Bucket="staging", Key="k", VersionId=pin[2:])
    with pytest.raises(SourceChanged):
        content(source(simulated), pin)


def test_absent_object_is_not_found(s3: Any, simulated: S3Connection) -> None:
    for found in (
        source(simulated),
        source(simulated, bucket="absent"),
        source(simulated, bucket="no bucket!"),
    ):
        with pytest.raises(Unprocessable) as caught:
            found.head()
        assert caught.value.code == "source_not_found"


@pytest.fixture
def _without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("_without_credentials")
def test_a_public_object_is_read_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Public) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        reader = open_s3_source_reader(QUICK)
        assert not reader.signed
        assert content(source(reader.client)) == Public.data


@pytest.mark.spec("ERR-45")
@pytest.mark.usefixtures("_without_credentials")
def test_a_private_object_is_not_readable_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(Private) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        assert refusal(source(open_s3_source_reader(QUICK).client)) == "source_not_readable"


def test_requests_are_signed_where_there_are_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Public) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        reader = open_s3_source_reader(QUICK)
        assert reader.signed
        assert refusal(source(reader.client)) == "source_not_readable"


@pytest.mark.spec("ERR-45")
def test_unreachable_server_is_not_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    once = CloudLimits(connect_s=1, read_s=5, attempts=1)
    assert refusal(source(open_s3_source_reader(once).client)) == "source_not_readable"


def test_a_fault_of_the_server_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Failing) as base:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", base)
        with pytest.raises(Unavailable):
            source(open_s3_source_reader(QUICK).client).head()


def test_looks_for_credentials_again() -> None:
    now = time.monotonic()
    assert not SourceReader(None, signed=False, created_at=now - 1).is_expired
    assert SourceReader(None, signed=False, created_at=now - 61).is_expired
    assert not SourceReader(None, signed=True, created_at=now - 61).is_expired
    made = iter(range(9))
    client = PerProcess(lambda: next(made), expired=lambda number: number < 2)
    assert [client(), client(), client(), client()] == [0, 1, 2, 2]


def refusal(found: S3Source) -> str:
    with pytest.raises(Unprocessable) as caught:
        found.head()
    return caught.value.code


QUICK = CloudLimits(connect_s=1, read_s=5, attempts=2)


class Public(BaseHTTPRequestHandler):
    """A bucket that anybody may read, and that knows nobody's credentials."""

    data = b"public"
    closed = False

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.data)

    def _answer(self, body: bytes) -> None:
        if self.closed or "Authorization" in self.headers or "tagging" in self.path:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.send_header("ETag", '"tag"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Private(Public):
    """A bucket that nobody may read."""

    closed = True


class Failing(Public):
    """One that answers nothing but 503."""

    def _answer(self, body: bytes) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()


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


def test_resumes_broken_stream(breaking: type[Breaking]) -> None:
    assert content(source(open_s3_source_reader(CloudLimits()).client), 'e:"tag"') == Breaking.data
    assert breaking.asked[0] is None
    assert all(asked is not None for asked in breaking.asked[1:])
    assert len(breaking.asked) >= 4


def test_gives_up_on_stalled_stream(breaking: type[Breaking]) -> None:
    breaking.most = 0
    with pytest.raises(Unavailable):
        content(source(open_s3_source_reader(CloudLimits()).client), 'e:"tag"')
