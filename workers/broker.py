"""The broker in memory, and the middleware of every broker.

The to-do rows are the queue; a message only says that a row may be due. So nothing is retried,
delayed or kept by a broker, and losing it loses nothing.
"""

import threading
from queue import Queue
from typing import Any, Protocol

from dramatiq.asyncio import get_event_loop_thread
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, Middleware, Retries, ShutdownNotifications, TimeLimit

TIME_LIMIT_CHECK_MS = 5_000
"""How often actors are checked for their time limits, which are minutes."""

INTERRUPTED_S = 1.0
"""How often a thread that waits for an async actor looks whether it was interrupted."""


class OneLoop(AsyncIO):
    """The stock middleware, with one event loop for all workers of a process."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = 0

    def before_worker_boot(self, broker: Any, worker: Any) -> None:
        """Start the loop with the first worker."""
        self._workers += 1
        if self._workers == 1:
            super().before_worker_boot(broker, worker)  # type: ignore[no-untyped-call]
            thread = get_event_loop_thread()
            assert thread is not None
            thread.interrupt_check_ival = INTERRUPTED_S

    def after_worker_shutdown(self, broker: Any, worker: Any) -> None:
        """Stop it after the last."""
        self._workers -= 1
        if self._workers == 0:
            super().after_worker_shutdown(broker, worker)  # type: ignore[no-untyped-call]


class OneShutdown(ShutdownNotifications):
    """The stock middleware, which interrupts the actors of all workers of a process: only once, or
    the second time would interrupt giving their jobs back."""

    def __init__(self) -> None:
        super().__init__()
        self._is_running = threading.Lock()

    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        """Notify again."""
        self._is_running = threading.Lock()

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:
        """Notify with the first worker that stops."""
        if self._is_running.acquire(blocking=False):
            super().before_worker_shutdown(broker, worker)  # type: ignore[no-untyped-call]


def middleware(*, time_limit_check_ms: int = TIME_LIMIT_CHECK_MS) -> list[Middleware]:
    """The stock middleware that our actors use.

    Retries stays in the list, since without it `max_retries=0` is not an option of an actor.
    """
    return [
        TimeLimit(interval=time_limit_check_ms),
        OneShutdown(),
        OneLoop(),
        Retries(max_retries=0),
    ]


class Queues(Protocol):
    """The part of a broker that senders use."""

    def declare_queue(self, queue_name: str) -> None:
        """Know a queue."""

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Put a message into its queue."""

    def depth(self, queue_name: str) -> int:
        """Messages that wait in a queue."""


class MemoryBroker(StubBroker):
    """Queues in memory, for the workers of one process."""

    def __init__(self, chosen: list[Middleware] | None = None) -> None:
        super().__init__(middleware=chosen or middleware())

    def declare_queue(self, queue_name: str) -> None:
        """Know a queue, without the companion for delayed messages: there are none."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = Queue()
            self.emit_after("declare_queue", queue_name)

    def depth(self, queue_name: str) -> int:
        """Messages that wait in a queue."""
        queue = self.queues.get(queue_name)
        return 0 if queue is None else int(queue.qsize())


UNDECLARED = MemoryBroker()
"""What actors belong to until a process knows its broker."""
