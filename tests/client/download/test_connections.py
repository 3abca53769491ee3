"""Connections to buckets: through proxies, after they were closed, never with what is secret."""

import contextlib
import socket
import threading
import time

import httpx
import pytest

from store_client.errors import StoreError
from store_client.http.pool import DirectBody
from store_client.transfer.connections import BucketConnections, TransferFailure
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
@pytest.mark.parametrize("url", [*NO_URLS.split(), "", "http://a b/", f"http://{'a' * 300}/"])
def test_invalid_url_is_the_stores_fault(url: str) -> None:
    none = pytest.raises(StoreError, match="not an http or https URL")
    with contextlib.closing(BucketConnections()) as wire, none, wire.get(url):
        pass
