"""Connections to a service of our own that is asked at every turn: kept open, bounded in number,
each question in time and size. No redirect is followed, no proxy of the environment is used.

The deadline is one question's, however its answer drips in; a kept connection serves many
questions, so the deadline is the asking thread's, and each of its reads looks there.
"""

import ssl
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore

KEPT_S = 4.0
"""Less than the service keeps one that is idle."""
SLOT_S = 0.25
"""How long a question waits for a connection when all are busy: longer ones would take the threads
of those who ask nothing."""
BROKEN = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
"""What a connection may come to that was idle: the service has closed it just now."""
FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    OSError,
    ValueError,
)
"""What asking may end in, instead of an answer."""


@dataclass(frozen=True)
class Answer:
    """What was answered, whatever its status."""

    status: int
    body: bytes
    retry_after: str = ""


class Connections:
    """Asks questions that change nothing, for many threads."""

    def __init__(self, *, connections: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = _Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl.create_default_context(),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=KEPT_S,
            retries=0,
            network_backend=_Backend(self._deadline),
        )
        # Whoever forgets it gives its connections back.
        self.close = weakref.finalize(self, self._pool.close)

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, most: int
    ) -> Answer:
        """One of FAILURES when there is no whole answer of `most` bytes in time."""
        self._deadline.at = time.monotonic() + self._timeout_s
        try:
            return self._once(method, url, headers, body, most)
        except BROKEN:
            return self._once(method, url, headers, body, most)

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, most: int
    ) -> Answer:
        given = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        sent: list[tuple[bytes | str, bytes | str]] = [*given.items()]
        timeouts = {**dict.fromkeys(("connect", "read", "write"), self._timeout_s), "pool": SLOT_S}
        with self._pool.stream(
            method, url, headers=sent, content=body, extensions={"timeout": timeouts}
        ) as answer:
            said = {name.lower(): value for name, value in answer.headers}
            retry_after = said.get(b"retry-after", b"").decode("ascii", "replace")
            return Answer(answer.status, _bounded(answer.iter_stream(), most), retry_after)


class _Deadline(threading.local):
    """When the question of this thread has to be answered."""

    at: float = 0.0

    def left(self, timeout: float | None) -> float:
        left_s = self.at - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout("too slow")
        return left_s if timeout is None else min(left_s, timeout)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline
        self._made = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._deadline.left(timeout)
        made = self._made.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(made, self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._deadline.left(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _bounded(chunks: Iterable[bytes], most: int) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise ValueError("too large")
    return bytes(body)
