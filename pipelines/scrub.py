"""Scrub: verify stored objects within a read budget, and repair damaged ones.

`ops verify` reads a whole bucket, the scrub one object after the other within its budget, and a
REPAIR job, which reads and sweeps order, a single one. All call `verify_object`. It leaves blobs
and records to `integrity`, and journals to `journal_copies`, which can also write them again.

An object without an intact copy in the other replica stays as it is; it is listed as damaged, and
tried again later. Journals and purge markers are read in the order of their keys once per half
period.
"""

import heapq
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, takewhile
from operator import attrgetter
from random import Random

from pipelines import flow, integrity, journal_copies
from pipelines.flow import Heartbeat, ignore_progress
from pipelines.integrity import RepairOutcome
from pipelines.sweeps import SWEEP_BATCH, iterate_pages
from storage import keys
from storage.catalog import Tx, jobs, journals, now_us, store_state
from storage.catalog import integrity as catalog_integrity
from storage.catalog.integrity import DAY_US, StoredObject
from storage.errors import DomainError
from storage.metrics import DAMAGED_BYTES
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

VERIFY_BATCH = 100
"""Objects whose verification is recorded in one transaction."""
JOURNALS_SETTLED_US = 120_000_000
"""Age below which a journal may still be on its way to a bucket."""
MIN_OBJECT_BYTES = 4096
"""Bytes that an object counts at least, since each request costs something."""
RETRY_US = 900_000_000
"""Time between two attempts to repair an object."""
CURSOR_KEY = "scrub"
"""Key of `store_state`: how far journals and purge markers were read."""


def find_object_damage(
    stores: Stores, replica: Replica, key: str, beat: Heartbeat = ignore_progress
) -> str | None:
    """Return what is wrong with an object, or None; a manifest is judged with its journal."""
    if (journal := keys.parse_journal(key)) is not None:
        return journal_copies.find_journal_damage(stores, replica, journal)
    if keys.parse_journal_manifest(key) is not None:
        return None
    return integrity.find_damage(stores, replica, key, beat)


def is_object_expected(stores: Stores, replica: Replica, key: str) -> bool:
    """Return whether the catalog says that a replica holds an object."""
    journal = keys.parse_journal(key) or keys.parse_journal_manifest(key)
    if journal is None:
        return integrity.is_expected(stores, replica, key)
    with stores.catalog.read() as tx:
        found = journals.find(tx, journal)
    return found is not None and found.state == "current"


def repair_stored_object(
    stores: Stores, replica: Replica, key: str, beat: Heartbeat = ignore_progress
) -> RepairOutcome:
    """Repair an object if it is damaged; see `integrity.repair_object`."""
    journal = keys.parse_journal(key) or keys.parse_journal_manifest(key)
    if journal is None:
        return integrity.repair_object(stores, replica, key, beat)
    if journal_copies.find_journal_damage(stores, replica, journal) is None:
        return "intact"
    journal_copies.repair_journal(stores, replica, journal)
    return "repaired"


def list_stored_objects(stores: Stores, replica: Replica, after: str = "") -> Iterator[BlobInfo]:
    """Yield what a bucket holds or should hold, in order of keys from a key on.

    A missing object has no pin and no size.
    """
    key_of = attrgetter("key")
    for prefix, expected in _list_expected_keys(stores, replica).items():
        if after < prefix + "~":
            listing = stores.replicas[replica].list(prefix, after=max(after, prefix))
            missing = (BlobInfo(key, 0, "") for key in expected if key > after)
            # Of two objects with one key, the listed one comes first.
            for _, same in groupby(heapq.merge(listing, missing, key=key_of), key_of):
                yield next(same)


def _list_expected_keys(stores: Stores, replica: Replica) -> dict[str, Iterator[str]]:
    """Return the keys that the catalog expects in a bucket, by prefix, both in order."""

    def list_blobs(tx: Tx, after: str, _before_us: int) -> list[str]:
        return catalog_integrity.list_expected_blobs(tx, replica, after, limit=SWEEP_BATCH)

    def list_versions(section: catalog_integrity.RecordSection, kind: keys.Kind) -> Iterator[FQID]:
        def page(tx: Tx, after: FQID, _before_us: int) -> list[FQID]:
            return catalog_integrity.list_expected(
                tx, section, kind, replica, after, limit=SWEEP_BATCH
            )

        return iterate_pages(stores, page, FQID("", ""), settled_us=0)

    sections: dict[str, Iterator[str]] = {
        keys.BLOBS: map(keys.blob_key, iterate_pages(stores, list_blobs, "", settled_us=0)),
        keys.JOURNALS: (
            name.partition(" ")[0]
            for origin in sorted(REPLICAS)
            for name in journal_copies.list_expected_objects(
                stores, origin, settled_us=JOURNALS_SETTLED_US
            )
        ),
        keys.PURGE_MARKERS: (
            keys.purge_marker_key(kind, fqid.uuid, fqid.version or None)
            for kind in sorted(keys.KINDS)
            for fqid in list_versions("purge", kind)
        ),
        keys.TOMBSTONES: (
            keys.tombstone_key(kind, fqid.uuid, fqid.version or None)
            for kind in sorted(keys.KINDS)
            for fqid in list_versions("tombstone", kind)
        ),
    }
    for kind in keys.KINDS:
        versions = list_versions("record", kind)
        sections[keys.record_prefix(kind)] = map(partial(keys.record_key, kind), versions)
    return dict(sorted(sections.items()))


def list_journals_and_purges(stores: Stores, replica: Replica) -> Iterator[str]:
    """Yield keys of journals, their manifests and purge markers that a bucket should hold."""
    sections = _list_expected_keys(stores, replica)
    return chain(sections[keys.JOURNALS], sections[keys.PURGE_MARKERS])


@dataclass(frozen=True, slots=True)
class ScrubFinding:
    """One damaged object."""

    replica: Replica
    key: str
    reason: str
    repaired: bool


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Objects and bytes of one replica that were read, and those that are damaged."""

    replica: Replica
    objects: int
    size: int
    damaged: tuple[ScrubFinding, ...]


def verify_replica(
    stores: Stores, replica: Replica, *, rng: Random, share: float = 1.0, repair: bool = False
) -> VerificationResult:
    """Read a share of a bucket again, and record the result in the catalog."""
    objects = size = 0
    damaged: list[ScrubFinding] = []
    intact: dict[str, int] = {}
    for info in list_stored_objects(stores, replica):
        if share < 1.0 and rng.random() >= share:
            continue
        objects, size = objects + 1, size + info.size
        found = verify_object(stores, replica, info.key, repair=repair)
        if found is None:
            intact[info.key] = info.size
        else:
            damaged.append(found)
        if len(intact) >= VERIFY_BATCH:
            record_intact(stores, replica, intact)
            intact = {}
    record_intact(stores, replica, intact)
    return VerificationResult(replica, objects, size, tuple(damaged))


def record_intact(stores: Stores, replica: Replica, sizes: Mapping[str, int]) -> None:
    """Record that objects of these sizes were read just now, and were intact."""
    if sizes:
        with stores.catalog.write(durable=False) as tx:
            catalog_integrity.record_verified(tx, replica, sizes, size=sum(sizes.values()))


def verify_object(
    stores: Stores,
    replica: Replica,
    key: str,
    beat: Heartbeat = ignore_progress,
    *,
    repair: bool,
) -> ScrubFinding | None:
    """Read one object again; record damage, and repair it on request."""
    reason = find_object_damage(stores, replica, key, beat)
    if reason is None:
        return None
    with stores.catalog.write() as tx:
        is_new = catalog_integrity.record_damage(tx, replica, key, reason)
    if is_new:
        DAMAGED_BYTES.labels(replica).inc(integrity.find_expected_size(stores, key))
    found = ScrubFinding(replica, key, reason, repair and _try_repair(stores, replica, key, beat))
    log.error("%s in %s: %s%s", key, replica, reason, "; repaired" if found.repaired else "")
    return found


def _try_repair(stores: Stores, replica: Replica, key: str, beat: Heartbeat) -> bool:
    try:
        if repair_stored_object(stores, replica, key, beat) == "lost":
            return False
    except DomainError as error:
        log.warning("%s in %s is not repaired: %s", key, replica, error.detail)
        return False
    with stores.catalog.write() as tx:
        catalog_integrity.record_verified(tx, replica, [key])
    return True


def run_repair_job(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Run a repair job: examine one object, and repair it if it is damaged."""
    replica, key = flow.job_replica(claim.job), claim.job.ref
    if verify_object(stores, replica, key, beat, repair=True) is None:
        close_damage(stores, replica, key)
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def close_damage(stores: Stores, replica: Replica, key: str) -> None:
    """Take an object off the list of damage: it is intact, or was removed on purpose."""
    is_expected = is_object_expected(stores, replica, key)
    with stores.catalog.write() as tx:
        if is_expected:
            catalog_integrity.record_verified(tx, replica, [key])
        else:
            catalog_integrity.forget_object(tx, replica, key)


class ScrubStopped(Exception):
    """The scrub was stopped."""


@dataclass(frozen=True, slots=True)
class ScrubBudget:
    """How much the scrub may read; 0 bytes disable it.

    An object is due again after half of the period, so that all are verified within it.
    """

    bytes_per_s: int
    bytes_per_day: int
    period_days: float


@dataclass
class ReadRateLimiter:
    """Limits the bytes read per second. `wait` sleeps, and returns true to stop."""

    bytes_per_s: int
    wait: Callable[[float], bool]
    clock: Callable[[], float] = time.monotonic
    _free_at: float = field(default=0.0, init=False)

    def spend(self, size: int) -> None:
        """Wait until so many bytes more are within the limit; raise ScrubStopped to stop."""
        now = self.clock()
        self._free_at = max(self._free_at, now) + size / self.bytes_per_s
        if self.wait(max(0.0, self._free_at - now)):
            raise ScrubStopped


class ScrubRun:
    """One run of the scrub, with what it read and found."""

    def __init__(self, stores: Stores, budget: ScrubBudget, pace: ReadRateLimiter) -> None:
        self._stores, self._budget, self._pace = stores, budget, pace
        self._read = 0
        self.objects = self.bytes = 0
        self.damaged: list[ScrubFinding] = []

    def run(self, turn_s: float) -> None:
        """Verify what is due for about `turn_s` seconds, or until today's bytes are spent."""
        ends = self._pace.clock() + turn_s
        try:
            self._retry_repairs()
            while self._pace.clock() < ends:
                with self._stores.catalog.read() as tx:
                    room = catalog_integrity.compute_allowance(tx, self._budget.bytes_per_day)
                if room <= 0:
                    return
                if batch := self._find_due():
                    self._verify_batch(batch, room)
                elif not self._verify_journals(room):
                    return
        except ScrubStopped:
            log.info("scrub: stopped")

    def _before_us(self, now: int) -> int:
        return now - int(self._budget.period_days * DAY_US / 2)

    def _retry_repairs(self) -> None:
        """Try again to repair known damage."""
        with self._stores.catalog.read() as tx:
            before = now_us(tx) - RETRY_US
            found = catalog_integrity.list_damaged(tx, before_us=before, limit=VERIFY_BATCH)
        for one in found:
            _, intact = self._verify_one(one.replica, one.key)
            if intact:
                close_damage(self._stores, one.replica, one.key)

    def _find_due(self) -> list[StoredObject]:
        """Return the objects of either replica that are due, oldest verification first."""
        with self._stores.catalog.read() as tx:
            before = self._before_us(now_us(tx))
            due = [
                one
                for name in REPLICAS
                for one in catalog_integrity.list_due(tx, name, before, limit=VERIFY_BATCH)
            ]
        return sorted(due, key=lambda one: one.verified_us)[:VERIFY_BATCH]

    def _verify_batch(self, batch: list[StoredObject], room: int) -> None:
        """Verify objects while there is room; record the intact ones, also when stopped."""
        intact: dict[Replica, dict[str, int]] = {name: {} for name in REPLICAS}
        try:
            for one in batch:
                if room <= 0:
                    break
                size, right = self._verify_one(one.replica, one.key)
                room -= size
                if right:
                    intact[one.replica][one.key] = size
        finally:
            for replica, sizes in intact.items():
                record_intact(self._stores, replica, sizes)

    def _verify_one(self, replica: Replica, key: str) -> tuple[int, bool]:
        """Verify and repair one object; return the bytes read, and whether it was intact before."""
        self._read = 0
        found = verify_object(self._stores, replica, key, self._spend, repair=True)
        if (rest := MIN_OBJECT_BYTES - self._read) > 0:
            self._spend(rest)
        self.objects, self.bytes = self.objects + 1, self.bytes + self._read
        if found is not None:
            self.damaged.append(found)
            with self._stores.catalog.write(durable=False) as tx:
                catalog_integrity.add_totals(tx, replica, bytes=self._read)
        return self._read, found is None

    def _spend(self, size: int) -> None:
        self._read += size
        self._pace.spend(size)

    def _verify_journals(self, room: int) -> bool:
        """Verify some journals and purge markers; return False if no more of them are due."""
        with self._stores.catalog.read() as tx:
            place = store_state.read_value(tx, CURSOR_KEY) or ""
            before = self._before_us(now_us(tx))
        state, _, after = place.partition(" ")
        if state.isdecimal() and int(state) > before:
            return False
        replica = next((one for one in REPLICAS if one == state), REPLICAS[0])
        reached = self._walk(replica, after if replica == state else "", room)
        with self._stores.catalog.write(durable=False) as tx:
            store_state.write_value(tx, CURSOR_KEY, reached or str(now_us(tx)))
        return reached is not None

    def _walk(self, replica: Replica, after: str, room: int) -> str | None:
        """Verify objects after a key; return where to continue, None after the last replica."""
        size = 0
        listed = list_stored_objects(self._stores, replica, max(after, keys.JOURNALS))
        prefixes = (keys.JOURNALS, keys.PURGE_MARKERS)
        for info in takewhile(lambda one: one.key.startswith(prefixes), listed):
            key = info.key
            read, intact = self._verify_one(replica, key)
            if intact:
                record_intact(self._stores, replica, {key: read})
            size += read
            if size >= min(room, VERIFY_BATCH * MIN_OBJECT_BYTES):
                return f"{replica} {key}"
        later = REPLICAS.index(replica) + 1
        return None if later == len(REPLICAS) else f"{REPLICAS[later]} "


def run_scrub(
    stores: Stores, budget: ScrubBudget, pace: ReadRateLimiter, *, turn_s: float
) -> ScrubRun:
    """Run one turn of the scrub."""
    turn = ScrubRun(stores, budget, pace)
    if budget.bytes_per_s > 0 and budget.bytes_per_day > 0:
        turn.run(turn_s)
    return turn
