"""The integrity of what is stored: counts per replica, and the objects of a fixity report."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from threading import Lock

from pipelines.journalling import journal_copies
from pipelines.keeping.integrity import rebuild_record
from pipelines.replicating import stored_objects
from pipelines.replicating.comparing import BATCH
from storage import keys
from storage.catalog import integrity, now_us, verified_objects
from storage.catalog.integrity import DAY_US, Counts, Damage, StoredObject
from storage.model import REPLICAS, Replica
from storage.stores import Stores

FRESH_S = 2.0
REST = 10
"""A report counts as fresh for so many times as long as it took to count."""
LISTED = 100
"""Damaged objects that are named."""


@dataclass(frozen=True, slots=True)
class Report:
    """Counts per replica at a time; `damaged` names the first of the objects that are damaged."""

    at_us: int
    replicas: Mapping[Replica, Counts]
    damaged: Sequence[Damage]


@dataclass(frozen=True, slots=True)
class Fixity:
    """What is known of one object's bytes; `damage` is what was found wrong with them."""

    stored: StoredObject
    sha256: str | None
    damage: str | None


def report(stores: Stores, *, period_days: float) -> Report:
    """Count what is stored, and what was verified within the period."""
    with stores.catalog.read() as tx:
        now = now_us(tx)
        since = now - int(period_days * DAY_US)
        counts = {name: integrity.count(tx, name, since_us=since) for name in REPLICAS}
        return Report(now, counts, integrity.damaged(tx, limit=LISTED))


class Reports:
    """Reports of one process. Counting reads whole indexes, and any caller may ask: one thread at a
    time counts, for a tenth of the time at most; the others get the previous report."""

    def __init__(
        self, stores: Stores, period_days: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores, self._period_days, self._clock = stores, period_days, clock
        self._lock = Lock()
        self._latest: Report | None = None
        self._fresh_until = 0.0

    def report(self) -> Report:
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

    def _count(self) -> Report:
        began = self._clock()
        if self._latest is None or began >= self._fresh_until:
            self._latest = report(self._stores, period_days=self._period_days)
            ended = self._clock()
            self._fresh_until = ended + max(FRESH_S, REST * (ended - began))
        return self._latest


def objects(stores: Stores) -> Iterator[Fixity]:
    """Every stored object of both replicas; what comes or goes meanwhile may be there or not."""
    for replica in REPLICAS:
        for page in chain(integrity.pages(stores.catalog, replica), _rest(stores, replica)):
            with stores.catalog.read() as tx:
                damaged = integrity.among_damaged(tx, replica, [one.key for one in page])
            for one in page:
                yield Fixity(one, _sha256(stores, one), damaged.get(one.key))


def _rest(stores: Stores, replica: Replica) -> Iterator[list[StoredObject]]:
    """Journals, their manifests and purge markers, a page at a time."""
    names = stored_objects.journals_and_purges(stores, replica)
    while page := list(islice(names, BATCH)):
        with stores.catalog.read() as tx:
            times = verified_objects.times(tx, replica, page)
        yield [StoredObject(replica, key, times.get(key, 0)) for key in page]


def _sha256(stores: Stores, one: StoredObject) -> str | None:
    """The SHA-256 that an object should have: of a record from the catalog's rows, of a journal
    from its manifest, which itself is read."""
    if one.sha256 is not None:
        return one.sha256
    if one.key.startswith(keys.JOURNALS):
        return journal_copies.sha256_of(stores, one.replica, one.key)
    data = rebuild_record(stores, one.key)
    return None if data is None else hashlib.sha256(data).hexdigest()
