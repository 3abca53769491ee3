"""GCS sources against a simulated GCS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.exceptions import RefreshError, TransportError

from storage.blobs.clients import CloudLimits
from storage.blobs.gcs import GcsSource
from storage.blobs.gcs_client import GcsClient, GcsServer, open_gcs_source_reader
from storage.errors import RangeNotSatisfiable, SourceChanged, Unavailable, Unprocessable
from storage.protocols import BLOCK, DEFAULT_CONTENT_TYPE
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.gcs_server import Gcs, Trouble

pytestmark = pytest.mark.spec("SVC-02", "FIL-17")


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    """The ambient GCS."""
    with running(tmp_path) as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
        gcs.objects.make_bucket("staging")
        yield gcs


def put(gcs: Gcs, key: str, data: bytes, **words: object) -> str:
    return str(gcs.objects.put("staging", {"name": key, **words}, data, {}).generation)


@pytest.fixture
def client(gcs: Gcs) -> GcsClient:
    return GcsClient(GcsServer(), CloudLimits(connect_s=2, read_s=10, attempts=2))


def source(client: GcsClient, key: str, bucket: str = "staging") -> GcsSource:
    return GcsSource(bucket, key, lambda: client)


def content(found: GcsSource, **which: int) -> bytes:
    return b"".join(found.read(found.head().pin, **which))


def test_metadata_size_and_type_are_the_objects(gcs: Gcs, client: GcsClient) -> None:
    put(gcs, "a b/ü", b"content", contentType="x/y", metadata={"Store-SHA1": "x"})
    head = source(client, "a b/ü").head()
    assert (head.key, head.size, head.content_type) == ("a b/ü", 7, "x/y")
    assert head.metadata == {"store-sha1": "x"}
    assert head.crc32c is not None


def test_missing_content_type_is_octet_stream(gcs: Gcs, client: GcsClient) -> None:
    put(gcs, "k", b"content")
    assert source(client, "k").head().content_type == DEFAULT_CONTENT_TYPE


def test_ranges(gcs: Gcs, client: GcsClient) -> None:
    put(gcs, "ranges", b"0123456789")
    found = source(client, "ranges")
    assert content(found) == b"0123456789"
    assert content(found, start=3, length=4) == b"3456"
    assert content(found, start=8) == b"89"
    assert content(found, length=0) == b""
    with pytest.raises(RangeNotSatisfiable):
        content(found, start=10)


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 9 * BLOCK])
def test_whole_objects_of_any_size(gcs: Gcs, client: GcsClient, size: int) -> None:
    put(gcs, "k", b"x" * size)
    assert content(source(client, "k")) == b"x" * size


def test_reads_compressed_objects_as_stored(gcs: Gcs, client: GcsClient) -> None:
    put(gcs, "k", b"\x1f\x8b not really", contentEncoding="gzip")
    assert content(source(client, "k")) == b"\x1f\x8b not really"


def test_a_changed_or_deleted_object_is_noticed(gcs: Gcs, client: GcsClient) -> None:
    pin = put(gcs, "k", b"one")
    put(gcs, "k", b"two")
    with pytest.raises(SourceChanged):
        list(source(client, "k").read(pin))
    gcs.objects.delete("staging", "k", {})
    with pytest.raises(Unprocessable):
        list(source(client, "k").read(pin))


@pytest.mark.spec("ERR-45")
def test_forbidden_source_is_the_depositors_error(gcs: Gcs, client: GcsClient) -> None:
    pin = put(gcs, "k", b"one")
    gcs.trouble.append(Trouble("/o/k", times=9, status=403))
    with pytest.raises(Unprocessable) as caught:
        list(source(client, "k").read(pin))
    assert caught.value.code == "source_not_readable"


@pytest.mark.parametrize(("key", "bucket"), [("absent", "staging"), ("k", "absent"), ("k", "!!")])
def test_absent_object_is_not_found(gcs: Gcs, client: GcsClient, key: str, bucket: str) -> None:
    with pytest.raises(Unprocessable) as caught:
        source(client, key, bucket).head()
    assert caught.value.code == "source_not_found"


def test_without_credentials_requests_are_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    reader = open_gcs_source_reader(CloudLimits())
    assert (reader.signed, reader.client.endpoint) == (False, "https://storage.googleapis.com")


@pytest.mark.parametrize(
    ("error", "readable_later"),
    [
        (RefreshError("revoked"), False),
        (RefreshError("busy", retryable=True), True),
        (TransportError("no route"), True),
    ],
)
def test_credentials_that_do_not_work_close_a_source(
    error: Exception, readable_later: bool
) -> None:
    def client() -> GcsClient:
        raise error

    with pytest.raises(Unavailable if readable_later else Unprocessable) as caught:
        GcsSource("b", "k", client).head()
    assert caught.value.code == ("service_unavailable" if readable_later else "source_not_readable")


def test_a_server_that_cannot_be_reached_is_not_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    found = GcsSource("b", "k", lambda: open_gcs_source_reader(CloudLimits(attempts=1)).client)
    with pytest.raises(Unprocessable) as caught:
        found.head()
    assert caught.value.code == "source_not_readable"
    with pytest.raises(Unavailable):
        list(found.read("1"))


def test_a_fault_of_the_server_may_pass(gcs: Gcs, client: GcsClient) -> None:
    put(gcs, "k", b"one")
    gcs.trouble.append(Trouble("/o/k", times=9, status=503))
    with pytest.raises(Unavailable):
        source(client, "k").head()


@pytest.mark.parametrize(("key", "bucket"), [("..", "staging"), (".", "staging"), ("k", "..")])
def test_names_do_not_climb(gcs: Gcs, client: GcsClient, key: str, bucket: str) -> None:
    with pytest.raises(Unprocessable) as caught:
        source(client, key, bucket).head()
    assert caught.value.code == "source_not_found"
    assert gcs.asked == []
