"""Cloud clients respect configured connections, attempts and timeouts."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from unittest.mock import patch

import pytest

from storage.blobs.clients import CloudLimits
from storage.errors import Unavailable
from storage.protocols import BlobStore
from tests.http_server import serving
from tests.storage.blobs import backend_gcs, backend_s3

OPENED: dict[str, Callable[[str, str, CloudLimits], BlobStore]] = {
    "s3": backend_s3.opened,
    "gcs": backend_gcs.opened,
}
clouds = pytest.mark.parametrize("cloud", OPENED)
AT_ONCE = 14
"""More than either library keeps when it is told nothing."""
OBJECT = b'{"name": "k", "generation": "1", "size": "0", "crc32c": "AAAAAA==", "metadata": {}}'


@pytest.fixture(autouse=True)
def _ambient() -> Iterator[None]:
    with patch.dict(os.environ, backend_s3.SIMULATED):
        yield


class Answering(BaseHTTPRequestHandler):
    """Says the same to everybody."""

    protocol_version = "HTTP/1.1"
    status, body = 200, OBJECT

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.met()
        self.send_response(self.status)
        self.send_header("ETag", '"' + "0" * 32 + '"')
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

    def met(self) -> None:
        """Told of each request."""

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def bucket(cloud: str, handler: type[Answering], limits: CloudLimits) -> Iterator[BlobStore]:
    with serving(handler) as endpoint:
        yield OPENED[cloud](endpoint, "bucket", limits)


@clouds
def test_keeps_as_many_connections_as_limits_say(cloud: str) -> None:
    together, known = threading.Barrier(AT_ONCE), set[object]()

    class Meeting(Answering):
        def met(self) -> None:
            known.add(self.client_address)
            together.wait(30)

    limits = CloudLimits(connect_s=5, read_s=60, attempts=1, connections=AT_ONCE)
    with bucket(cloud, Meeting, limits) as blobs, ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(3):
            list(pool.map(blobs.head, ["k"] * AT_ONCE))
    assert len(known) == AT_ONCE


@clouds
@pytest.mark.parametrize("attempts", [1, 2])
def test_retries_as_often_as_limits_say(cloud: str, attempts: int) -> None:
    asked = Counter[str]()

    class Busy(Answering):
        status, body = 503, b""

        def met(self) -> None:
            asked[self.command] += 1

    limits = CloudLimits(connect_s=5, read_s=5, attempts=attempts, connections=1)
    with bucket(cloud, Busy, limits) as blobs, pytest.raises(Unavailable):
        list(blobs.list(""))
    assert asked == {"GET": attempts}


@clouds
def test_times_out_as_limits_say(cloud: str) -> None:
    over = threading.Event()

    class Silent(Answering):
        def met(self) -> None:
            # Shorter than what either library waits when it is told nothing.
            over.wait(30)

    limits = CloudLimits(connect_s=5, read_s=0.2, attempts=1, connections=1)
    with bucket(cloud, Silent, limits) as blobs:
        with pytest.raises(Unavailable, match=r"read timeout=0\.2|Read timeout on endpoint"):
            list(blobs.list(""))
        over.set()
