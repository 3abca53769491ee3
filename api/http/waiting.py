"""Long polling and server-sent events, woken by pubsub messages.

A waiting request subscribes before it reads, so that it misses no message. Its thread sleeps while
other requests run in its place. The number of waiting requests is limited, by default to half of
the total for one client. Beyond the limit, a request is answered at once with the current state,
or refused with Retry-After if there is nothing new.

A stream holds a thread for as long as it lives, so there are few of them. It ends by itself; the
client reconnects with the id of the last message it saw, and misses none. It also ends soon after
its client has hung up.
"""

import logging
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from flask import Response
from werkzeug.http import parse_dict_header

from api.http.limits import FairSemaphore
from api.http.permits import suspend_permit
from storage.errors import DomainError, TooManyRequests, Unavailable
from storage.protocols import PubSub

T = TypeVar("T")

MIN_READ_INTERVAL_S = 0.05
MAX_READ_INTERVAL_S = 1.0
"""Minimum time between two reads of one request; doubles with each read, to bound their number."""


@dataclass(frozen=True)
class WaitPreference:
    """The waiting preferences of a `Prefer` header (RFC 7240)."""

    wait_s: float | None = None
    respond_async: bool = False


def parse_prefer(header: str | None) -> WaitPreference:
    """Parse a `Prefer` header; ignore unknown and malformed preferences, as the RFC requires."""
    preferences = parse_dict_header((header or "")[:1000].replace(";", ",").lower())
    wait = (preferences.get("wait") or "").strip()
    valid = wait.isascii() and wait.isdigit() and len(wait) <= 6
    return WaitPreference(float(wait) if valid else None, "respond-async" in preferences)


def compute_wait_s(preference: WaitPreference, *, default_s: float, cap_s: float) -> float:
    """Return how many seconds this request may wait."""
    if preference.respond_async:
        return 0.0
    return min(default_s if preference.wait_s is None else preference.wait_s, cap_s)


@dataclass(frozen=True)
class LongPolling:
    """Long polling, shared by the threads of one process."""

    pubsub: PubSub
    semaphore: FairSemaphore
    clock: Callable[[], float] = time.monotonic

    def wait_until(
        self,
        read: Callable[[], T],
        done: Callable[[T], bool],
        *,
        client: str,
        topics: Sequence[str],
        within_s: float,
        polling: bool = False,
    ) -> T:
        """Return the result of `read` once `done`, on timeout, or at once if too many wait.

        A `polling` client would repeat its request without a pause: if too many wait and there is
        nothing new, raises TooManyRequests or Unavailable, which have a Retry-After.
        """
        if within_s <= 0:
            return read()
        try:
            release = self.semaphore.acquire(client)
        except (TooManyRequests, Unavailable):
            result = read()
            if polling and not done(result):
                raise
            return result
        try:
            with self.pubsub.listen(*topics) as listener:
                end = self.clock() + within_s
                result, interval, next_read = read(), MIN_READ_INTERVAL_S, self.clock()
                while not done(result) and (left := end - self.clock()) > 0:
                    with suspend_permit():
                        listener.wait(left)
                        # Messages right after a read are collected for a single further read.
                        while (delay := min(next_read, end) - self.clock()) > 0:
                            listener.wait(delay)
                    result = read()
                    next_read = self.clock() + interval
                    interval = min(2 * interval, MAX_READ_INTERVAL_S)
                return result
        finally:
            release()


log = logging.getLogger(__name__)

EVENT_STREAM_TYPE = "text/event-stream"
RETRY_MS = 1_000
"""Delay after which a client reconnects."""
STREAM_POLL_S = 2.0
"""Interval at which a stream reads without a message: pubsub may lose some."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message of a stream; without data it only tells the client its id."""

    position: int
    id: str
    data: Any

    def __bytes__(self) -> bytes:
        data = b"" if self.data is None else b"data: " + orjson.dumps(self.data) + b"\n"
        return b"id: " + self.id.encode() + b"\n" + data + b"\n"


ReadSince = Callable[[int], Iterable[StreamMessage]]
"""Returns a batch of messages after a position; raises StreamEnded if no others will follow."""


class StreamEnded(Exception):
    """A stream has nothing more to say to this client."""


@dataclass(frozen=True)
class ServerSentEvents:
    """Streams of server-sent events, shared by the threads of one process."""

    pubsub: PubSub
    semaphore: FairSemaphore
    life_s: float
    heartbeat_s: float
    clock: Callable[[], float] = time.monotonic

    def respond(
        self,
        read_since: ReadSince,
        *,
        client: str,
        start: StreamMessage,
        topics: Sequence[str],
        environ: Mapping[str, Any],
        pause_s: float = 0.0,
    ) -> Response:
        """Return the stream of what follows `start`; it reads at most once in `pause_s` seconds.

        `environ` is the WSGI environment of the request. Raises TooManyRequests or Unavailable if
        the client, or the process, has too many streams.
        """
        release = self.semaphore.acquire(client)
        body = self._generate(read_since, start, topics, environ, pause_s)
        response = Response(body, mimetype=EVENT_STREAM_TYPE)
        # Runs even if the server never takes the first byte of the body.
        response.call_on_close(release)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        return response

    def _generate(
        self,
        read_since: ReadSince,
        start: StreamMessage,
        topics: Sequence[str],
        environ: Mapping[str, Any],
        pause_s: float,
    ) -> Iterator[bytes]:
        """Yield every message once, in order, and a comment as heartbeat while there is none."""
        end, position = self.clock() + self.life_s, start.position
        yield b"retry: %d\n" % RETRY_MS + bytes(start)
        try:
            with self.pubsub.listen(*topics) as listener:
                last_sent = self.clock()
                while self.clock() < end and not has_hung_up(environ):
                    before, next_read = position, self.clock() + pause_s
                    for message in read_since(position):
                        yield bytes(message)
                        position, last_sent = message.position, self.clock()
                    if position != before and not pause_s:
                        # There may be more than one batch.
                        continue
                    if self.clock() - last_sent >= self.heartbeat_s:
                        yield b":\n\n"
                        last_sent = self.clock()
                    heartbeat_in_s = last_sent + self.heartbeat_s - self.clock()
                    wait_s = min(STREAM_POLL_S, heartbeat_in_s, end - self.clock())
                    with suspend_permit():
                        listener.wait(max(0.0, wait_s))
                        while (delay := min(next_read, end) - self.clock()) > 0:
                            listener.wait(delay)
        except StreamEnded:
            return
        except DomainError as error:
            log.warning("a stream of events ended early: %s", error.detail)


HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)


def has_hung_up(environ: Mapping[str, Any]) -> bool:
    """Return whether the client of a request has closed its connection, as far as can be seen."""
    connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
    if connection is None:
        return False
    poll = select.poll()
    try:
        poll.register(connection.fileno(), HANG_UP)
    except ValueError:
        return True
    return bool(poll.poll(0))
