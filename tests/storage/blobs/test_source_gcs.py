"""GCS sources, against an emulator on loopback."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import google.cloud.storage
import pytest
from gcp_storage_emulator.server import create_server  # type: ignore[import-untyped]

from storage.blobs.clients import Limits
from storage.blobs.gcs_client import gcs_client
from storage.blobs.source_gcs import CHUNK, GcsSource
from storage.errors import RangeNotSatisfiable, SourceChanged, Unavailable, Unprocessable
from tests.serving import serving


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="staging")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def gcs(emulator: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    return gcs_client(Limits())


def put(client: google.cloud.storage.Client, key: str, data: bytes, **metadata: str) -> None:
    blob = client.bucket("staging").blob(key)
    blob.metadata = {name.replace("_", "-"): value for name, value in metadata.items()}
    blob.upload_from_string(data, content_type="x/y")


def source(client: Any, key: str, bucket: str = "staging") -> GcsSource:
    return GcsSource(bucket, key, lambda: client)


def content(found: GcsSource, **which: int) -> bytes:
    return b"".join(found.read(found.head().pin, **which))


def test_metadata_size_and_type_are_the_objects(gcs: Any) -> None:
    put(gcs, "a b/ü", b"content", store_sha1="x")
    head = source(gcs, "a b/ü").head()
    assert (head.key, head.size, head.content_type) == ("a b/ü", 7, "x/y")
    assert head.metadata == {"store-sha1": "x"}


def test_ranges(gcs: Any) -> None:
    put(gcs, "ranges", b"0123456789")
    found = source(gcs, "ranges")
    assert content(found) == b"0123456789"
    assert content(found, start=3, length=4) == b"3456"
    assert content(found, start=8) == b"89"
    assert content(found, length=0) == b""


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1])
def test_whole_objects_of_any_size(gcs: Any, size: int) -> None:
    put(gcs, f"size{size}", b"x" * size)
    assert content(source(gcs, f"size{size}")) == b"x" * size


class Strict(BaseHTTPRequestHandler):
    """Generations and ranges as documented, which the emulator does not mind."""

    data = b"0123456789"
    generation = "7"
    status = 0

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        first, _, last = (
            self.headers.get("Range", "bytes=0-99").removeprefix("bytes=").partition("-")
        )
        if self.status:
            self.answer(self.status, b"")
        elif query["generation"] != [self.generation]:
            self.answer(404, b"")
        elif query["ifGenerationMatch"] != [self.generation]:
            self.answer(412, b"")
        elif "Range" in self.headers and int(first) >= len(self.data):
            self.answer(416, b"")
        else:
            self.answer(206, self.data[int(first) : int(last) + 1])

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Strict]]:
    class Handler(Strict):
        pass

    with serving(Handler) as base:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", base)
        yield Handler


def test_a_changed_object_is_noticed(strict: type[Strict]) -> None:
    found = source(gcs_client(Limits()), "k")
    assert b"".join(found.read("7")) == strict.data
    with pytest.raises(SourceChanged):
        list(found.read("6"))


def test_a_range_outside_is_refused(strict: type[Strict]) -> None:
    found = source(gcs_client(Limits()), "k")
    for start in (10, 11):
        with pytest.raises(RangeNotSatisfiable):
            list(found.read("7", start=start))
    strict.data = b""
    assert list(found.read("7")) == []


def test_what_may_not_be_read_is_not_found(strict: type[Strict]) -> None:
    strict.status = 403
    with pytest.raises(Unprocessable):
        list(source(gcs_client(Limits()), "k").read("7"))


def test_what_is_absent_is_not_found(gcs: Any) -> None:
    for found in (
        source(gcs, "absent"),
        source(gcs, "k", bucket="absent"),
        source(gcs, "k", bucket="!!"),
    ):
        with pytest.raises(Unprocessable) as caught:
            found.head()
        assert caught.value.code == "source_not_found"


def test_without_credentials_it_may_work_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    with pytest.raises(Unavailable):
        GcsSource("b", "k", lambda: gcs_client(Limits())).head()
