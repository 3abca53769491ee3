"""Memory for large JSON values: one budget, shared by all threads of a process.

A limit for one text does not bound a process, since many are parsed at the same time. A thread
reserves what a value may take before it parses the text, and waits while others hold too much.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from config import allocator
from storage.errors import Unavailable
from storage.json_size import MB

BUDGET_BYTES = 640 * MB
SMALL_BYTES = 4 * MB
"""Reservations up to this size do not count, and never wait."""
LARGE_BYTES = 32 * MB
"""After a reservation of this size the process gives free memory back."""
TIMEOUT_S = 5.0
"""Short, since the thread of a worker that waits could do another job meanwhile."""
RETRY_S = 5


class MemoryBudget:
    """A weighted semaphore over bytes: first come, first served."""

    def __init__(
        self,
        total: int = BUDGET_BYTES,
        *,
        timeout_s: float = TIMEOUT_S,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`waiting` surrounds a wait, for example to let another request run."""
        self._total, self._timeout_s, self._waiting = total, timeout_s, waiting
        self._used = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @staticmethod
    def is_small(size: int) -> bool:
        """Whether this size needs no reservation."""
        return size <= SMALL_BYTES

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Hold `size` bytes during the block; Unavailable when others hold too much for too long.

        What is larger than the budget waits until it is alone. A thread must not nest reservations:
        two of them would wait for each other until one is refused.
        """
        if self.is_small(size):
            yield
            return
        weight = min(size, self._total)
        self._acquire(weight)
        try:
            yield
        finally:
            self._release(weight)

    def _acquire(self, weight: int) -> None:
        ticket = object()
        with self._changed:
            if not self._queue and self._used + weight <= self._total:
                self._used += weight
                return
            self._queue.append(ticket)
        with self._waiting():
            if not self._is_granted(ticket, weight):
                said = "Too many large JSON documents are being read."
                raise Unavailable(said, retry_after_s=RETRY_S)

    def _is_granted(self, ticket: object, weight: int) -> bool:
        """Wait for this ticket's turn; whether it came in time."""
        with self._changed:
            is_granted = self._changed.wait_for(
                lambda: self._queue[0] is ticket and self._used + weight <= self._total,
                self._timeout_s,
            )
            self._queue.remove(ticket)
            self._used += weight if is_granted else 0
            self._changed.notify_all()
        return is_granted

    def _release(self, weight: int) -> None:
        if weight >= LARGE_BYTES:
            allocator.release_memory()
        with self._changed:
            self._used -= weight
            self._changed.notify_all()
