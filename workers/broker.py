"""The in-memory broker, and the middleware that every broker uses.

The jobs table is the queue; a message only says that a job may be due. So brokers retry, delay and
persist nothing, and losing a message loses no job.
"""

import threading
from queue import Queue
from typing import Any, Protocol

from dramatiq.asyncio import get_event_loop_thread
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, Middleware, Retries, ShutdownNotifications, TimeLimit

TIME_LIMIT_CHECK_MS = 5_000
"""Interval between checks of the actors' time limits, which are minutes."""

INTERRUPT_CHECK_S = 1.0
"""Interval at which a thread that waits for an async actor checks for interrupts."""


class SharedEventLoop(AsyncIO):
    """dramatiq's AsyncIO with one event loop for all workers of a process."""

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
            thread.interrupt_check_ival = INTERRUPT_CHECK_S

    def after_worker_shutdown(self, broker: Any, worker: Any) -> None:
        """Stop the loop after the last worker."""
        self._workers -= 1
        if self._workers == 0:
            super().after_worker_shutdown(broker, worker)  # type: ignore[no-untyped-call]


class SharedShutdown(ShutdownNotifications):
    """dramatiq's ShutdownNotifications, once for all workers of a process.

    A second interrupt would hit the release of their jobs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_running = threading.Lock()

    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        """Allow another notification."""
        self._is_running = threading.Lock()

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:
        """Notify with the first worker that stops."""
        if self._is_running.acquire(blocking=False):
            super().before_worker_shutdown(broker, worker)  # type: ignore[no-untyped-call]


def build_middleware(*, time_limit_check_ms: int = TIME_LIMIT_CHECK_MS) -> list[Middleware]:
    """Return the dramatiq middleware that our actors use.

    Retries is included because without it actors have no option `max_retries`.
    """
    return [
        TimeLimit(interval=time_limit_check_ms),
        SharedShutdown(),
        SharedEventLoop(),
        Retries(max_retries=0),
    ]


class BrokerQueues(Protocol):
    """The part of a broker that senders use."""

    def declare_queue(self, queue_name: str) -> None:
        """Create a queue."""

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Put a message into its queue."""

    def depth(self, queue_name: str) -> int:
        """Return the number of waiting messages."""


class MemoryBroker(StubBroker):
    """Queues in memory, for the workers of one process."""

    def __init__(self, middleware: list[Middleware] | None = None) -> None:
        super().__init__(middleware=middleware or build_middleware())

    def declare_queue(self, queue_name: str) -> None:
        """Create a queue, without dramatiq's second one for delayed messages."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = Queue()
            self.emit_after("declare_queue", queue_name)

    def depth(self, queue_name: str) -> int:
        """Return the number of waiting messages."""
        queue = self.queues.get(queue_name)
        return 0 if queue is None else int(queue.qsize())


UNDECLARED_BROKER = MemoryBroker()
"""The broker of actors until a process declares its own."""
