"""Memory budget for large JSON values, shared by all threads of a process.

Limits per text do not bound a process that parses many at once. A thread reserves the memory of a
value before it parses the text, and waits while others hold too much.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from config import process
from storage.errors import Unavailable
from storage.json_codec import MB

BUDGET_BYTES = 640 * MB
SMALL_BYTES = 4 * MB
"""Reservations up to this size are free and never wait."""
RELEASE_FROM_BYTES = 32 * MB
"""After a reservation of this size the process returns free memory to the system."""
RESERVE_TIMEOUT_S = 5.0
"""Short, since a waiting worker thread could run another job."""
RETRY_AFTER_S = 5


class MemoryBudget:
    """A weighted semaphore over bytes: first come, first served."""

    def __init__(
        self,
        total: int = BUDGET_BYTES,
        *,
        timeout_s: float = RESERVE_TIMEOUT_S,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`waiting` is entered around a wait, for example to let another request run."""
        self._total, self._timeout_s, self._waiting = total, timeout_s, waiting
        self._used = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @staticmethod
    def is_small(size: int) -> bool:
        """Return whether this size needs no reservation."""
        return size <= SMALL_BYTES

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Hold `size` bytes during the block; Unavailable if others hold too much for too long.

        A value larger than the budget waits until it is alone. A thread must not nest reservations:
        two such threads would block each other until one times out.
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
            if not self._wait_for_turn(ticket, weight):
                message = "Too many large JSON documents are being read: try again later."
                raise Unavailable(message, retry_after_s=RETRY_AFTER_S)

    def _wait_for_turn(self, ticket: object, weight: int) -> bool:
        """Wait for this ticket's turn; return whether it came in time."""
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
        if weight >= RELEASE_FROM_BYTES:
            process.release_memory()
        with self._changed:
            self._used -= weight
            self._changed.notify_all()
