"""The HTTP connection pool; response bodies are bounded, failures translated.

A kilobyte of gzip can decode to a megabyte, and a megabyte of JSON can need hundreds in memory. So
decoded bytes are counted, and the number of JSON values, too.

This module imports the HTTP library; it is loaded with the first request, so that commands start
fast.
"""

import contextlib
import functools
import importlib.metadata
import logging
import os
import socket
import ssl
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from store_client.errors import Damaged, Unreachable
from store_client.http.retries import (
    MAX_ANSWER,
    MAX_JSON_VALUES,
    MAX_SMALL_ANSWER,
    ConnectionBroken,
    RetryableRequest,
    RetryPolicy,
)
from store_client.http.urls import strip_query

DECODE_CHUNK = 64 * 1024
"""Bytes that are decoded at once."""


def limit_body(answer: httpx.Response, limit: int) -> None:
    """Decode and count the body of a response while it is read.

    Damaged beyond `limit` bytes. The body of an error is cut off instead: its status says enough.
    """
    stream = answer.stream
    if isinstance(stream, httpx.SyncByteStream) and not answer.is_stream_consumed:
        answer.stream = _LimitedStream(stream, answer, limit)
        if "Content-Encoding" in answer.headers:
            del answer.headers["Content-Encoding"]


class _LimitedStream(httpx.SyncByteStream):
    """The decoded body of a response."""

    def __init__(self, stream: httpx.SyncByteStream, answer: httpx.Response, limit: int) -> None:
        self._stream = stream
        self._where = strip_query(str(answer.url))
        self._encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        self._is_error = answer.status_code >= httpx.codes.BAD_REQUEST
        self._limit = min(limit, MAX_SMALL_ANSWER) if self._is_error else limit

    def __iter__(self) -> Iterator[bytes]:
        size = values = 0
        for piece in self._decode():
            size += len(piece)
            values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
            if size > self._limit or values > MAX_JSON_VALUES:
                if self._is_error:
                    return
                what = f"{self._limit} bytes" if size > self._limit else f"{MAX_JSON_VALUES} values"
                raise Damaged(
                    f"the answer of {self._where} has more than {what}",
                    hint="check the URL, or request less at once",
                )
            yield piece

    def close(self) -> None:
        """Close the response, and its connection if it was not read to the end."""
        self._stream.close()

    def _decode(self) -> Iterator[bytes]:
        if self._encoding in ("identity", ""):
            return iter(self._stream)
        if self._encoding in ("gzip", "x-gzip"):
            return self._inflate()
        if self._is_error:
            return iter(())
        raise Damaged(f"the answer of {self._where} has an unsupported Content-Encoding")

    def _inflate(self) -> Iterator[bytes]:
        """Decompress a body of one or more gzip members."""
        decoder = _gzip_decoder()
        came = False
        try:
            for piece in self._stream:
                came = came or bool(piece)
                while piece:
                    if decoder.eof:
                        decoder = _gzip_decoder()
                    yield decoder.decompress(piece, DECODE_CHUNK)
                    piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        except zlib.error as error:
            raise Damaged(f"the answer of {self._where} is not valid gzip: {error}") from error
        if came and not decoder.eof:
            raise Damaged(f"the answer of {self._where} breaks off")


def _gzip_decoder() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


DIRECT_FROM = 256 * 1024
"""Bytes of a body that are worth bypassing the library."""
_WAY_TO_COUNTER = ("_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state", "_reader")
"""Attributes from a response's stream to the object that counts the bytes of its body."""


class BodyReader:
    """Reads the body of a response as it was sent; raises the errors of the HTTP library."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.iter_raw()
        self._piece = memoryview(b"")
        self._left = int(response.headers.get("Content-Length", -1))
        self._direct: DirectBody | None = None

    def read_some(self, buffer: memoryview) -> int:
        """Read some bytes into a buffer; 0 at the end."""
        if self._direct:
            size = self._direct.readinto(buffer)
        else:
            self._piece = self._piece or memoryview(next(self._pieces, b""))
            size = min(len(self._piece), len(buffer))
            buffer[:size] = self._piece[:size]
            self._piece = self._piece[size:]
        self._left -= size
        if not self._left:
            # The connection can be used again once the end was read.
            next(self._pieces, b"")
        elif not self._piece and not self._direct and self._left >= DIRECT_FROM:
            self._direct = DirectBody.take_over(self._response, self._left)
        return size


class DirectBody:
    """The rest of a long body, read from the socket into the caller's buffer.

    The library would copy each byte four times in pieces of 64 KiB, at three times the cost. It has
    to count the bytes that pass it by, or it would not use the connection again; it has no public
    way to do that. Where its inner parts are not as expected, it reads the body itself.
    """

    def __init__(self, found: socket.socket, counter: Any) -> None:
        self._socket, self._counter = found, counter

    @classmethod
    def take_over(cls, response: httpx.Response, left: int) -> "DirectBody | None":
        """Read these last bytes of a body; the library has none of them yet."""
        stream = response.extensions.get("network_stream")
        if stream is None or isinstance(stream.get_extra_info("ssl_object"), ssl.SSLObject):
            return None  # TLS through a TLS proxy: its socket has bytes that are still encrypted
        counter: Any = response.stream
        for name in _WAY_TO_COUNTER:
            counter = getattr(counter, name, None)
        if getattr(counter, "_remaining", None) != left:
            return None
        return cls(stream.get_extra_info("socket"), counter)

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes; 0 at the end."""
        wanted = buffer[: self._counter._remaining]
        try:
            count = self._socket.recv_into(wanted)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error
        if wanted and not count:
            raise httpx.RemoteProtocolError("the body breaks off")
        self._counter._remaining -= count
        return count


# Otherwise a program that logs at DEBUG would log presigned URLs. A level that was set stays.
for _library in map(logging.getLogger, ("httpx", "httpcore")):
    if _library.level == logging.NOTSET:
        _library.setLevel(logging.WARNING)


STALE_ERRORS = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""Failures of a request on a connection that the server closed meanwhile."""


def tls_files() -> tuple[str | None, str | None]:
    """The file and the folder of certificates that the environment names."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


@functools.lru_cache(maxsize=4)
def load_tls_context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The TLS context for these certificate settings; cached, for loading is slow."""
    return httpx.create_ssl_context()


class ConnectionPool:
    """A pool of connections; threads share it. `connected` is called in a thread that connects."""

    def __init__(
        self,
        policy: RetryPolicy,
        transport: httpx.BaseTransport | None = None,
        *,
        connected: Callable[[], None] | None = None,
    ) -> None:
        self._connected = connected
        self._sockets = OpenSockets()
        self._client = httpx.Client(
            verify=load_tls_context(*tls_files()),
            timeout=httpx.Timeout(
                connect=policy.connect_s, read=policy.read_s, write=policy.write_s, pool=None
            ),
            limits=httpx.Limits(
                max_connections=policy.connections,
                max_keepalive_connections=policy.connections,
                keepalive_expiry=5.0,
            ),
            follow_redirects=False,
            transport=transport,
            # What is decoded in bounded memory, see `bodies`.
            headers={"User-Agent": user_agent(), "Accept-Encoding": "gzip"},
            # What one answer leaves behind is nothing to the next request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    def send(self, request: RetryableRequest) -> httpx.Response:
        """Send a request once; the caller closes the unread response. ConnectionBroken."""
        with translate_errors(request.url):
            built = self._client.build_request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.content() if request.content else None,
                extensions={"trace": self._watch_sockets},
            )
            answer = self._client.send(built, stream=True)
        if request.limit is not None or answer.status_code >= httpx.codes.MULTIPLE_CHOICES:
            limit_body(answer, MAX_ANSWER if request.limit is None else request.limit)
        return answer

    def read_body(self, answer: httpx.Response) -> None:
        """Read the whole body, and return the connection. ConnectionBroken."""
        try:
            with translate_errors(str(answer.url)):
                answer.read()
        finally:
            answer.close()

    @contextlib.contextmanager
    def stream_body(self, answer: httpx.Response) -> Iterator[httpx.Response]:
        """Let the caller read a body piece by piece; failures are Unreachable."""
        try:
            with translate_errors(str(answer.url)):
                yield answer
        except ConnectionBroken as error:
            raise Unreachable(str(error), hint=error.hint) from error
        finally:
            answer.close()

    def close(self) -> None:
        """Close all connections; reads in progress fail at once."""
        self._sockets.shut_down()
        self._client.close()

    def _watch_sockets(self, event: str, info: Mapping[str, Any]) -> None:
        # Behind a proxy the second one is `proxy.start_tls.complete`.
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            if self._connected is not None:
                self._connected()
            self._sockets.add(info["return_value"].get_extra_info("socket"))


class OpenSockets:
    """Sockets that are shut down together, those that are opened later, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._ended = False

    def add(self, found: socket.socket) -> None:
        with self._lock:
            self._sockets.add(found)
            if self._ended:
                shut_down(found)

    def shut_down(self) -> None:
        """Shut all sockets down; reads in progress fail at once."""
        with self._lock:
            self._ended = True
            for one in self._sockets:
                shut_down(one)


def shut_down(found: socket.socket) -> None:
    """Wake a thread that reads; closing alone would not."""
    with contextlib.suppress(OSError):
        found.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Raise the errors of the HTTP library as ConnectionBroken."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConnectionBroken(
            f"{strip_query(url)} is not an http or https URL", sent=False, permanent=True
        ) from error
    except (httpx.LocalProtocolError, UnicodeError):
        # The text of that error may hold a token.
        raise ConnectionBroken(
            f"the request to {strip_query(url)} cannot be sent: a header has invalid characters",
            sent=False,
            permanent=True,
            hint="is the token complete, without other text?",
        ) from None
    except httpx.HTTPError as error:
        raise describe_failure(url, error) from error


def describe_failure(url: str, error: httpx.HTTPError) -> ConnectionBroken:
    """Describe a failure of the HTTP library in words for users."""
    host = httpx.URL(url).netloc.decode()
    causes = list(_cause_chain(error))
    if found := next((one for one in causes if isinstance(one, ssl.SSLError)), None):
        return _tls_failure(host, found)
    if none := next((one for one in causes if isinstance(one, socket.gaierror)), None):
        return _dns_failure(host, none)
    if any(isinstance(one, ConnectionRefusedError) for one in causes):
        text = f"no connection to {host}: nothing listens there"
        return ConnectionBroken(text, sent=False, hint=RUNNING_HINT, refused=True)
    before = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        doing = "connection to" if before else "answer from"
        return ConnectionBroken(f"no {doing} {host} in time", sent=not before, hint=NETWORK_HINT)
    if before:
        return ConnectionBroken(f"no connection to {host}: {text}", sent=False, hint=RUNNING_HINT)
    return ConnectionBroken(f"the connection to {host} broke: {text}", sent=True, hint=NETWORK_HINT)


NETWORK_HINT = "check the network, then try again"
RUNNING_HINT = "check the URL and that the store runs: `store doctor`"


def _tls_failure(host: str, error: ssl.SSLError) -> ConnectionBroken:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionBroken(
            f"the certificate of {host} is not valid: {error.verify_message}",
            sent=False,
            permanent=True,
            hint="check the URL; SSL_CERT_FILE names the certificates of a private authority",
        )
    return ConnectionBroken(
        f"no encrypted connection to {host}: {error.reason or error}",
        sent=True,
        # Something that speaks no TLS will not do so the next time.
        permanent=error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"),
        hint="does the URL begin with http:// instead of https://?",
    )


def _dns_failure(host: str, error: socket.gaierror) -> ConnectionBroken:
    return ConnectionBroken(
        f"cannot find the host {host}: {error.strerror or error}",
        sent=False,
        permanent=error.errno != socket.EAI_AGAIN,
        hint="check the URL; `store profiles` lists the saved URLs",
    )


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


@functools.cache
def user_agent() -> str:
    """The name and version by which servers know the client."""
    try:
        version = importlib.metadata.version("consortium-store-client")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    return f"store-client/{version}"
