"""Gunicorn worker in which slow clients hold no thread that others need."""

import errno
import os
import select
import socket
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from itertools import islice
from selectors import EVENT_READ
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import orjson
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from api.http.errors import PROBLEM_MEDIA_TYPE, REQUEST_ID_HEADER, UNEXPECTED_DETAIL, problem_body
from api.http.permits import Permit, Permits
from api.http.responses import STOPPING_KEY, new_request_id
from config import Settings, process

SENDFILE_BYTES = 1 << 30
GRACE_FRACTION = 0.1
"""Part of a client's time limit during which it does not count as slow."""


@dataclass(frozen=True)
class ClientLimits:
    """How slow a client may be."""

    head_s: float = 20.0
    """Seconds within which the request line and the headers must arrive."""
    patience_s: float = 30.0
    """Seconds that a client may be behind the minimum rate."""
    min_bytes_s: float = 500.0
    """Minimum rate of requests and responses, bytes per second."""


class ClientPatience:
    """A token bucket of seconds: waiting takes from it, bytes refill it."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._count = 0
        self.left_s = limits.patience_s

    def spend(self, seconds: float) -> None:
        """Account for time spent waiting for the client."""
        self.left_s -= seconds

    def earn(self, count: int) -> None:
        """Account for bytes that the client sent or took."""
        limits = self._limits
        self._count += count
        self.left_s = min(limits.patience_s, self.left_s + count / limits.min_bytes_s)

    def measure_rate(self) -> float | None:
        """Return the average rate in bytes per second; None during the first seconds."""
        age_s = time.monotonic() - self._began
        return self._count / age_s if age_s > self._limits.patience_s * GRACE_FRACTION else None


class ClientSocket(socket.socket):
    """A non-blocking socket that behaves like a blocking one towards gunicorn.

    Reading raises TimeoutError when the client is too slow, sending ConnectionResetError. Both have
    an errno that gunicorn does not log as a failure of the server.
    """

    def __init__(self, accepted: socket.socket, limits: ClientLimits) -> None:
        """Take over the file descriptor of an accepted connection."""
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        super().setblocking(False)
        self.permit: Permit | None = None
        self.is_ended = False
        self._is_waiting = False
        self._limits = limits
        self._patience = ClientPatience(limits)
        self._timeout_s: float | None = None

    def begin_request(self) -> None:
        """Start with full patience: the request's headers have arrived."""
        self._patience = ClientPatience(self._limits)

    def is_slower_than(self, bytes_s: float) -> bool:
        """Return whether the request waits for a client with a lower average rate."""
        rate = self._patience.measure_rate() if self._is_waiting else None
        return rate is not None and rate < bytes_s

    def end(self) -> None:
        """Shut the connection down, which wakes the thread that waits for this client."""
        self.is_ended = True
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    # Gunicorn's timeout is only remembered: the file descriptor itself never blocks.

    def setblocking(self, flag: bool, /) -> None:
        """See socket.socket."""
        self._timeout_s = None if flag else 0.0

    def settimeout(self, value: float | None, /) -> None:
        """See socket.socket."""
        self._timeout_s = value

    def gettimeout(self) -> float | None:
        """See socket.socket."""
        return self._timeout_s

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """See socket.socket; TimeoutError when the client is slower than the minimum rate."""
        while True:
            try:
                data = super().recv(bufsize, flags)
            except BlockingIOError:
                if not self._wait(select.POLLIN):
                    raise TimeoutError(errno.ECONNRESET, "The client sends too slowly") from None
                continue
            self._patience.earn(len(data))
            return data

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send everything, because gunicorn does not resend the rest."""
        self.sendall(data, flags)
        return len(data)

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """See socket.socket; ConnectionResetError when the client reads too slowly."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                sent = super().send(rest, flags)
            except BlockingIOError:
                self._wait_to_send()
                continue
            self._patience.earn(sent)
            rest = rest[sent:]

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """See socket.socket; ConnectionResetError when the client reads too slowly."""
        done = 0
        while count is None or done < count:
            step = SENDFILE_BYTES if count is None else min(SENDFILE_BYTES, count - done)
            try:
                sent = os.sendfile(self.fileno(), file.fileno(), offset + done, step)
            except BlockingIOError:
                self._wait_to_send()
                continue
            if not sent:
                break
            self._patience.earn(sent)
            done += sent
        return done

    def _wait_to_send(self) -> None:
        if not self._wait(select.POLLOUT):
            raise ConnectionResetError(errno.ECONNRESET, "The client reads too slowly")

    def _wait(self, event: int) -> bool:
        """Wait for the client without a permit; return whether it was ready in time."""
        if self._timeout_s == 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left_s = self._patience.left_s
        limit_s = left_s if self._timeout_s is None else min(left_s, self._timeout_s)
        if limit_s <= 0:
            return False
        if self.permit is None:
            return self._poll(event, limit_s)
        with self.permit.suspend():
            return self._poll(event, limit_s)

    def _poll(self, event: int, limit_s: float) -> bool:
        poll, began = select.poll(), time.monotonic()
        poll.register(self.fileno(), event)
        self._is_waiting = True
        ready = bool(poll.poll(limit_s * 1000))
        self._is_waiting = False
        self._patience.spend(time.monotonic() - began)
        return ready


MAX_REQUEST_LINE = 8190
"""Maximum bytes of a request line: gunicorn's upper bound, and common in proxies. All URLs that we
create (with page tokens, or the state of a login) are shorter."""

MAX_HEAD_BYTES = 65_536
"""Maximum bytes of a head that the event loop reads; a thread refuses longer ones."""
LINGER_S = 2.0
LINGER_BYTES = 65_536
"""How long, and for how many bytes, a connection is read after its last response."""
CROWDED_RATE_FACTOR = 20
"""While connections are full, clients must reach this multiple of the minimum rate."""
RESERVED_FILES = 256
"""Files that a process has open besides its connections."""

MALFORMED_REQUEST = "Malformed HTTP request"
LINE_TOO_LONG = (
    f"The request line has more than {MAX_REQUEST_LINE} bytes: send long values in the body"
)

REFUSALS: dict[type[Exception], tuple[int, str, str]] = {
    errors.LimitRequestLine: (414, "illegal_arguments", LINE_TOO_LONG),
    errors.LimitRequestHeaders: (431, "illegal_arguments", "Too many headers, or too long ones"),
    errors.ExpectationFailed: (417, "illegal_arguments", "Expect: must be 100-continue"),
    errors.UnsupportedTransferCoding: (501, "illegal_arguments", "Transfer-Encoding: only chunked"),
    errors.InvalidResponseHeader: (500, "internal_error", UNEXPECTED_DETAIL),
    errors.InvalidResponseHeaderName: (500, "internal_error", UNEXPECTED_DETAIL),
    errors.ConfigurationProblem: (500, "internal_error", UNEXPECTED_DETAIL),
    TimeoutError: (408, "illegal_arguments", "The request line and the headers arrived too slowly"),
    errors.ParseException: (400, "illegal_arguments", MALFORMED_REQUEST),
    Exception: (500, "internal_error", UNEXPECTED_DETAIL),
}
"""Status, code and detail by the nearest base class of an error."""


class RequestHead:
    """The received part of a request's line and headers, with the deadline of the rest."""

    def __init__(self, data: bytes, deadline: float) -> None:
        self.data, self.deadline, self.is_complete = bytearray(), deadline, False
        self.add(data)

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        searched = max(0, len(self.data) - 3)
        self.data += data
        ended = self.data.find(b"\r\n\r\n", searched) >= 0
        self.is_complete = self.is_complete or ended or len(self.data) >= MAX_HEAD_BYTES


@dataclass
class Linger:
    """The deadline and the remaining bytes for which a connection that ends is read."""

    deadline: float
    left: int = LINGER_BYTES


class HttpWorker(ThreadWorker):  # type: ignore[misc]
    """Gunicorn's thread worker, protected from slow clients and waiting requests.

    The event loop reads the head of a request (its line and headers) and closes connections;
    neither needs a thread. Every request whose head is complete gets a thread, and runs with a
    permit, which it releases while it waits for its client or for workers.
    """

    limits = ClientLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._permits = Permits(self.cfg.threads)
        self._arriving: dict[Any, RequestHead] = {}
        self._closing: dict[Any, Linger] = {}
        self._running: dict[Any, None] = {}

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """Allow a thread for every connection; permits limit how many run."""
        return ThreadPoolExecutor(self.worker_connections, thread_name_prefix="request")

    def load_wsgi(self) -> None:
        """Load the application, and let it know of each request whether the server is stopping."""
        super().load_wsgi()
        application: WSGIApplication = self.wsgi

        def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            environ[STOPPING_KEY] = not self.alive
            return application(environ, start_response)

        self.wsgi: WSGIApplication = serve

    # Heads of requests --------------------------------------------------------------------

    def enqueue_req(self, conn: Any) -> None:
        """Read the head of the connection's next request; then give it a thread."""
        if conn.parser is None:
            conn.sock = ClientSocket(conn.sock, self.limits)
            conn.init()
        conn.sock.setblocking(False)
        buffered = conn.parser.unreader.take_buffered()
        self._arriving[conn] = RequestHead(buffered, time.monotonic() + self.limits.head_s)
        self.poller.register(conn.sock, EVENT_READ, partial(self._read_head, conn))
        self._read_head(conn)

    def _read_head(self, conn: Any, _sock: Any = None) -> None:
        head = self._arriving[conn]
        if not head.is_complete:
            try:
                data = conn.sock.recv(MAX_HEAD_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(conn)
                return
            head.add(data)
        if head.is_complete:
            self._forget(conn)
            conn.parser.unreader.unread(bytes(head.data))
            conn.data_ready = True
            conn.sock.begin_request()
            self._running[conn] = None
            super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """Answer one request, in its own thread."""
        with self._permits.acquire() as permit:
            conn.sock.permit = permit
            try:
                return super().handle(conn)
            finally:
                conn.sock.permit = None

    # Ends of connections ------------------------------------------------------------------

    def finish_request(self, conn: Any, fs: "Future[Any]") -> None:
        """Keep the connection alive, or close it without waiting for its client."""
        self._running.pop(conn, None)
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._linger(conn)
        else:
            super().finish_request(conn, fs)

    def _linger(self, conn: Any) -> None:
        """Read what the client still sends for a while: a reset would destroy the response."""
        conn.sock.setblocking(False)
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(conn)
            return
        self._closing[conn] = Linger(time.monotonic() + LINGER_S)
        self.poller.register(conn.sock, EVENT_READ, partial(self._drain, conn))

    def _drain(self, conn: Any, _sock: Any = None) -> None:
        linger = self._closing[conn]
        try:
            count = len(conn.sock.recv(MAX_HEAD_BYTES))
        except BlockingIOError:
            return
        except OSError:
            count = 0
        linger.left -= count
        if not count or linger.left <= 0:
            self._drop(conn)

    def _forget(self, conn: Any) -> None:
        self._arriving.pop(conn, None)
        self._closing.pop(conn, None)
        with suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)

    def _drop(self, conn: Any) -> None:
        self._forget(conn)
        self.nr_conns -= 1
        conn.close()

    def murder_pending(self) -> None:
        """Close overdue connections; gunicorn calls this at least once a second."""
        super().murder_pending()
        now = time.monotonic()
        for conn in [conn for conn, head in self._arriving.items() if self._is_overdue(head, now)]:
            self._give_up(conn)
        for conn in [conn for conn, linger in self._closing.items() if linger.deadline <= now]:
            self._drop(conn)
        self._make_room()

    def _is_overdue(self, head: RequestHead, now: float) -> bool:
        """Return whether to give up on a head; at shutdown, empty connections end at once."""
        return head.deadline <= now or not (self.alive or head.data)

    def _give_up(self, conn: Any) -> None:
        head = self._arriving[conn]
        self._forget(conn)
        if head.data:
            with suppress(OSError):
                conn.sock.sendall(refusal_response(TimeoutError(), new_request_id())[1])
        self._linger(conn)

    def _make_room(self) -> None:
        """Close connections at their maximum number: idle ones, oldest first, then slow clients."""
        excess = max(0, self.nr_conns - self.worker_connections + 1)
        late = time.monotonic() + self.limits.head_s * (1 - GRACE_FRACTION)
        arriving = [conn for conn, head in self._arriving.items() if head.deadline < late]
        idle = [*self._closing, *arriving, *self.keepalived_conns][:excess]
        for conn in idle:
            with suppress(ValueError):
                self.keepalived_conns.remove(conn)
            self._drop(conn)
        if excess > len(idle):
            self._end_slow(excess - len(idle))

    def _end_slow(self, count: int) -> None:
        """End requests of slow clients, oldest first; requests that are already ending count."""
        rate = self.limits.min_bytes_s * CROWDED_RATE_FACTOR
        running = [conn.sock for conn in self._running]
        ending = sum(sock.is_ended for sock in running)
        slow = (sock for sock in running if not sock.is_ended and sock.is_slower_than(rate))
        for sock in islice(slow, max(0, count - ending)):
            sock.end()

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Answer an error outside the application; the connection then ends."""
        request_id = new_request_id()
        status, response = refusal_response(exc, request_id)
        peer, kind = (addr or ("",))[0], type(exc).__name__
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log.error("request %s of %s failed", request_id, peer, exc_info=exc)
        else:
            # The request is not logged, because it may hold a token.
            self.log.warning("request %s of %s: %s, %s", request_id, peer, status, kind)
        try:
            client.sendall(response)
        except OSError as error:
            self.log.debug("the client closed the connection: %s", error)


def build_worker_class(settings: Settings) -> type[HttpWorker]:
    """Return the worker class with the limits of these settings."""
    limits = ClientLimits(
        settings.request_head_s, settings.request_patience_s, settings.request_min_bytes_s
    )
    return type("ConfiguredWorker", (HttpWorker,), {"limits": limits})


def refusal_response(error: Exception, request_id: str) -> tuple[int, bytes]:
    """Return the status and the whole response for a request that cannot be read."""
    status, code, detail = next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)
    body = orjson.dumps(problem_body(status, code, detail, request_id=request_id))
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        "Connection: close",
        f"Content-Type: {PROBLEM_MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        f"{REQUEST_ID_HEADER}: {request_id}",
    )
    return status, "\r\n".join((*head, "", "")).encode("ascii") + body


def die_with_master(worker: Any) -> None:
    """Let the kernel kill this worker when gunicorn's master is killed.

    Otherwise it would finish its requests first, and a live feed would hold the port for a minute.
    """
    process.die_with_parent(worker.ppid)


def prepare_worker(worker: Any) -> None:
    """Raise the limit of open files, time out dead connections, and return freed memory."""
    process.bound_heap()
    process.raise_open_files_limit(worker.worker_connections + RESERVED_FILES)
    for listener in worker.sockets:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The only timeout of data that is already in the kernel's send buffer.
            patience_ms = int(worker.limits.patience_s * 1000)
            listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
