"""Cache of a report that takes long to build, shared by the threads of a process."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

R = TypeVar("R")


class ReportCache(Generic[R]):
    """Keeps the latest report; one thread at a time builds it, the others get the one before.

    A report is fresh for `fresh_s`, and for `fresh_factor` times as long as it took to build.
    """

    def __init__(
        self,
        build: Callable[[], R],
        *,
        fresh_s: float,
        fresh_factor: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._build, self._clock = build, clock
        self._fresh_s, self._fresh_factor = fresh_s, fresh_factor
        self._lock = Lock()
        self._latest: R | None = None
        self._fresh_until = 0.0

    def read(self) -> R:
        """Return the latest report; the first callers wait for it."""
        latest = self._latest
        if latest is not None and self._clock() < self._fresh_until:
            return latest
        if not self._lock.acquire(blocking=latest is None) and latest is not None:
            return latest
        try:
            began = self._clock()
            if self._latest is None or began >= self._fresh_until:
                self._latest = self._build()
                ended = self._clock()
                lifetime_s = max(self._fresh_s, self._fresh_factor * (ended - began))
                self._fresh_until = ended + lifetime_s
            return self._latest
        finally:
            self._lock.release()
