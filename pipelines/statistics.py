"""What the store holds: counts and growth that a process caches, and the latest bundles."""

from dataclasses import dataclass

from pipelines.report_cache import ReportCache
from storage.catalog import Catalog, statistics
from storage.catalog.statistics import DailyGrowth, LatestBundle, PublishedBundle, StoreCounts
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


def open_statistics_cache(stores: Stores) -> ReportCache[StoreStatistics]:
    """Return a cache of the statistics."""

    def build() -> StoreStatistics:
        # Counting takes long, and the figures are cached for longer than a standby may be behind.
        return stores.catalog.read_stale(count_statistics, is_complete=bool)

    return ReportCache(build, fresh_s=FRESH_S, fresh_factor=FRESH_FACTOR)


def count_statistics(catalog: Catalog) -> StoreStatistics:
    """Count what the store holds; takes a time that grows with it."""
    with catalog.read() as tx:
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


def list_published_bundles(
    stores: Stores, replica: Replica, *, before: int | None, limit: int
) -> tuple[list[PublishedBundle], int | None]:
    """Return a page of the live bundle versions, latest first, and the id that it ends at.

    The id is None on the last page. A page looks at `limit` versions, withdrawn ones among them.
    """
    with stores.catalog.read() as tx:
        return statistics.list_published_bundles(tx, replica, before=before, limit=limit)
