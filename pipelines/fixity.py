"""Fixity report: verification counts per replica, and the checksums of stored objects."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from pipelines import journal_copies, scrub
from pipelines.integrity import rebuild_record
from pipelines.report_cache import ReportCache
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


def open_report_cache(stores: Stores, period_days: float) -> ReportCache[FixityReport]:
    """Return a cache of the report, since counting reads whole indexes."""
    build = partial(build_report, stores, period_days=period_days)
    return ReportCache(build, fresh_s=FRESH_S, fresh_factor=FRESH_FACTOR)


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
