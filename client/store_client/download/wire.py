"""Bytes of signed URLs: connections kept open, answers read into buffers of the caller's.

A signed URL carries all the leave that it needs: no token of ours is ever sent here. There are no
retries either: who reads knows what has come and what that is worth. The session's own client is
not used because it copies every byte several times.
"""

import contextlib
import http.client
import re
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from store_client.download.quota import Trouble
from store_client.errors import StoreError, Unreachable

CONNECT_S = 10.0
SILENCE_S = 60.0
"""Longest wait for the next byte."""
MOST_REDIRECTS = 3
MOST_IDLE = 64
IDLE_S = 20.0
"""Age of silence at which servers may have closed a connection."""

_BLANK = re.compile(r"[\x00-\x20\x7f]")
_RANGE = re.compile(r"bytes (?P<first>\d+)-(?P<last>\d+)/(?P<total>\d+|\*)")

Key = tuple[str, str, int, str]


class Answer:
    """One answer, its body not yet read."""

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
        """Bytes read, as many as fit; 0 at the end of what came."""
        return self._response.readinto(buffer)

    @property
    def read_whole(self) -> bool:
        """Whether the connection is ready for another request."""
        response = self._response
        ended = response.isclosed() and response.length in (0, None)
        return ended and not response.will_close

    @property
    def retry_after_s(self) -> float:
        """What the server asks to be waited, 0 when nothing."""
        said = self.headers.get("Retry-After", "")
        return float(said) if said.isdecimal() and len(said) < 6 else 0.0


class Wire:
    """Connections to buckets; used by many threads."""

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
    def get(self, url: str, *, start: int = 0, end: int | None = None) -> Iterator[Answer]:
        """The answer to a GET of bytes [start, end); Trouble when none comes."""
        headers = {}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        for _ in range(MOST_REDIRECTS + 1):
            with self._asked(url, headers) as answer:
                place = answer.headers.get("Location")
                if answer.status not in (301, 302, 303, 307, 308) or not place:
                    yield answer
                    return
                url = _followed(url, place)
        raise Trouble(Unreachable("the bucket redirects without end"))

    def close(self) -> None:
        """Close every connection; who reads from one fails at once."""
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
            _abort(connection)

    @contextlib.contextmanager
    def _asked(self, url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
        key, target, more = self._route(url)
        connection, response = self._sent(key, target, {**headers, **more})
        answer = Answer(response)
        try:
            yield answer
        finally:
            if answer.read_whole:
                self._give_back(key, connection)
            else:
                self._drop(connection)
            response.close()

    def _sent(
        self, key: Key, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """An answer on a connection that was kept, else, when that has gone, on a new one."""
        kept = self._kept(key)
        if kept is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return kept, _exchanged(kept, target, headers)
            self._drop(kept)
        connection = self._connection(key)
        try:
            return connection, _exchanged(connection, target, headers)
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            raise Trouble(_unreachable(key, error)) from error

    def _kept(self, key: Key) -> http.client.HTTPConnection | None:
        with self._lock:
            while found := self._idle.get(key):
                since, connection = found.pop()
                if time.monotonic() - since < IDLE_S:
                    return connection
                self._open.discard(connection)
                connection.close()
        return None

    def _give_back(self, key: Key, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if not self._closed and len(idle) < MOST_IDLE:
                idle.append((time.monotonic(), connection))
                return
        self._drop(connection)

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _connection(self, key: Key) -> http.client.HTTPConnection:
        scheme, host, port, proxy = key
        made = self._made(scheme, host, port, proxy)
        with self._lock:
            if not self._closed:
                self._open.add(made)
                return made
        raise Trouble(Unreachable("the download has ended"))

    def _made(self, scheme: str, host: str, port: int, proxy: str) -> http.client.HTTPConnection:
        through = urlsplit(proxy)
        at, number = (through.hostname or "", through.port or 80) if proxy else (host, port)
        if scheme == "http":
            return _Plain(at, number, timeout=CONNECT_S, silence_s=self._silence_s)
        with self._lock:
            self._tls = self._tls or httpx.create_ssl_context()
        secure = _Secure(
            at, number, timeout=CONNECT_S, context=self._tls, silence_s=self._silence_s
        )
        if proxy:
            secure.set_tunnel(host, port, headers=_proxy_leave(through))
        return secure

    def _route(self, url: str) -> tuple[Key, str, dict[str, str]]:
        """Which connection a URL needs, and what is asked on it."""
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
            host = (parts.hostname or "").encode("idna").decode()
        except (KeyError, ValueError):
            raise _none_of_ours() from None
        if not host or _BLANK.search(host):
            raise _none_of_ours()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        proxy = self._proxies.get(parts.scheme, "")
        if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
            return (parts.scheme, host, port, ""), target, {}
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        key = (parts.scheme, host, port, proxy)
        if parts.scheme == "https":
            return key, target, {}
        return key, url.partition("#")[0], _proxy_leave(urlsplit(proxy))


class _Quiet:
    """After the connection stands, longer silences are borne."""

    def __init__(self, *given: Any, silence_s: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._silence_s = silence_s

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(self._silence_s)  # type: ignore[attr-defined]
        # http.client lets go of its own when an answer ends the connection, while it is still read.
        self.live = self.sock  # type: ignore[attr-defined]


class _Plain(_Quiet, http.client.HTTPConnection):
    pass


class _Secure(_Quiet, http.client.HTTPSConnection):
    pass


def _exchanged(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request("GET", target, headers=dict(headers))
    return connection.getresponse()


def _abort(connection: http.client.HTTPConnection) -> None:
    """Wake whoever waits for bytes; closing alone would not."""
    with contextlib.suppress(OSError, AttributeError):
        connection.live.shutdown(2)  # type: ignore[attr-defined]


def _followed(url: str, place: str) -> str:
    target = urljoin(url, place)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise Trouble(Unreachable("the bucket redirects to where bytes would come unencrypted"))
    return target


def _none_of_ours() -> StoreError:
    return StoreError("the store gave a URL that is none of http or https")


def _unreachable(key: Key, error: Exception) -> Unreachable:
    """Never with the path: a signed URL is a secret."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Unreachable(f"no answer from {key[1]}:{key[2]}: {said}")


def _proxy_leave(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    said = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(said.encode()).decode()}"}
