"""Fixity report: verification counts per replica, and the checksums of stored objects."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from threading import Lock

from pipelines import journal_copies, scrub
from pipelines.integrity import rebuild_record
from pipelines.sweeps import SWEEP_BATCH
from storage import keys
from storage.catalog import integrity, now_us
from storage.catalog.integrity import DAY_US, DamagedObjectRow, IntegrityCounts, StoredObject
from storage.model import REPLICAS, Replica
from storage.stores import Stores

FRESH_S = 2.0
FRESH_FACTOR = 10
"""A report counts as fresh for so many times as long as it took to count."""
MAX_LISTED = 100
"""Damaged objects that are named."""


@dataclass(frozen=True, slots=True)
class FixityReport:
    """Counts per replica at a time; `damaged` names the first of the objects that are damaged."""

    at_us: int
    replicas: Mapping[Replica, IntegrityCounts]
    damaged: Sequence[DamagedObjectRow]


@dataclass(frozen=True, slots=True)
class ObjectFixity:
    """The expected checksum and the last verification of one object, with the damage found."""

    stored: StoredObject
    sha256: str | None
    damage: str | None


def build_report(stores: Stores, *, period_days: float) -> FixityReport:
    """Count what is stored, and what was verified within the period."""
    with stores.catalog.read() as tx:
        now = now_us(tx)
        since = now - int(period_days * DAY_US)
        counts = {name: integrity.count_objects(tx, name, since_us=since) for name in REPLICAS}
        return FixityReport(now, counts, integrity.list_damaged(tx, limit=MAX_LISTED))


class FixityReportCache:
    """Caches the latest report of this process, since counting reads whole indexes.

    One thread at a time counts, for a tenth of the time at most; the others get the latest report.
    """

    def __init__(
        self, stores: Stores, period_days: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores, self._period_days, self._clock = stores, period_days, clock
        self._lock = Lock()
        self._latest: FixityReport | None = None
        self._fresh_until = 0.0

    def report(self) -> FixityReport:
        """Return the latest report; it says when it was counted."""
        latest = self._latest
        if latest is not None and self._clock() < self._fresh_until:
            return latest
        if not self._lock.acquire(blocking=latest is None) and latest is not None:
            return latest
        try:
            return self._count()
        finally:
            self._lock.release()

    def _count(self) -> FixityReport:
        began = self._clock()
        if self._latest is None or began >= self._fresh_until:
            self._latest = build_report(self._stores, period_days=self._period_days)
            ended = self._clock()
            self._fresh_until = ended + max(FRESH_S, FRESH_FACTOR * (ended - began))
        return self._latest


def list_object_fixity(stores: Stores) -> Iterator[ObjectFixity]:
    """Yield every stored object of both replicas; concurrent changes may be missed."""

    def list_unindexed(replica: Replica) -> Iterator[list[StoredObject]]:
        names = scrub.list_journals_and_purges(stores, replica)
        while page := list(islice(names, SWEEP_BATCH)):
            with stores.catalog.read() as tx:
                times = integrity.find_verified_times(tx, replica, page)
            yield [StoredObject(replica, key, times.get(key, 0)) for key in page]

    for replica in REPLICAS:
        indexed = integrity.iterate_pages(stores.catalog, replica)
        for page in chain(indexed, list_unindexed(replica)):
            with stores.catalog.read() as tx:
                damaged = integrity.filter_damaged(tx, replica, [one.key for one in page])
            for one in page:
                yield ObjectFixity(one, _expected_sha256(stores, one), damaged.get(one.key))


def _expected_sha256(stores: Stores, one: StoredObject) -> str | None:
    """Return the SHA-256 that an object should have.

    That of a record is computed from the catalog's rows, that of a journal is in its manifest.
    """
    if one.sha256 is not None:
        return one.sha256
    if one.key.startswith(keys.JOURNALS):
        return journal_copies.read_sha256(stores, one.replica, one.key)
    data = rebuild_record(stores, one.key)
    return None if data is None else hashlib.sha256(data).hexdigest()
