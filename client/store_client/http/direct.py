"""GET requests by the standard library, for files that are read straight from object storage.

They cost a quarter of what the HTTP library costs. Only plain addresses without a proxy are
requested this way. Errors are those of the HTTP library.
"""

import contextlib
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import cast
from urllib.parse import urlsplit

import httpx

from store_client.http.pool import (
    STALE_ERRORS,
    OpenSockets,
    load_tls_context,
    tls_files,
    user_agent,
)
from store_client.http.retries import RetryPolicy
from store_client.http.urls import Origin, parse_origin

KEPT_S = 5.0
"""Time for which an idle connection is kept."""
PROXIES = frozenset({"http", "https", "all"})
"""Proxies of the environment that concern object storage."""


def is_direct(url: str) -> bool:
    """Whether a URL is plain: ASCII, and without a password."""
    return url.isascii() and "@" not in urlsplit(url).netloc


def has_proxy() -> bool:
    """Whether the environment names a proxy, maybe not for all hosts."""
    return not PROXIES.isdisjoint(urllib.request.getproxies())


class DirectResponse:
    """One response, its body not yet read."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = cast(Mapping[str, str], response.headers)

    @property
    def is_complete(self) -> bool:
        """Whether the body was read to its end."""
        return self._response.isclosed()

    @property
    def is_last(self) -> bool:
        """Whether the server closes the connection."""
        return self._response.will_close

    def read_some(self, buffer: memoryview) -> int:
        """Read bytes into a buffer; fewer where the body ends or breaks off, then 0."""
        with _translate_errors():
            return self._response.readinto(buffer)

    def close(self) -> None:
        self._response.close()


class DirectConnections:
    """Connections without a proxy; threads share it."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._idle: dict[Origin, list[tuple[HTTPConnection, float]]] = {}
        self._sockets = OpenSockets()
        self._closed = False
        self._user_agent = user_agent()

    @contextlib.contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[DirectResponse]:
        """Send a GET request; httpx.HTTPError if there is no response."""
        origin = parse_origin(url)
        connection, answer = self._send(origin, url, headers)
        try:
            with contextlib.closing(answer):
                yield answer
                is_reusable = answer.is_complete and not answer.is_last
        except BaseException:
            connection.close()
            raise
        if not (is_reusable and self._keep(origin, connection)):
            connection.close()

    def close(self) -> None:
        """Close every connection; reads in progress fail at once."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        self._sockets.shut_down()
        for one in idle.values():
            for connection, _ in one:
                connection.close()

    def _send(
        self, origin: Origin, url: str, headers: Mapping[str, str]
    ) -> tuple[HTTPConnection, DirectResponse]:
        # The server may have closed an idle connection: that is no failure of the file. Each
        # attempt uses up one of them.
        while (connection := self._take_idle(origin)) is not None:
            with contextlib.suppress(*STALE_ERRORS):
                return connection, self._request(connection, url, headers)
        connection = self._connect(origin)
        return connection, self._request(connection, url, headers)

    def _take_idle(self, origin: Origin) -> HTTPConnection | None:
        now = time.monotonic()
        with self._lock:
            idle = self._idle.get(origin, [])
            while idle:
                connection, until = idle.pop()
                if until > now:
                    return connection
                connection.close()
        return None

    def _keep(self, origin: Origin, connection: HTTPConnection) -> bool:
        """Keep an idle connection; whether these are still open."""
        with self._lock:
            if not self._closed:
                until = time.monotonic() + KEPT_S
                self._idle.setdefault(origin, []).append((connection, until))
            return not self._closed

    def _connect(self, origin: Origin) -> HTTPConnection:
        scheme, host, port = origin
        connect_s = self._policy.connect_s
        if scheme == "https":
            context = load_tls_context(*tls_files())
            made: HTTPConnection = HTTPSConnection(host, port, timeout=connect_s, context=context)
        else:
            made = HTTPConnection(host, port, timeout=connect_s)
        try:
            made.connect()
        except TimeoutError as error:
            made.close()
            raise httpx.ConnectTimeout("timed out") from error
        except (OSError, UnicodeError) as error:
            made.close()
            raise httpx.ConnectError(str(error)) from error
        made.sock.settimeout(self._policy.read_s)
        self._sockets.add(made.sock)
        return made

    def _request(
        self, connection: HTTPConnection, url: str, headers: Mapping[str, str]
    ) -> DirectResponse:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            with _translate_errors():
                connection.request("GET", path, headers={"User-Agent": self._user_agent, **headers})
                return DirectResponse(connection.getresponse())
        except BaseException:
            connection.close()
            raise


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise errors of the standard library as those of the HTTP library."""
    try:
        yield
    except TimeoutError as error:
        raise httpx.ReadTimeout("timed out") from error
    except HTTPException as error:
        # Its text has bytes of the server.
        raise httpx.RemoteProtocolError(f"invalid response ({type(error).__name__})") from error
    except OSError as error:
        raise httpx.ReadError(error.strerror or str(error)) from error
    except (ValueError, AttributeError) as error:
        # Another thread closed the connection.
        raise httpx.ReadError("the connection was closed") from error
