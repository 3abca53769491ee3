"""Our HTTP servers, where they differ from gunicorn: slow clients hold no thread that others need,
and a request that never reaches an application is refused as every other one is.
"""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from itertools import islice
from selectors import EVENT_READ
from typing import Any

import orjson
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from api.client_socket import FIRST, ClientSocket, Limits
from api.concurrency import Permits
from api.errors import UNEXPECTED
from api.problems import MEDIA_TYPE, REQUEST_ID_HEADER, new_request_id, problem
from config import allocator, leash, open_files
from config.settings import Settings

LONGEST_LINE = 8190
"""Bytes of a request line. Gunicorn knows no larger bound, and proxies take as much: all addresses
that we make ourselves are shorter (pointers of pages, what a browser carries through a login)."""

HEAD_BYTES = 65_536
"""Bytes of a head that the event loop reads; a thread reads, and refuses, a longer one."""
LINGER_S = 2.0
LINGER_BYTES = 65_536
"""How long, and for how many bytes, a connection is read after its last answer."""
CROWDED = 20
"""Times the minimum rate that a client must reach while there is no room for others."""
OPEN_FILES = 256
"""Files that a process has open beside its connections."""

MALFORMED = "This is no request of HTTP/1.1"
LONG = f"The request line has more than {LONGEST_LINE} bytes; what is long belongs into a body"

REFUSED: dict[type[Exception], tuple[int, str, str]] = {
    errors.LimitRequestLine: (414, "illegal_arguments", LONG),
    errors.LimitRequestHeaders: (431, "illegal_arguments", "The headers are too many or too long"),
    errors.ExpectationFailed: (417, "illegal_arguments", "Only 100-continue may be expected"),
    errors.UnsupportedTransferCoding: (501, "illegal_arguments", "Only chunked is known here"),
    errors.InvalidResponseHeader: (500, "internal_error", UNEXPECTED),
    errors.InvalidResponseHeaderName: (500, "internal_error", UNEXPECTED),
    errors.ConfigurationProblem: (500, "internal_error", UNEXPECTED),
    TimeoutError: (408, "illegal_arguments", "The request line and the headers came too slowly"),
    errors.ParseException: (400, "illegal_arguments", MALFORMED),
    Exception: (500, "internal_error", UNEXPECTED),
}
"""Status, code and detail; of the nearest class to what was raised."""


class Head:
    """What has arrived of a request's line and headers, and until when it must be complete."""

    def __init__(self, data: bytes, until: float) -> None:
        self.data, self.until, self.is_complete = bytearray(), until, False
        self.add(data)

    def add(self, data: bytes) -> None:
        """Add what arrived next."""
        searched = max(0, len(self.data) - 3)
        self.data += data
        ended = self.data.find(b"\r\n\r\n", searched) >= 0
        self.is_complete = self.is_complete or ended or len(self.data) >= HEAD_BYTES


@dataclass
class Linger:
    """Until when, and for how many bytes, a connection that ends is read."""

    until: float
    left: int = LINGER_BYTES


class Worker(ThreadWorker):  # type: ignore[misc]
    """Gunicorn's threads, which neither a slow client nor a request that waits can use up.

    The event loop reads the head of a request (its line and headers) and closes connections, so
    that both need no thread. Every request that has arrived gets a thread, and runs by a permit;
    it gives the permit up while it waits for its client or for workers.
    """

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._permits = Permits(self.cfg.threads)
        self._arriving: dict[Any, Head] = {}
        self._closing: dict[Any, Linger] = {}
        self._running: dict[Any, None] = {}

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """A thread for every connection, if need be; permits limit how many run."""
        return ThreadPoolExecutor(self.worker_connections, thread_name_prefix="request")

    # Heads of requests --------------------------------------------------------------------

    def enqueue_req(self, conn: Any) -> None:
        """Read the head of the connection's next request; then give it a thread."""
        if conn.parser is None:
            conn.sock = ClientSocket(conn.sock, self.limits)
            conn.init()
        conn.sock.setblocking(False)
        buffered = conn.parser.unreader.take_buffered()
        self._arriving[conn] = Head(buffered, time.monotonic() + self.limits.head_s)
        self.poller.register(conn.sock, EVENT_READ, partial(self._read_head, conn))
        self._read_head(conn)

    def _read_head(self, conn: Any, _sock: Any = None) -> None:
        head = self._arriving[conn]
        if not head.is_complete:
            try:
                data = conn.sock.recv(HEAD_BYTES)
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
        """Answer one request, in a thread of its own."""
        with self._permits.running() as permit:
            conn.sock.permit = permit
            try:
                return super().handle(conn)
            finally:
                conn.sock.permit = None

    # Ends of connections ------------------------------------------------------------------

    def finish_request(self, conn: Any, fs: "Future[Any]") -> None:
        """Keep the connection for the next request, or close it without waiting for its client."""
        self._running.pop(conn, None)
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._linger(conn)
        else:
            super().finish_request(conn, fs)

    def _linger(self, conn: Any) -> None:
        """Read what the client still sends for a while: a reset would destroy the answer."""
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
            count = len(conn.sock.recv(HEAD_BYTES))
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
        """Close what is overdue; called by gunicorn at least once a second."""
        super().murder_pending()
        now = time.monotonic()
        for conn in [conn for conn, head in self._arriving.items() if self._is_overdue(head, now)]:
            self._give_up(conn)
        for conn in [conn for conn, linger in self._closing.items() if linger.until <= now]:
            self._drop(conn)
        self._make_room()

    def _is_overdue(self, head: Head, now: float) -> bool:
        """When the process stops, connections without a request are not waited for."""
        return head.until <= now or not (self.alive or head.data)

    def _give_up(self, conn: Any) -> None:
        head = self._arriving[conn]
        self._forget(conn)
        if head.data:
            with suppress(OSError):
                conn.sock.sendall(refusal(TimeoutError(), new_request_id())[1])
        self._linger(conn)

    def _make_room(self) -> None:
        """Close connections when there are as many as may be: those that do nothing, oldest first,
        then those of slow clients."""
        wanted = max(0, self.nr_conns - self.worker_connections + 1)
        late = time.monotonic() + self.limits.head_s * (1 - FIRST)
        arriving = [conn for conn, head in self._arriving.items() if head.until < late]
        idle = [*self._closing, *arriving, *self.keepalived_conns][:wanted]
        for conn in idle:
            with suppress(ValueError):
                self.keepalived_conns.remove(conn)
            self._drop(conn)
        if wanted > len(idle):
            self._end_slow(wanted - len(idle))

    def _end_slow(self, count: int) -> None:
        """End requests of slow clients, oldest first; those that end but are not closed count."""
        rate = self.limits.min_bytes_s * CROWDED
        running = [conn.sock for conn in self._running]
        ending = sum(sock.is_ended for sock in running)
        slow = (sock for sock in running if not sock.is_ended and sock.is_slower_than(rate))
        for sock in islice(slow, max(0, count - ending)):
            sock.end()

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Answer what went wrong before or beside the application; the connection ends then."""
        request_id = new_request_id()
        status, answer = refusal(exc, request_id)
        peer, kind = (addr or ("",))[0], type(exc).__name__
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log.error("request %s of %s failed", request_id, peer, exc_info=exc)
        else:
            # Not what was sent: a token may be in it.
            self.log.warning("request %s of %s: %s, %s", request_id, peer, status, kind)
        try:
            client.sendall(answer)
        except OSError as error:
            self.log.debug("nobody takes the answer: %s", error)


def worker_class(settings: Settings) -> type[Worker]:
    """The worker with the limits of these settings."""
    limits = Limits(
        settings.request_head_s, settings.request_patience_s, settings.request_min_bytes_s
    )
    return type("ConfiguredWorker", (Worker,), {"limits": limits})


def refusal(error: Exception, request_id: str) -> tuple[int, bytes]:
    """The status and the whole answer to a request that cannot be read."""
    status, code, detail = next(REFUSED[kind] for kind in type(error).__mro__ if kind in REFUSED)
    body = orjson.dumps(problem(status, code, detail, request_id=request_id))
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        "Connection: close",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        f"{REQUEST_ID_HEADER}: {request_id}",
    )
    return status, "\r\n".join((*head, "", "")).encode("ascii") + body


def die_with_master(worker: Any) -> None:
    """Let the kernel kill this worker when gunicorn's master is killed. By itself it would end its
    requests first, and a live feed keep the ports from the next start for a minute."""
    leash.die_with(worker.ppid)


def prepare(worker: Any) -> None:
    """Let a process have as many connections as its settings say, end those that are dead, and
    give freed memory back."""
    allocator.bound_heap()
    open_files.allow(worker.worker_connections + OPEN_FILES)
    for listener in worker.sockets:
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # What is sent by the kernel knows no time-out but this one.
            patience_ms = int(worker.limits.patience_s * 1000)
            listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
