"""Wake-up calls: within one process, and between the processes of one home.

A store of several machines has them over Redis (`storage.notices_redis`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from storage.datagrams import Inbox, Office


class Waiter:
    """A Listening. Waking it twice before it looks is waking it once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """See Listening."""
        woken = self._event.wait(timeout_s)
        if woken:
            self._event.clear()
        return woken


class Board:
    """Who waits for what in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    @contextmanager
    def listening(self, topics: tuple[str, ...]) -> Iterator[Waiter]:
        waiter = Waiter()
        with self._lock:
            for topic in topics:
                self._waiters.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                for topic in set(topics):
                    self._waiters[topic].discard(waiter)
                    if not self._waiters[topic]:
                        del self._waiters[topic]

    def wake(self, topic: str) -> None:
        with self._lock:
            woken = list(self._waiters.get(topic, ()))
        for waiter in woken:
            waiter.wake()

    def wake_all(self) -> None:
        with self._lock:
            woken = {waiter for waiters in self._waiters.values() for waiter in waiters}
        for waiter in woken:
            waiter.wake()


class MemoryNotices:
    """Notices within one process."""

    def __init__(self) -> None:
        self._board = Board()

    def publish(self, topic: str) -> None:
        """See Notices."""
        self._board.wake(topic)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Waiter]:
        """See Notices."""
        with self._board.listening(topics) as waiter:
            yield waiter

    def close(self) -> None:
        """Nothing to give back."""


class LocalNotices:
    """Notices between the processes whose sockets are in one folder; make it after forking.

    A message is a topic. Where some may have been lost, all who wait look for themselves.
    """

    KIND = "notices"

    def __init__(self, office: Office) -> None:
        self._office = office
        self._board = Board()
        self._lock = threading.Lock()
        self._inbox: Inbox | None = None

    def publish(self, topic: str) -> None:
        """See Notices."""
        self._board.wake(topic)
        own = self._inbox
        self._office.post(self.KIND, topic.encode(), but=own.name if own else "")

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Waiter]:
        """See Notices."""
        self._receive()
        with self._board.listening(topics) as waiter:
            yield waiter

    def _receive(self) -> None:
        with self._lock:
            if self._inbox is None:
                self._inbox = Inbox(self._office, self.KIND, self._heard, self._board.wake_all)

    def _heard(self, message: bytes) -> None:
        self._board.wake(message.decode())

    def close(self) -> None:
        """Take this process's socket away."""
        with self._lock:
            inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()
