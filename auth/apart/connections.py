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

from auth.bounding import Timely, asking, left, whole

KEPT_S = 4.0
"""Less than the service keeps one that is idle."""
SLOT_S = 0.25
"""How long a question waits for a connection when all are busy: longer ones would take the threads
of those who ask nothing."""
BROKEN = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
"""What a connection may come to that was idle: the service has closed it just now."""


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
        timeouts = {**dict.fromkeys(("connect", "read", "write"), self._timeout_s), "pool": SLOT_S}
        with self._pool.stream(
            method,
            url,
            headers=asking(headers),
            content=body,
            extensions={"timeout": timeouts},
        ) as answer:
            said = {name.lower(): value for name, value in answer.headers}
            retry_after = said.get(b"retry-after", b"").decode("ascii", "replace")
            return Answer(answer.status, whole(answer.iter_stream(), most), retry_after)


class _Deadline(threading.local):
    """When the question of this thread has to be answered."""

    at: float = 0.0

    def left(self, timeout: float | None) -> float:
        return left(self.at, timeout)


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
        return Timely(made, self._deadline.left)
