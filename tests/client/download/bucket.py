"""A bucket that misbehaves as it is told: one rule for each request, in order, then none."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from store_client.transfer.streams import RemoteFile

VERSION = "2026-01-31T235959.000000Z"


@dataclass(frozen=True)
class Harm:
    """What happens to one answer; nothing by default."""

    status: int = 0
    retry_after: int | None = None
    cut_at: int | None = None
    stall_at: int | None = None
    flip_at: int | None = None
    whole: bool = False
    claims: int | None = None
    wait_s: float = 0.0
    chunked: bool = False
    moved_to: str = ""
    garbage: bytes = b""
    last: bool = False
    """The answer says that the connection ends with it."""


@dataclass
class Bucket:
    """Contents by key; `asked` has (key, first byte asked for, token sent) of every request."""

    contents: dict[str, bytes] = field(default_factory=dict)
    harms: list[Harm] = field(default_factory=list)
    always: Harm = Harm()
    harm_at: Callable[[int], Harm] | None = None
    """What happens to an answer that begins at this byte; None: as `harms` and `always` say."""
    asked: list[tuple[str, int, str | None]] = field(default_factory=list)
    url: str = ""
    good: str = "1"
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def wanted(self, key: str, data: bytes | None = None, **more: Any) -> RemoteFile:
        """A file of it, as a store tells of one."""
        if data is not None:
            self.contents[key] = data
        held = self.contents[key]
        told: dict[str, Any] = {
            "uuid": str(UUID(bytes=sha256(key.encode()).digest()[:16])),
            "version": VERSION,
            "name": key,
            "sha256": sha256(held).hexdigest(),
            "size": len(held),
            "url": self.signed(key),
        }
        return RemoteFile(**told | more)

    def signed(self, key: str) -> str:
        """A URL that is good until `good` changes."""
        return f"{self.url}/{key}?signature={self.good}"

    def next_harm(self, first: int) -> Harm:
        if self.harm_at is not None:
            return self.harm_at(first)
        with self.lock:
            return self.harms.pop(0) if self.harms else self.always


@contextmanager
def served() -> Iterator[Bucket]:
    """A bucket that listens."""
    bucket = Bucket()

    class Handler(_Handler):
        held = bucket

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    bucket.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up is part of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: Bucket

    def setup(self) -> None:
        super().setup()
        self.held.connections += 1

    def do_GET(self) -> None:
        path, _, query = self.path[1:].partition("?")
        first, last = self._range()
        self.held.asked.append((path, first, self.headers.get("Authorization")))
        harm = self.held.next_harm(first)
        time.sleep(harm.wait_s)
        if harm.garbage:
            self.wfile.write(harm.garbage)
            self._hang_up()
        elif harm.moved_to:
            self._say(307, {"Location": harm.moved_to})
        elif harm.status or query != f"signature={self.held.good}":
            more = {} if harm.retry_after is None else {"Retry-After": str(harm.retry_after)}
            self._say(harm.status or 403, more)
        else:
            self._answer(self.held.contents[path], first, last, harm)

    def _answer(self, data: bytes, first: int, last: int | None, harm: Harm) -> None:
        ranged = "Range" in self.headers and not harm.whole
        first = first if ranged else 0
        end = len(data) if last is None or not ranged else min(last + 1, len(data))
        body = bytearray(data[first:end])
        if harm.flip_at is not None and first <= harm.flip_at < end:
            body[harm.flip_at - first] ^= 1
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(data)}")
        if harm.last:
            self.send_header("Connection", "close")
        if harm.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(harm.claims or len(body)))
        self.end_headers()
        if harm.chunked:
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), bytes(body)))
        elif harm.stall_at is not None:
            self.wfile.write(body[: harm.stall_at])
            self.wfile.flush()
            self.held.stalled.set()
            self.held.go_on.wait(30)
        else:
            self.wfile.write(body if harm.cut_at is None else body[: harm.cut_at])
        if harm.cut_at is not None or harm.stall_at is not None or harm.claims:
            self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _say(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"no\n")

    def _range(self) -> tuple[int, int | None]:
        said = self.headers.get("Range", "bytes=0-").removeprefix("bytes=")
        first, _, last = said.partition("-")
        return int(first), int(last) if last else None

    def log_message(self, *_: Any) -> None:
        """Nothing."""
