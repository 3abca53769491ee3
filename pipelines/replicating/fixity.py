"""The integrity of what is stored: counts per replica, and the objects of a fixity report."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from pipelines.keeping import written
from storage.catalog import integrity, now_us
from storage.catalog.integrity import DAY_US, Counts, Damage, StoredObject
from storage.model import REPLICAS, Replica
from storage.stores import Stores

FRESH_S = 2.0
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
    """Reports of one process, each counted once in `FRESH_S`: counting reads whole indexes."""

    def __init__(
        self, stores: Stores, period_days: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores, self._period_days, self._clock = stores, period_days, clock
        self._lock = Lock()
        self._counted: tuple[float, Report] | None = None

    def report(self) -> Report:
        """The report of at most `FRESH_S` ago."""
        with self._lock:
            if self._counted is None or self._clock() - self._counted[0] >= FRESH_S:
                found = report(self._stores, period_days=self._period_days)
                self._counted = self._clock(), found
            return self._counted[1]


def objects(stores: Stores) -> Iterator[Fixity]:
    """Every blob and record of both replicas; what comes or goes meanwhile may be there or not."""
    for replica in REPLICAS:
        for page in integrity.pages(stores.catalog, replica):
            with stores.catalog.read() as tx:
                damaged = integrity.among_damaged(tx, replica, [one.key for one in page])
            for one in page:
                yield Fixity(one, _sha256(stores, one), damaged.get(one.key))


def _sha256(stores: Stores, one: StoredObject) -> str | None:
    """The SHA-256 that an object should have; of a record from the catalog's rows."""
    if one.sha256 is not None:
        return one.sha256
    data = written.record(stores, one.key)
    return None if data is None else hashlib.sha256(data).hexdigest()
