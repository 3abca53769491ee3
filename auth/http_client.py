"""HTTP client with a deadline, a size limit, optional keep-alive and an optional SSRF guard.

A socket's timeout starts anew with every byte, so each read looks at the deadline of the whole
request instead. Connections are shared between threads, so the deadline belongs to the thread.

The guard resolves a host name once, checks every address, and connects to those same addresses:
DNS rebinding has no effect. Proxies of the environment are ignored, redirects are not followed.
"""

import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import httpcore
import orjson

from storage.errors import Unavailable

KEEPALIVE_S = 4.0
"""Shorter than the idle timeout of the authorization service."""
POOL_WAIT_S = 0.25
"""How long a request waits for a connection when all are busy, before it fails."""
MAX_RESPONSE_BYTES = 256 * 1024

REQUEST_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    OSError,
    ValueError,
)
STALE_CONNECTION_ERRORS = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
"""Errors of an idle connection that the server has just closed."""

AddressCheck = Callable[[str], str | None]
"""Return why an IP address is blocked, or None if it is allowed."""


@dataclass(frozen=True)
class HttpResponse:
    """A complete response, whatever its status; `url` is without its query."""

    url: str
    status: int
    body: bytes
    retry_after: str = ""

    @property
    def status_code(self) -> int:
        """The status, by the name that Authlib reads."""
        return self.status

    def json(self) -> Any:
        """Parse the body; ValueError if it is not JSON."""
        return orjson.loads(self.body)

    def raise_for_status(self) -> NoReturn:
        """Raise Unavailable; Authlib calls this for responses that it cannot use."""
        raise Unavailable(f"{self.url} answered {self.status}, or no JSON object")

    def object(self) -> Mapping[str, Any]:
        """Return the JSON object of a response with status 200; else raise Unavailable."""
        try:
            document = self.json()
        except ValueError:
            document = None
        if self.status == 200 and isinstance(document, dict):
            return document
        return self.raise_for_status()


@dataclass(frozen=True)
class HttpStream:
    """A response whose body is read in blocks; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    blocks: Iterator[bytes]


class HttpClient:
    """Sends requests for many threads, each within `timeout_s` from start to last byte.

    With `connections`, it keeps so many open and repeats a request when an idle connection turns
    out to be closed: then requests must be idempotent. Without, every request has its own.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        connections: int | None = None,
        check_address: AddressCheck | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._deadline = _ThreadDeadline()
        self._backend = _Backend(self._deadline, check_address)
        self._tls = ssl.create_default_context()
        self._pool = self._create_pool(connections) if connections else None
        # Also closes the connections when the client is garbage collected.
        self.close = weakref.finalize(self, self._pool.close if self._pool else lambda: None)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> HttpResponse:
        """Send a request; Unavailable without a complete response of `max_bytes` in time."""
        self._deadline.at = time.monotonic() + self._timeout_s
        try:
            if self._pool is None:
                with self._create_pool() as pool:
                    return self._send(pool, method, url, headers, body, max_bytes)
            try:
                return self._send(self._pool, method, url, headers, body, max_bytes)
            except STALE_CONNECTION_ERRORS:
                return self._send(self._pool, method, url, headers, body, max_bytes)
        except REQUEST_FAILURES as error:
            raise _make_unavailable(url, error) from error

    @contextmanager
    def stream(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator["HttpStream"]:
        """Send a request and yield the response, whose body may be of any size and duration.

        Each step takes at most `timeout_s`. Unavailable if one fails.
        """
        with ExitStack() as stack:
            try:
                self._deadline.at = time.monotonic() + self._timeout_s
                pool = self._pool or stack.enter_context(self._create_pool())
                sent = [*{"Accept-Encoding": "identity", **headers}.items()]
                timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout_s)
                response = stack.enter_context(
                    pool.stream(method, url, headers=sent, extensions={"timeout": timeouts})
                )
            except REQUEST_FAILURES as error:
                raise _make_unavailable(url, error) from error
            received = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            }
            yield HttpStream(response.status, received, self._read_blocks(url, response))

    def _read_blocks(self, url: str, response: httpcore.Response) -> Iterator[bytes]:
        blocks = response.iter_stream()
        while True:
            # The thread that reads may be another one than that which sent the request.
            self._deadline.at = time.monotonic() + self._timeout_s
            try:
                block = next(blocks, None)
            except REQUEST_FAILURES as error:
                raise _make_unavailable(url, error) from error
            if block is None:
                return
            yield block

    def _send(
        self,
        pool: httpcore.ConnectionPool,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        max_bytes: int,
    ) -> HttpResponse:
        timeouts = {
            **dict.fromkeys(("connect", "read", "write"), self._timeout_s),
            "pool": POOL_WAIT_S,
        }
        # No compression: the size of what is unpacked would have no bound.
        accept = {"Accept": "application/json", "Accept-Encoding": "identity"}
        with pool.stream(
            method,
            url,
            headers=[*{**accept, **headers}.items()],
            content=body,
            extensions={"timeout": timeouts},
        ) as response:
            received = {name.lower(): value for name, value in response.headers}
            content = _read_bounded(response.iter_stream(), max_bytes)
            retry_after = received.get(b"retry-after", b"").decode("ascii", "replace")
            return HttpResponse(_without_query(url), response.status, content, retry_after)

    def _create_pool(self, connections: int | None = None) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            self._tls,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=KEEPALIVE_S,
            retries=0,
            network_backend=self._backend,
        )


def _make_unavailable(url: str, error: Exception) -> Unavailable:
    return Unavailable(f"{_without_query(url)} cannot be read: {type(error).__name__}")


def _without_query(url: str) -> str:
    """Return what error messages may name: a query may contain an authorization code."""
    return url.partition("?")[0]


def _read_bounded(chunks: Iterable[bytes], max_bytes: int) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            raise ValueError("too large")
    return bytes(body)


class _ThreadDeadline(threading.local):
    """When this thread's request must be complete, in seconds of `time.monotonic`."""

    at: float = 0.0

    def remaining_s(self, timeout: float | None) -> float:
        """Shorten a timeout to the deadline; httpcore.ReadTimeout if it has passed."""
        remaining_s = self.at - time.monotonic()
        if remaining_s <= 0:
            raise httpcore.ReadTimeout("too slow")
        return remaining_s if timeout is None else min(remaining_s, timeout)


class BlockedAddressError(OSError):
    """The SSRF guard blocks an address of the host."""


class _Backend(httpcore.NetworkBackend):
    """Connects within the deadline, and only to addresses that the guard allows."""

    def __init__(self, deadline: _ThreadDeadline, check_address: AddressCheck | None) -> None:
        self._deadline = deadline
        self._check_address = check_address
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of the host that accepts."""
        failure: Exception = OSError("no address")
        for address in self._resolve_addresses(host, port):
            remaining_s = self._deadline.remaining_s(timeout)
            try:
                stream = self._backend.connect_tcp(
                    address, port, remaining_s, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            return _DeadlineStream(stream, self._deadline)
        raise failure

    def _resolve_addresses(self, host: str, port: int) -> list[str]:
        if self._check_address is None:
            return [host]
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in rows))
        for address in addresses:
            if reason := self._check_address(address):
                raise BlockedAddressError(f"The host has a {reason} address")
        return addresses


class _DeadlineStream(httpcore.NetworkStream):
    """A connection whose every read and write ends by the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _ThreadDeadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.remaining_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.remaining_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        remaining_s = self._deadline.remaining_s(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, remaining_s)
        return _DeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
