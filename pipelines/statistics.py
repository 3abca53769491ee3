"""What the store holds: counts that a process caches, and the latest bundles."""

import threading
import time
from collections.abc import Callable

from storage.catalog import statistics
from storage.catalog.statistics import LatestBundle, StoreCounts
from storage.model import Replica
from storage.stores import Stores

FRESH_S = 30.0
FRESH_FACTOR = 50
"""Counts are fresh for this many times as long as counting took, so that it costs 2 % of a core."""


class StoreCountsCache:
    """Counts of the store, at most a short time old; shared by threads."""

    def __init__(self, stores: Stores, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores, clock
        self._lock = threading.Lock()
        self._latest: StoreCounts | None = None
        self._fresh_until = 0.0

    def read(self) -> StoreCounts:
        """Return the counts; while another thread counts, those from before."""
        latest = self._latest
        if latest is not None and self._clock() < self._fresh_until:
            return latest
        if not self._lock.acquire(blocking=latest is None) and latest is not None:
            return latest
        try:
            if self._latest is None or self._clock() >= self._fresh_until:
                began = self._clock()
                with self._stores.catalog.read() as tx:
                    self._latest = statistics.count_store(tx)
                ended = self._clock()
                self._fresh_until = ended + max(FRESH_S, FRESH_FACTOR * (ended - began))
            return self._latest
        finally:
            self._lock.release()


def list_latest_bundles(stores: Stores, replica: Replica, *, limit: int = 10) -> list[LatestBundle]:
    """Return the live bundle versions that arrived last, latest first."""
    with stores.catalog.read() as tx:
        return statistics.list_latest_bundles(tx, replica, limit=limit)
