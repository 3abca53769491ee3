"""Requests to providers: to checked addresses only, following nothing, bounded in time and size.

A name is looked up once, each of its addresses is asked about, and what is connected to are the
very addresses that were asked about, under the original name. No proxy of the environment is used.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import httpcore
import orjson

from auth.bounding import FAILURES, Left, Timely, asking, left, whole
from storage.errors import Unavailable

MAX_BYTES = 256 * 1024

Refusal = Callable[[str], str | None]
"""Why nothing may be sent to an address, or None."""


@dataclass(frozen=True)
class Answer:
    """What a provider answered."""

    status: int
    body: bytes

    @property
    def status_code(self) -> int:
        """As HTTP clients call it."""
        return self.status

    def json(self) -> Any:
        """The body; ValueError when it is no JSON."""
        return orjson.loads(self.body)

    def raise_for_status(self) -> NoReturn:
        """What HTTP clients do with an answer that cannot be used, whatever its status."""
        raise Unavailable(f"A provider answered {self.status}, or no JSON object")

    def object(self) -> Mapping[str, Any]:
        """The JSON object of a good answer; Unavailable for anything else."""
        try:
            found = self.json()
        except ValueError:
            found = None
        if self.status == 200 and isinstance(found, dict):
            return found
        return self.raise_for_status()


@dataclass(frozen=True)
class Outgoing:
    """How providers are reached: which addresses are refused, and how long an answer may take."""

    refusal: Refusal
    timeout_s: float = 10.0
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """One request, one answer; Unavailable when there is none that can be used."""
        deadline = time.monotonic() + self.timeout_s
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self.timeout_s)
        with (
            _translated(url),
            httpcore.ConnectionPool(
                self.trust, network_backend=_Guarded(self.refusal, deadline), retries=0
            ) as pool,
            pool.stream(
                method,
                url,
                headers=asking(headers),
                content=body,
                extensions={"timeout": timeouts},
            ) as answer,
        ):
            return Answer(answer.status, whole(answer.iter_stream(), MAX_BYTES))


class Refused(OSError):
    """An address that nothing may be sent to."""


class _Guarded(httpcore.NetworkBackend):
    """Connects to checked addresses until a deadline."""

    def __init__(self, refusal: Refusal, deadline: float) -> None:
        self._refusal = refusal
        self._left: Left = partial(left, deadline)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """To the first address of the name that answers, if none of them is refused."""
        failed: Exception = OSError("no address")
        for address in self._checked(host, port):
            left_s = self._left(timeout)
            try:
                made = httpcore.SyncBackend().connect_tcp(address, port, left_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            return Timely(made, self._left)
        raise failed

    def _checked(self, host: str, port: int) -> list[str]:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(address[0]) for *_, address in rows))
        for address in found:
            if reason := self._refusal(address):
                raise Refused(f"The name leads to a {reason} address")
        return found


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """No URL with its query is told: a callback's may hold a code."""
    try:
        yield
    except FAILURES as error:
        where = url.partition("?")[0]
        raise Unavailable(f"{where} cannot be read: {type(error).__name__}") from error
