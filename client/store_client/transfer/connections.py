"""Connections for presigned URLs, and the failure quota of each stream.

Streams share no quota; otherwise the order of threads would decide whether a file fails.

A presigned URL is its own credential: no token is sent here. There are no retries: the caller knows
what arrived. The session's HTTP client is not used because it copies every byte several times.
"""

import contextlib
import http.client
import re
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from store_client.errors import StoreError, Unreachable

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


CONNECT_S = 10.0
SILENCE_S = 60.0
"""Longest wait for the next byte."""
MAX_REDIRECTS = 3
MAX_IDLE = 64
IDLE_S = 20.0
"""Age of silence at which servers may have closed a connection."""

_BLANK = re.compile(r"[\x00-\x20\x7f]")
_RANGE = re.compile(r"bytes (?P<first>\d+)-(?P<last>\d+)/(?P<total>\d+|\*)")

Key = tuple[str, str, int, str]


class RangeResponse:
    """One response, its body not yet read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = response.headers
        self.start = 0
        self.total: int | None = None
        found = _RANGE.fullmatch(response.headers.get("Content-Range") or "")
        if self.status == 206 and found:
            self.start = int(found["first"])
            self.total = None if found["total"] == "*" else int(found["total"])
        elif self.status == 200 and response.length is not None:
            self.total = response.length

    def readinto(self, buffer: memoryview) -> int:
        """Read bytes into a buffer; 0 at the end."""
        return self._response.readinto(buffer)

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can be used again."""
        response = self._response
        ended = response.isclosed() and response.length in (0, None)
        return ended and not response.will_close

    @property
    def retry_after_s(self) -> float:
        """Seconds of Retry-After, 0 if there is none."""
        said = self.headers.get("Retry-After", "")
        return float(said) if said.isdecimal() and len(said) < 6 else 0.0


class BucketConnections:
    """Connections to object storage; threads share it."""

    def __init__(
        self,
        *,
        silence_s: float = SILENCE_S,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        self._silence_s = silence_s
        self._proxies = getproxies() if proxies is None else dict(proxies)
        self._lock = threading.Lock()
        self._idle: dict[Key, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._open: set[http.client.HTTPConnection] = set()
        self._closed = False
        self._tls: ssl.SSLContext | None = None

    @contextlib.contextmanager
    def get(self, url: str, *, start: int = 0, end: int | None = None) -> Iterator[RangeResponse]:
        """GET bytes [start, end) of a URL; TransferFailure if there is no response."""
        headers = {}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        for _ in range(MAX_REDIRECTS + 1):
            with self._request(url, headers) as answer:
                place = answer.headers.get("Location")
                if answer.status not in (301, 302, 303, 307, 308) or not place:
                    yield answer
                    return
                url = _follow_redirect(url, place)
        raise TransferFailure(Unreachable("the bucket redirects without end"))

    def close(self) -> None:
        """Close every connection; reads in progress fail at once."""
        with self._lock:
            self._closed = True
            idle = [connection for kept in self._idle.values() for _, connection in kept]
            self._idle.clear()
            busy = self._open.difference(idle)
            self._open.clear()
        for connection in idle:
            connection.close()
        for connection in busy:
            # Who reads from it closes it.
            _shut_down(connection)

    @contextlib.contextmanager
    def _request(self, url: str, headers: Mapping[str, str]) -> Iterator[RangeResponse]:
        key, target, more = self._route(url)
        connection, response = self._send(key, target, {**headers, **more})
        answer = RangeResponse(response)
        try:
            yield answer
        finally:
            if answer.is_reusable:
                self._return_idle(key, connection)
            else:
                self._discard(connection)
            response.close()

    def _send(
        self, key: Key, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send on an idle connection, or on a new one if that is stale."""
        kept = self._take_idle(key)
        if kept is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return kept, _exchange(kept, target, headers)
            self._discard(kept)
        connection = self._open_connection(key)
        try:
            return connection, _exchange(connection, target, headers)
        except (OSError, http.client.HTTPException) as error:
            self._discard(connection)
            raise TransferFailure(_connection_error(key, error)) from error

    def _take_idle(self, key: Key) -> http.client.HTTPConnection | None:
        with self._lock:
            while found := self._idle.get(key):
                since, connection = found.pop()
                if time.monotonic() - since < IDLE_S:
                    return connection
                self._open.discard(connection)
                connection.close()
        return None

    def _return_idle(self, key: Key, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if not self._closed and len(idle) < MAX_IDLE:
                idle.append((time.monotonic(), connection))
                return
        self._discard(connection)

    def _discard(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _open_connection(self, key: Key) -> http.client.HTTPConnection:
        scheme, host, port, proxy = key
        made = self._build_connection(scheme, host, port, proxy)
        with self._lock:
            if not self._closed:
                self._open.add(made)
                return made
        raise TransferFailure(Unreachable("the download has ended"))

    def _build_connection(
        self, scheme: str, host: str, port: int, proxy: str
    ) -> http.client.HTTPConnection:
        through = urlsplit(proxy)
        at, number = (through.hostname or "", through.port or 80) if proxy else (host, port)
        if scheme == "http":
            return _HttpConnection(at, number, timeout=CONNECT_S, silence_s=self._silence_s)
        with self._lock:
            self._tls = self._tls or httpx.create_ssl_context()
        secure = _HttpsConnection(
            at, number, timeout=CONNECT_S, context=self._tls, silence_s=self._silence_s
        )
        if proxy:
            secure.set_tunnel(host, port, headers=_proxy_credentials(through))
        return secure

    def _route(self, url: str) -> tuple[Key, str, dict[str, str]]:
        """The connection key, request target and headers of a URL."""
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
            host = (parts.hostname or "").encode("idna").decode()
        except (KeyError, ValueError):
            raise _bad_url() from None
        if not host or _BLANK.search(host):
            raise _bad_url()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        proxy = self._proxies.get(parts.scheme, "")
        if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
            return (parts.scheme, host, port, ""), target, {}
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        key = (parts.scheme, host, port, proxy)
        if parts.scheme == "https":
            return key, target, {}
        return key, url.partition("#")[0], _proxy_credentials(urlsplit(proxy))


class _SilenceTimeout:
    """Sets the read time-out once connected."""

    def __init__(self, *given: Any, silence_s: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._silence_s = silence_s

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(self._silence_s)  # type: ignore[attr-defined]
        # http.client lets go of its own when an answer ends the connection, while it is still read.
        self.live = self.sock  # type: ignore[attr-defined]


class _HttpConnection(_SilenceTimeout, http.client.HTTPConnection):
    pass


class _HttpsConnection(_SilenceTimeout, http.client.HTTPSConnection):
    pass


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request("GET", target, headers=dict(headers))
    return connection.getresponse()


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """Wake a thread that reads; closing alone would not."""
    with contextlib.suppress(OSError, AttributeError):
        connection.live.shutdown(2)  # type: ignore[attr-defined]


def _follow_redirect(url: str, place: str) -> str:
    target = urljoin(url, place)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise TransferFailure(
            Unreachable("the bucket redirects to where bytes would come unencrypted")
        )
    return target


def _bad_url() -> StoreError:
    return StoreError("the store gave a URL that is none of http or https")


def _connection_error(key: Key, error: Exception) -> Unreachable:
    """Never names the path: a presigned URL is a secret."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Unreachable(f"no answer from {key[1]}:{key[2]}: {said}")


def _proxy_credentials(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    said = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(said.encode()).decode()}"}
