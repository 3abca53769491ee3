"""A client's connection: it waits without a permit to run, and no longer than its rate allows."""

import errno
import os
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from api.concurrency import Permit

SENDFILE_BYTES = 1 << 30
FIRST = 0.1
"""Part of the time that a client is given, in which it is not yet called slow."""


@dataclass(frozen=True)
class Limits:
    """How slow a client may be."""

    head_s: float = 20.0
    """Seconds in which the request line and the headers must arrive."""
    patience_s: float = 30.0
    """Seconds that a client may be behind the minimum rate."""
    min_bytes_s: float = 500.0
    """Minimum rate of bodies and answers, bytes per second."""


class Patience:
    """A token bucket of seconds: waiting takes from it, bytes refill it."""

    def __init__(self, limits: Limits) -> None:
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
        """Bytes per second on average, None as long as the client has only just begun."""
        age_s = time.monotonic() - self._began
        return self._count / age_s if age_s > self._limits.patience_s * FIRST else None


class ClientSocket(socket.socket):
    """A non-blocking socket that behaves like a blocking one towards gunicorn.

    Reading raises TimeoutError when the client is too slow, sending ConnectionResetError. Both have
    an errno that gunicorn does not log as a failure of the server.
    """

    def __init__(self, accepted: socket.socket, limits: Limits) -> None:
        """Take over the file descriptor of an accepted connection."""
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        super().setblocking(False)
        self.permit: Permit | None = None
        self.is_ended = False
        self._is_waiting = False
        self._limits = limits
        self._patience = Patience(limits)
        self._timeout_s: float | None = None

    def begin_request(self) -> None:
        """Start with full patience: the request's headers have arrived."""
        self._patience = Patience(self._limits)

    def is_slower_than(self, bytes_s: float) -> bool:
        """Whether a request waits for a client of a lower average rate."""
        rate = self._patience.measure_rate() if self._is_waiting else None
        return rate is not None and rate < bytes_s

    def end(self) -> None:
        """Wake the thread that waits for this client: there is nothing to come any more."""
        self.is_ended = True
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    # What gunicorn sets is kept here: the file descriptor itself never blocks.

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
        """Send everything, as what gunicorn sends this way is never repeated."""
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
        """Wait for the client without a permit; whether it was in time."""
        if self._timeout_s == 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left_s = self._patience.left_s
        limit_s = left_s if self._timeout_s is None else min(left_s, self._timeout_s)
        if limit_s <= 0:
            return False
        if self.permit is None:
            return self._poll(event, limit_s)
        with self.permit.suspended():
            return self._poll(event, limit_s)

    def _poll(self, event: int, limit_s: float) -> bool:
        poll, began = select.poll(), time.monotonic()
        poll.register(self.fileno(), event)
        self._is_waiting = True
        ready = bool(poll.poll(limit_s * 1000))
        self._is_waiting = False
        self._patience.spend(time.monotonic() - began)
        return ready
