"""Slots: semaphores for requests that take long, with a limit for each client."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from storage.errors import TooMany, Unavailable

BUSY_RETRY_S = 5


@dataclass(frozen=True)
class Slots:
    """So many at once for all, and of them `each` for one client (0: as many as there are), shared
    by the threads of one process; `what` is held, as refusals say.

    With `each` below the total, a client that holds as many as are free gets no more (dynamic
    thresholds, Choudhury and Hahne 1998): n busy clients get one part in n + 1 each, and one part
    stays free for the next client.
    """

    what: str
    total: int
    each: int = 0
    _held: Counter[str] = field(default_factory=Counter, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def take(self, client: str) -> Callable[[], None]:
        """A slot, until what is returned is called, once; TooMany when the client holds as many as
        it may, Unavailable when others need those that are left."""
        with self._lock:
            if self.each and self._held[client] >= self.each:
                said = f"One client may have {self.each} {self.what} at once."
                raise TooMany(said, retry_after_s=BUSY_RETRY_S)
            free = max(1, self.total) - self._held.total()
            is_shared = 0 < self.each < self.total
            if free <= (self._held[client] if is_shared else 0):
                said = f"There are as many {self.what} as this server has."
                raise Unavailable(said, retry_after_s=BUSY_RETRY_S)
            self._held[client] += 1
        return partial(self._release, client)

    def _release(self, client: str) -> None:
        with self._lock:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
