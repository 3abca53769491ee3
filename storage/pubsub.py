"""Publish/subscribe wake-ups within a process and between processes of one home.

Stores of several machines use Redis (`storage.redis_engines`).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import orjson

from storage.datagrams import DatagramInbox, SocketFolder

MAX_TOPICS: Final = 200
"""Topics of one message, which a datagram must hold."""


def encode_topics(topics: Sequence[str]) -> Iterator[str]:
    """Encode topics as one message: several as JSON."""
    for start in range(0, len(topics), MAX_TOPICS):
        yield orjson.dumps(topics[start : start + MAX_TOPICS]).decode()


def parse_topics(message: bytes | str) -> list[str]:
    """Return the topics of a message; a message that is not JSON is a topic (earlier releases)."""
    try:
        found = orjson.loads(message)
    except orjson.JSONDecodeError:
        found = message.decode() if isinstance(message, bytes) else message
    return found if isinstance(found, list) else [str(found)]


class TopicWaiter:
    """See TopicSubscription. Wake-ups before the next wait merge into one."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        woken = self._event.wait(timeout_s)
        if woken:
            self._event.clear()
        return woken


class WaiterRegistry:
    """The waiters of this process by topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[TopicWaiter]] = {}

    @contextmanager
    def subscribe(self, topics: tuple[str, ...]) -> Iterator[TopicWaiter]:
        waiter = TopicWaiter()
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


class MemoryPubSub:
    """See PubSub; within one process."""

    def __init__(self) -> None:
        self._registry = WaiterRegistry()

    def publish(self, *topics: str) -> None:
        self._registry.wake(*topics)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[TopicWaiter]:
        with self._registry.subscribe(topics) as waiter:
            yield waiter

    def close(self) -> None:
        """Do nothing."""


class LocalPubSub:
    """See PubSub; between processes that share a folder of sockets. Create it after forking.

    If messages may have been lost, all waiters wake.
    """

    KIND = "notices"

    def __init__(self, folder: SocketFolder) -> None:
        self._folder = folder
        self._registry = WaiterRegistry()
        self._lock = threading.Lock()
        self._inbox: DatagramInbox | None = None

    def publish(self, *topics: str) -> None:
        self._registry.wake(*topics)
        own = self._inbox
        for message in encode_topics(topics):
            self._folder.post(self.KIND, message.encode(), but=own.name if own else "")

    @contextmanager
    def listen(self, *topics: str) -> Iterator[TopicWaiter]:
        self._open_inbox()
        with self._registry.subscribe(topics) as waiter:
            yield waiter

    def _open_inbox(self) -> None:
        with self._lock:
            if self._inbox is None:
                self._inbox = DatagramInbox(
                    self._folder, self.KIND, self._receive_message, self._registry.wake_all
                )

    def _receive_message(self, message: bytes) -> None:
        self._registry.wake(*parse_topics(message))

    def close(self) -> None:
        """Remove this process's socket."""
        with self._lock:
            inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()
