"""LRU cache of bytes, bounded by total size and by the time since the last use."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

COPIED_BYTES = 64 * 1024
"""Shorter values are copied: 1 kB of JSON from orjson holds 4 to 8 kB, as it shrinks no buffer."""


class ByteCache:
    """Shared by the threads of one process; may drop any value at any time."""

    def __init__(
        self,
        limit: int,
        *,
        max_idle_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._max_idle_s, self._clock = limit, max_idle_s, clock
        self._size = 0
        self._values: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        """By key the value and the time of its last use, the latest last."""
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key not in self._values:
                return None
            now_s = self._clock()
            value, used_s = self._values.pop(key)
            if now_s - used_s > self._max_idle_s:
                self._size -= len(value)
                return None
            self._values[key] = (value, now_s)
            return value

    def put(self, key: str, value: bytes) -> None:
        """Store a value, and evict what was not used lately; ignore too large values."""
        if len(value) > self._limit:
            return
        if len(value) < COPIED_BYTES:
            value = bytes(memoryview(value))
        with self._lock:
            self._drop(key)
            self._values[key] = (value, self._clock())
            self._size += len(value)
            self._evict()

    def _evict(self) -> None:
        oldest_s = self._clock() - self._max_idle_s
        while self._values:
            key, (_, used_s) = next(iter(self._values.items()))
            if self._size <= self._limit and used_s >= oldest_s:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        value, _ = self._values.pop(key, (b"", 0.0))
        self._size -= len(value)
