"""Failure quota of one stream (Download rules): it starts at `num_retries`, rises with each block
read and falls with each failure; the delay between retries rises and falls the other way.

Streams share no quota, for the order of their threads would then decide whether a file fails.
"""

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
    """The retries and the delay that are left to one stream."""

    def __init__(
        self, num_retries: int, min_delay_s: float, *, pause: Callable[[float], None]
    ) -> None:
        self._least_s = min_delay_s
        self._most = num_retries + HEADROOM
        self._pause = pause
        self._furthest = 0
        self.left = num_retries
        self.delay_s = min_delay_s

    def block(self, end: int, *, last: bool = False) -> None:
        """A block was read that ends there. Crumbs do not count unless they are the `last`, nor do
        blocks that come again, after a server began anew or all was damaged: else a server could
        keep us for ever."""
        more = end - self._furthest
        if more <= 0 or (more < LEAST and not last):
            return
        self._furthest = end
        self.left = min(self.left + 1, self._most)
        self.delay_s = max(self.delay_s / 2, self._least_s)

    def failure(self, trouble: Trouble) -> None:
        """Wait before the next attempt; raises the trouble's error when there is none left."""
        if self.left <= 0:
            raise trouble.error
        self.left -= 1
        wait_s = max(self.delay_s, min(trouble.retry_after_s, LONGEST_ASKED_S))
        # A minimum of nothing would stay nothing when doubled.
        longest = max(LONGEST_DELAY_S, self._least_s)
        self.delay_s = min(max(self.delay_s * 2, 0.01), longest)
        self._pause(wait_s)
