"""What the store holds: counts and growth that a process caches, and the latest bundles."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from storage.catalog import statistics
from storage.catalog.statistics import DailyGrowth, LatestBundle, StoreCounts
from storage.model import REPLICAS, Replica
from storage.stores import Stores

FRESH_S = 30.0
FRESH_FACTOR = 50
"""Figures are fresh for this many times as long as counting took, to cost 2 % of a core."""
GROWTH_DAYS = 7


@dataclass(frozen=True)
class StoreStatistics:
    """Counts of the store, and what arrived in each replica on each of the last days."""

    counts: StoreCounts
    growth: dict[Replica, list[DailyGrowth]]


class StatisticsCache:
    """Statistics that are at most a short time old; shared by threads."""

    def __init__(self, stores: Stores, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores, clock
        self._lock = threading.Lock()
        self._latest: StoreStatistics | None = None
        self._fresh_until = 0.0

    def read(self) -> StoreStatistics:
        """Return the statistics; while another thread counts, those from before."""
        latest = self._latest
        if latest is not None and self._clock() < self._fresh_until:
            return latest
        if not self._lock.acquire(blocking=latest is None) and latest is not None:
            return latest
        try:
            if self._latest is None or self._clock() >= self._fresh_until:
                began = self._clock()
                self._latest = count_statistics(self._stores)
                ended = self._clock()
                self._fresh_until = ended + max(FRESH_S, FRESH_FACTOR * (ended - began))
            return self._latest
        finally:
            self._lock.release()


def count_statistics(stores: Stores) -> StoreStatistics:
    """Count what the store holds; takes a time that grows with it."""
    with stores.catalog.read() as tx:
        growth = {name: statistics.list_growth(tx, name, days=GROWTH_DAYS) for name in REPLICAS}
        return StoreStatistics(statistics.count_store(tx), growth)


def list_latest_bundles(stores: Stores, replica: Replica, *, limit: int = 10) -> list[LatestBundle]:
    """Return the live bundle versions that arrived last, latest first."""
    with stores.catalog.read() as tx:
        return statistics.list_latest_bundles(tx, replica, limit=limit)


def list_bundles_of_author(stores: Stores, author: str, *, limit: int = 10) -> list[LatestBundle]:
    """Return the live bundle versions that an author wrote last, latest first."""
    with stores.catalog.read() as tx:
        return statistics.list_bundles_of_author(tx, author, limit=limit)
