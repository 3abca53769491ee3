"""How often one file may fail (Download rules): the quota starts at `num_retries`, rises with each
block read and falls with each failure; the delay between retries rises and falls the other way."""

import threading
from collections.abc import Callable

from store_client.errors import StoreError

HEADROOM = 10
"""The quota never rises more than this above its start: a bucket that went away for good is given
up after minutes, however much came before."""
LEAST = 65_536
"""Bytes that count as a block when a connection was cut in its middle."""
LONGEST_DELAY_S = 30.0
LONGEST_ASKED_S = 120.0
"""Longest wait that a server may ask for."""


class Trouble(Exception):
    """One attempt failed; `error` is what to say when there are no more."""

    def __init__(self, error: StoreError, *, retry_after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_s = retry_after_s


class Quota:
    """Of one file; shared by the threads that bring it."""

    def __init__(
        self, num_retries: int, min_delay_s: float, *, pause: Callable[[float], None]
    ) -> None:
        self._least_s = min_delay_s
        self._most = num_retries + HEADROOM
        self._pause = pause
        self._lock = threading.Lock()
        self._furthest: dict[int, int] = {}
        self.left = num_retries
        self.delay_s = min_delay_s

    def block(self, end: int, *, stream: int = 0, last: bool = False) -> None:
        """A block was read that ends there. Crumbs do not count unless they are the `last`, nor do
        blocks that come again, after a server began anew or all was damaged: else a server could
        keep us for ever."""
        with self._lock:
            more = end - self._furthest.get(stream, 0)
            if more <= 0 or (more < LEAST and not last):
                return
            self._furthest[stream] = end
            self.left = min(self.left + 1, self._most)
            self.delay_s = max(self.delay_s / 2, self._least_s)

    def failure(self, trouble: Trouble) -> None:
        """Wait before the next attempt; raises the trouble's error when there is none left."""
        with self._lock:
            if self.left <= 0:
                raise trouble.error
            self.left -= 1
            wait_s = max(self.delay_s, min(trouble.retry_after_s, LONGEST_ASKED_S))
            # A minimum of nothing would stay nothing when doubled.
            longest = max(LONGEST_DELAY_S, self._least_s)
            self.delay_s = min(max(self.delay_s * 2, 0.01), longest)
        self._pause(wait_s)
