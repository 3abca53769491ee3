"""Wake-up calls: within one process, and between the processes of one home.

A store of several machines has them over Redis (`storage.notices_redis`).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import orjson

from storage.datagrams import Inbox, Office

TOPICS: Final = 200
"""Topics of one message, which a datagram must hold."""


def messages(topics: Sequence[str]) -> Iterator[str]:
    """Topics as they travel: several in one message, as JSON."""
    for start in range(0, len(topics), TOPICS):
        yield orjson.dumps(topics[start : start + TOPICS]).decode()


def topics_of(message: bytes | str) -> list[str]:
    """The topics of a message; one that is no JSON is a topic, as earlier releases send them."""
    try:
        found = orjson.loads(message)
    except orjson.JSONDecodeError:
        found = message.decode() if isinstance(message, bytes) else message
    return found if isinstance(found, list) else [str(found)]


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

    def wake(self, *topics: str) -> None:
        with self._lock:
            woken = {waiter for topic in topics for waiter in self._waiters.get(topic, ())}
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

    def publish(self, *topics: str) -> None:
        """See Notices."""
        self._board.wake(*topics)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Waiter]:
        """See Notices."""
        with self._board.listening(topics) as waiter:
            yield waiter

    def close(self) -> None:
        """Nothing to give back."""


class LocalNotices:
    """Notices between the processes whose sockets are in one folder; make it after forking.

    Where messages may have been lost, all who wait look for themselves.
    """

    KIND = "notices"

    def __init__(self, office: Office) -> None:
        self._office = office
        self._board = Board()
        self._lock = threading.Lock()
        self._inbox: Inbox | None = None

    def publish(self, *topics: str) -> None:
        """See Notices."""
        self._board.wake(*topics)
        own = self._inbox
        for message in messages(topics):
            self._office.post(self.KIND, message.encode(), but=own.name if own else "")

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
        self._board.wake(*topics_of(message))

    def close(self) -> None:
        """Take this process's socket away."""
        with self._lock:
            inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()
