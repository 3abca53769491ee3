"""Connections to buckets: through proxies, after they were closed, never with what is secret."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from store_client.errors import StoreError
from store_client.http.pool import DirectBody
from store_client.transfer.connections import BucketConnections, TransferFailure
from tests.certificates import write_certificate
from tests.client.download.bucket import Bucket, Harm

LONG = bytes(range(256)) * 8192


def test_sends_absolute_url_to_proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.always = Harm(status=418)
    monkeypatch.setenv("http_proxy", bucket.url.replace("http://", "http://me:pass%20word@"))
    wire = BucketConnections()
    with wire.get("http://bucket.example/key?signature=1") as answer:
        assert answer.status == 418
    assert bucket.asked[0][0] == "ttp://bucket.example/key"  # the fake takes a first slash away
    wire.close()


def test_reads_long_bodies_through_proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.contents["ttp://bucket.example/a"] = LONG
    monkeypatch.setenv("http_proxy", bucket.url)
    buffer = memoryview(bytearray(len(LONG)))
    with contextlib.closing(BucketConnections()) as wire:
        for start in (0, 70_000):
            with wire.get("http://bucket.example/a?signature=1", start=start) as answer:
                assert answer.readinto(buffer) == len(LONG) - start
                assert buffer[: len(LONG) - start] == LONG[start:]
    assert bucket.connections == 1


@pytest.fixture
def tls_bucket(tmp_path: Path) -> Iterator[str]:
    """The URL of a server with a certificate of its own, `server.pem`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"abc")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "server.pem"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/a?signature=1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_rejects_untrusted_certificate(tls_bucket: str) -> None:
    with (
        contextlib.closing(BucketConnections()) as wire,
        pytest.raises(TransferFailure, match=r"certificate of 127.* is not valid") as told,
        wire.get(tls_bucket),
    ):
        pass
    assert "signature" not in str(told.value)


def test_reads_over_tls_with_trusted_certificate(
    tls_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    buffer = memoryview(bytearray(10))
    with contextlib.closing(BucketConnections()) as wire:
        for _ in range(2):
            with wire.get(tls_bucket) as answer:
                assert answer.readinto(buffer) == 3
                assert buffer[:3] == b"abc"


def test_errors_repeat_nothing_that_the_server_sends(bucket: Bucket) -> None:
    bucket.always = Harm(garbage=b"\x1b[2J signature=secret\r\n\r\n")
    with (
        contextlib.closing(BucketConnections()) as wire,
        pytest.raises(TransferFailure, match=r"connection to .* broke: invalid response") as told,
        wire.get(bucket.signed("a")),
    ):
        pass
    assert "signature" not in str(told.value)


def test_reopens_connection_closed_by_server(bucket: Bucket) -> None:
    wire = BucketConnections()
    bucket.contents["a"] = b"abc"
    bucket.harms = [Harm(), Harm(cut_at=3)]
    buffer = memoryview(bytearray(10))
    for _ in range(3):
        with wire.get(bucket.signed("a")) as answer:
            assert answer.readinto(buffer) == 3
    assert bucket.connections == 2
    wire.close()


def test_long_bodies_come_whole_and_over_one_connection(bucket: Bucket) -> None:
    bucket.contents["a"] = LONG
    buffer = memoryview(bytearray(len(LONG)))
    with contextlib.closing(BucketConnections()) as wire:
        for start in (0, 1, 70_000):
            with wire.get(bucket.signed("a"), start=start) as answer:
                assert answer.readinto(buffer) == len(LONG) - start
                assert buffer[: len(LONG) - start] == LONG[start:]
    assert bucket.connections == 1


def test_reads_the_rest_of_a_long_body_past_the_library(bucket: Bucket) -> None:
    bucket.contents["a"] = LONG
    with httpx.Client() as client:
        for _ in range(2):
            with client.stream("GET", bucket.signed("a")) as response:
                pieces = response.iter_raw()
                body = bytearray(next(pieces))
                left = len(LONG) - len(body)
                assert DirectBody.take_over(response, left + 1) is None
                direct = DirectBody.take_over(response, left)
                assert direct
                buffer = memoryview(bytearray(100_000))
                while count := direct.readinto(buffer):
                    body += buffer[:count]
                assert body == LONG
                assert not list(pieces)
    assert bucket.connections == 1


def test_a_long_body_that_breaks_off_or_stalls_is_a_failure(bucket: Bucket) -> None:
    bucket.contents["a"] = LONG
    bucket.harms = [Harm(cut_at=1_000_000), Harm(stall_at=1_000_000)]
    buffer = memoryview(bytearray(len(LONG)))
    with contextlib.closing(BucketConnections(silence_s=1.0)) as wire:
        with wire.get(bucket.signed("a")) as answer:
            assert answer.readinto(buffer) == 1_000_000
        with wire.get(bucket.signed("a")) as answer, pytest.raises(httpx.ReadTimeout):
            answer.readinto(buffer)
        bucket.go_on.set()
        with wire.get(bucket.signed("a")) as answer:
            assert answer.readinto(buffer) == len(LONG)


def test_repeats_request_when_server_closes_idle_connection_without_answer() -> None:
    def serve() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
                connection.recv(65_536)  # the next request arrives, then the connection closes

    buffer = memoryview(bytearray(10))
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with contextlib.closing(BucketConnections()) as wire:
            for _ in range(2):
                with wire.get(f"http://127.0.0.1:{server.getsockname()[1]}/a") as answer:
                    assert answer.readinto(buffer) == 3
        thread.join(5)


def test_closed_connection_returns_no_bytes(bucket: Bucket) -> None:
    wire = BucketConnections()
    wire.close()
    with pytest.raises(TransferFailure, match="ended"), wire.get(bucket.signed("a")):
        pass


@pytest.mark.parametrize("last", [False, True])
def test_closing_wakes_readers(bucket: Bucket, last: bool) -> None:
    wire = BucketConnections()
    bucket.contents["a"] = b"abc"
    bucket.always = Harm(stall_at=1, last=last)
    with wire.get(bucket.signed("a")) as answer:
        assert answer.readinto(memoryview(bytearray(1))) == 1
        threading.Timer(0.05, wire.close).start()
        began = time.monotonic()
        with contextlib.suppress(httpx.HTTPError):
            assert answer.readinto(memoryview(bytearray(1))) == 0
        assert time.monotonic() - began < 5
    bucket.go_on.set()


def test_a_silent_bucket_is_not_waited_for_for_ever(bucket: Bucket) -> None:
    wire = BucketConnections(silence_s=0.1)
    bucket.contents["a"] = b"abc"
    bucket.always = Harm(wait_s=1.0)
    with pytest.raises(TransferFailure, match="no answer"), wire.get(bucket.signed("a")):
        pass
    wire.close()


NO_URLS = """ftp://x/y file:///etc/passwd http://[::1 http:///x http://x:99999/ http://a..b/ //x"""


@pytest.mark.spec("DWN-67")
def test_very_long_url_without_answer_is_the_stores_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}/{'a' * 70_000}"
    none = pytest.raises(StoreError, match="not an http or https URL")
    with contextlib.closing(BucketConnections()) as wire, none, wire.get(url):
        pass


@pytest.mark.spec("DWN-67")
@pytest.mark.parametrize("url", [*NO_URLS.split(), "", "http://a b/", f"http://{'a' * 300}/"])
def test_invalid_url_is_the_stores_fault(url: str) -> None:
    none = pytest.raises(StoreError, match="not an http or https URL")
    with contextlib.closing(BucketConnections()) as wire, none, wire.get(url):
        pass
