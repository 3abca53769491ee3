"""Connections for presigned URLs, and the failure quota of each stream.

Streams share no quota; otherwise the order of threads would decide whether a file fails.

A presigned URL is its own credential: no token is sent here. There are no retries: the caller knows
what arrived.

Plain addresses without a proxy are requested by the standard library, which costs a quarter of what
the HTTP library costs; errors are those of the HTTP library.
"""

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import cast
from urllib.parse import urlsplit

import httpx

from store_client.errors import StoreError, Unreachable
from store_client.http.pool import (
    STALE_ERRORS,
    BodyReader,
    ConnectionPool,
    OpenSockets,
    load_tls_context,
    tls_files,
    translate_errors,
    user_agent,
)
from store_client.http.retries import ConnectionBroken, RetryableRequest, RetryPolicy
from store_client.http.urls import Origin, parse_origin, resolve_url, retry_after

HEADROOM = 10
"""The quota never rises more than this above its start: a bucket that went away for good is given
up after minutes, however much came before."""
MIN_BLOCK = 65_536
"""Bytes that count as a block when a connection was cut in its middle."""
MAX_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 120.0
"""Longest wait that a server may ask for."""


class TransferFailure(Exception):
    """A failed attempt; `error` is raised when no retries are left."""

    def __init__(self, error: StoreError, *, retry_after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_s = retry_after_s


class FailureQuota:
    """The remaining retries and the delay of one stream."""

    def __init__(
        self, num_retries: int, min_delay_s: float, *, pause: Callable[[float], None]
    ) -> None:
        self._least_s = min_delay_s
        self._most = num_retries + HEADROOM
        self._pause = pause
        self._furthest = 0
        self.left = num_retries
        self.delay_s = min_delay_s

    def record_block(self, end: int, *, last: bool = False) -> None:
        """Raise the quota after a block, if it is large enough and new.

        Otherwise a server could keep a download busy for ever.
        """
        more = end - self._furthest
        if more <= 0 or (more < MIN_BLOCK and not last):
            return
        self._furthest = end
        self.left = min(self.left + 1, self._most)
        self.delay_s = max(self.delay_s / 2, self._least_s)

    def record_failure(self, trouble: TransferFailure) -> None:
        """Wait before a retry; raises the error if no retries are left."""
        if self.left <= 0:
            raise trouble.error
        self.left -= 1
        wait_s = max(self.delay_s, min(trouble.retry_after_s, MAX_RETRY_AFTER_S))
        # A minimum of nothing would stay nothing when doubled.
        longest = max(MAX_DELAY_S, self._least_s)
        self.delay_s = min(max(self.delay_s * 2, 0.01), longest)
        self._pause(wait_s)


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
        with _raise_as_httpx():
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
            with _raise_as_httpx():
                connection.request("GET", path, headers={"User-Agent": self._user_agent, **headers})
                return DirectResponse(connection.getresponse())
        except BaseException:
            connection.close()
            raise


@contextlib.contextmanager
def _raise_as_httpx() -> Iterator[None]:
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


SILENCE_S = 60.0
"""Longest wait for the next byte."""
INVALID_URL = "the store sent a download URL that is not an http or https URL"
MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_BLANK = re.compile(r"[\x00-\x20\x7f]")
_RANGE = re.compile(r"bytes (?P<first>\d+)-(?P<last>\d+)/(?P<total>\d+|\*)")


class RangeResponse:
    """One response, its body not yet read."""

    def __init__(
        self, status: int, headers: Mapping[str, str], body: BodyReader | DirectResponse
    ) -> None:
        self.status = status
        self.retry_after_s = retry_after(headers) or 0.0
        self.start = 0
        self.total: int | None = None
        self._body = body
        self.location = headers.get("Location", "") if status in REDIRECTS else ""
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        length = headers.get("Content-Length", "")
        if self.status == httpx.codes.PARTIAL_CONTENT and found:
            self.start = int(found["first"])
            self.total = None if found["total"] == "*" else int(found["total"])
        elif self.status == httpx.codes.OK and length.isascii() and length.isdecimal():
            self.total = int(length)

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer; fewer bytes at the end or where the body breaks off, 0 after it."""
        count = 0
        with contextlib.suppress(httpx.RemoteProtocolError):
            while count < len(buffer) and (size := self._body.read_some(buffer[count:])):
                count += size
        return count


class BucketConnections:
    """Connections to object storage; threads share it."""

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        policy = RetryPolicy(read_s=silence_s)
        self._pool = ConnectionPool(policy, connected=self._mark_connected)
        self._direct = DirectConnections(policy)
        self._has_proxy = has_proxy()
        self._closed = False
        self._thread = threading.local()

    @contextlib.contextmanager
    def get(self, url: str, *, start: int = 0, end: int | None = None) -> Iterator[RangeResponse]:
        """GET bytes [start, end) of a URL; TransferFailure if there is no response."""
        headers = {"Accept-Encoding": "identity"}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        for _ in range(MAX_REDIRECTS + 1):
            with self._open(url, headers) as answer:
                place = answer.location
                if not place:
                    yield answer
                    return
                url = _follow_redirect(url, place)
        raise TransferFailure(Unreachable("the bucket redirects in a loop"))

    def close(self) -> None:
        """Close every connection; reads in progress fail at once."""
        self._closed = True
        self._direct.close()
        self._pool.close()

    @contextlib.contextmanager
    def _open(self, url: str, headers: Mapping[str, str]) -> Iterator[RangeResponse]:
        """Send one request; TransferFailure if there is no response."""
        _check_url(url)
        if self._closed:
            raise TransferFailure(Unreachable("the download has ended"))
        if self._has_proxy or not is_direct(url):
            with contextlib.closing(self._send(url, headers)) as answer:
                yield RangeResponse(answer.status_code, answer.headers, BodyReader(answer))
            return
        with contextlib.ExitStack() as stack:
            try:
                with translate_errors(url):
                    found = stack.enter_context(self._direct.get(url, headers))
            except ConnectionBroken as error:
                raise TransferFailure(Unreachable(str(error), hint=error.hint)) from error
            except httpx.InvalidURL as error:
                raise StoreError(INVALID_URL) from error
            yield RangeResponse(found.status, found.headers, found)

    def _send(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        self._thread.connected = False
        try:
            return self._pool.send(RetryableRequest("GET", url, headers, limit=None))
        except ConnectionBroken as error:
            if not self._thread.connected and isinstance(error.__cause__, STALE_ERRORS):
                # The server closed an idle connection: that is no failure of the file. Each repeat
                # uses up one of them.
                return self._send(url, headers)
            raise TransferFailure(Unreachable(str(error), hint=error.hint)) from error
        except RuntimeError as error:  # the pool was closed meanwhile
            if not self._closed:
                raise
            raise TransferFailure(Unreachable("the download has ended")) from error

    def _mark_connected(self) -> None:
        self._thread.connected = True


def _follow_redirect(url: str, place: str) -> str:
    target = resolve_url(url, place)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise TransferFailure(Unreachable("the bucket redirects to an unencrypted address"))
    return target


def _check_url(url: str) -> None:
    try:
        parse_origin(url)[1].encode("idna")
    except ValueError:
        url = ""
    if not url or _BLANK.search(url):
        raise StoreError(INVALID_URL)
