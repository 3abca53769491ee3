"""Scrub: verify stored objects within a read budget, and repair damaged ones.

Blobs and records are judged and repaired by `keeping/integrity.py`, journals with their manifests
by `journalling/journal_copies.py`, which can also make them anew.

`ops verify` reads a whole bucket, the scrub (`scrub.py`) one object after the other within its
budget, and a repair job (REPAIR, ordered by reads and sweeps) a single one. All call `examine`.
Without an intact copy in the other replica an object stays as it is, listed as damaged.

Damaged objects are repaired from the other replica. What cannot be repaired stays as it is, is
listed as damaged, and is tried again later. Journals and purge markers are read in the order of
their keys once per half period.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from pipelines import flow, integrity, journal_copies
from pipelines.copies import Heartbeat, ignore_progress
from pipelines.integrity import RepairOutcome
from pipelines.sweeps import SWEEP_BATCH, iterate_pages
from storage import keys
from storage.catalog import Tx, expected_objects, jobs, journals, now_us, store_state
from storage.catalog import integrity as catalog_integrity
from storage.catalog.integrity import DAY_US, StoredObject
from storage.errors import StoreError
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

JOURNALS_SETTLED_US = 120_000_000
"""Age below which a journal may still be on its way to a bucket."""

VersionListing = Callable[..., list[FQID]]
"""`records_after` of the expected objects, or its like for tombstones and purges."""


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
    for prefix, known in _list_sections(stores, replica):
        if after < prefix + "~":
            listing = stores.replicas[replica].list(prefix, after=max(after, prefix))
            yield from _merge_listings(listing, (key for key in known() if key > after))


def _list_sections(
    stores: Stores, replica: Replica
) -> list[tuple[str, Callable[[], Iterator[str]]]]:
    """Prefixes in order, each with the keys that the catalog expects below it."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        keys.BLOBS: partial(_list_blobs, stores, replica),
        keys.JOURNALS: partial(_list_journals, stores),
        keys.PURGE_MARKERS: partial(
            _list_markers, stores, replica, keys.purge_marker_key, expected_objects.list_purges
        ),
        keys.TOMBSTONES: partial(
            _list_markers, stores, replica, keys.tombstone_key, expected_objects.list_tombstones
        ),
    }
    for kind in keys.KINDS:
        sections[keys.record_prefix(kind)] = partial(_list_records, stores, replica, kind)
    return sorted(sections.items())


def list_journals_and_purges(stores: Stores, replica: Replica) -> Iterator[str]:
    """Yield keys of journals, their manifests and purge markers that a bucket should hold."""
    for prefix, known in _list_sections(stores, replica):
        if prefix in (keys.JOURNALS, keys.PURGE_MARKERS):
            yield from known()


def _merge_listings(listing: Iterator[BlobInfo], known: Iterator[str]) -> Iterator[BlobInfo]:
    """Yield what is listed, and what is not listed but known, in order of keys."""
    wanted = next(known, None)
    for info in listing:
        while wanted is not None and wanted < info.key:
            yield BlobInfo(wanted, 0, "")
            wanted = next(known, None)
        if wanted == info.key:
            wanted = next(known, None)
        yield info
    while wanted is not None:
        yield BlobInfo(wanted, 0, "")
        wanted = next(known, None)


def _list_blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    def page(tx: Tx, after: str, _before_us: int) -> list[str]:
        return expected_objects.list_blobs(tx, replica, after, limit=SWEEP_BATCH)

    return map(keys.blob_key, iterate_pages(stores, page, "", settled_us=0))


def _list_records(stores: Stores, replica: Replica, kind: keys.Kind) -> Iterator[str]:
    for fqid in _list_versions(stores, replica, kind, expected_objects.list_records):
        yield keys.record_key(kind, fqid)


def _list_markers(
    stores: Stores,
    replica: Replica,
    key_of: Callable[[keys.Kind, str, str | None], str],
    listed: VersionListing,
) -> Iterator[str]:
    for kind in sorted(keys.KINDS):
        for fqid in _list_versions(stores, replica, kind, listed):
            yield key_of(kind, fqid.uuid, fqid.version or None)


def _list_versions(
    stores: Stores, replica: Replica, kind: keys.Kind, listed: VersionListing
) -> Iterator[FQID]:
    def page(tx: Tx, after: FQID, _before_us: int) -> list[FQID]:
        return listed(tx, kind, replica, after, limit=SWEEP_BATCH)

    return iterate_pages(stores, page, FQID("", ""), settled_us=0)


def _list_journals(stores: Stores) -> Iterator[str]:
    for replica in sorted(REPLICAS):
        for name in journal_copies.list_expected_objects(
            stores, replica, settled_us=JOURNALS_SETTLED_US
        ):
            yield name.partition(" ")[0]


VERIFY_BATCH = 100
"""Objects whose verification is recorded in one transaction."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScrubFinding:
    """One object that is not what it should be; `repaired` says what became of it."""

    replica: Replica
    key: str
    reason: str
    repaired: bool


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Objects and bytes of one replica that were read again, and those that are damaged."""

    replica: Replica
    objects: int
    size: int
    damaged: tuple[ScrubFinding, ...]


def verify_replica(
    stores: Stores, replica: Replica, *, rng: Random, share: float = 1.0, repair: bool = False
) -> VerificationResult:
    """Read a share of what a bucket holds again, and record in the catalog what was found."""
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
    """Record that objects were read just now, so many bytes each, and were right."""
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
    """Read one object again. Damage is recorded, and repaired if that is wanted."""
    reason = find_object_damage(stores, replica, key, beat)
    if reason is None:
        return None
    with stores.catalog.write() as tx:
        catalog_integrity.record_damage(tx, replica, key, reason)
    found = ScrubFinding(replica, key, reason, repair and _try_repair(stores, replica, key, beat))
    log.error("%s in %s: %s%s", key, replica, reason, "; repaired" if found.repaired else "")
    return found


def _try_repair(stores: Stores, replica: Replica, key: str, beat: Heartbeat) -> bool:
    try:
        if repair_stored_object(stores, replica, key, beat) == "lost":
            return False
    except StoreError as error:
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


MIN_OBJECT_BYTES = 4096
"""Bytes that an object counts at least: asking for it costs something too."""
RETRY_US = 900_000_000
"""Time between two attempts to repair an object."""
CURSOR_KEY = "scrub"
"""The switch that holds how far journals and purge markers were read."""


class ScrubStopped(Exception):
    """The scrub was stopped."""


@dataclass(frozen=True, slots=True)
class ScrubBudget:
    """How much the scrub may read; 0 bytes: nothing. An object is due again after half of the
    period, so that all are verified within it."""

    bytes_per_s: int
    bytes_per_day: int
    period_days: float


@dataclass
class ReadRateLimiter:
    """Holds reading to a number of bytes per second. `wait` sleeps, and is true to stop."""

    bytes_per_s: int
    wait: Callable[[float], bool]
    clock: Callable[[], float] = time.monotonic
    _free_at: float = field(default=0.0, init=False)

    def spend(self, size: int) -> None:
        """Wait until so many bytes more are within the budget; Stopped when told to stop."""
        now = self.clock()
        self._free_at = max(self._free_at, now) + size / self.bytes_per_s
        if self.wait(max(0.0, self._free_at - now)):
            raise ScrubStopped


class ScrubRun:
    """One run of the scrub: what it read, and what it found."""

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
            while self._pace.clock() < ends and (room := self._remaining_bytes()) > 0:
                batch = self._find_due()
                if batch:
                    self._verify_batch(batch, room)
                elif not self._verify_journals(room):
                    return
        except ScrubStopped:
            log.info("scrub: stopped")

    def _remaining_bytes(self) -> int:
        with self._stores.catalog.read() as tx:
            return catalog_integrity.compute_allowance(tx, self._budget.bytes_per_day)

    def _before_us(self, now: int) -> int:
        return now - int(self._budget.period_days * DAY_US / 2)

    def _retry_repairs(self) -> None:
        """Try again to repair what was found damaged before."""
        with self._stores.catalog.read() as tx:
            before = now_us(tx) - RETRY_US
            found = catalog_integrity.list_damaged(tx, before_us=before, limit=VERIFY_BATCH)
        for one in found:
            _, intact = self._verify_one(one.replica, one.key)
            if intact:
                close_damage(self._stores, one.replica, one.key)

    def _find_due(self) -> list[StoredObject]:
        """The next objects of either replica."""
        with self._stores.catalog.read() as tx:
            before = self._before_us(now_us(tx))
            due = [
                one
                for name in REPLICAS
                for one in catalog_integrity.list_due(tx, name, before, limit=VERIFY_BATCH)
            ]
        return sorted(due, key=lambda one: one.verified_us)[:VERIFY_BATCH]

    def _verify_batch(self, batch: list[StoredObject], room: int) -> None:
        """Verify objects while there is room; record those that are right, also when stopped."""
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
        """Read one object again and repair it if it is damaged; returns the bytes that were read,
        and whether it was right at once."""
        self._read = 0
        found = verify_object(self._stores, replica, key, self._spend, repair=True)
        if (rest := MIN_OBJECT_BYTES - self._read) > 0:
            self._spend(rest)
        self.objects, self.bytes = self.objects + 1, self.bytes + self._read
        if found is not None:
            self.damaged.append(found)
            with self._stores.catalog.write(durable=False) as tx:
                catalog_integrity.record_bytes_read(tx, replica, self._read)
        return self._read, found is None

    def _spend(self, size: int) -> None:
        self._read += size
        self._pace.spend(size)

    def _verify_journals(self, room: int) -> bool:
        """Read some journals and purge markers; False when no more of them are due."""
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
        """Examine objects after a key; returns where to go on, None at the end of the last."""
        size = 0
        for key in self._list_rest(replica, after):
            read, intact = self._verify_one(replica, key)
            if intact:
                record_intact(self._stores, replica, {key: read})
            size += read
            if size >= min(room, VERIFY_BATCH * MIN_OBJECT_BYTES):
                break
        else:
            later = REPLICAS.index(replica) + 1
            key = ""
            return None if later == len(REPLICAS) else f"{REPLICAS[later]} "
        return f"{replica} {key}"

    def _list_rest(self, replica: Replica, after: str) -> Iterator[str]:
        for info in list_stored_objects(self._stores, replica, max(after, keys.JOURNALS)):
            if not info.key.startswith((keys.JOURNALS, keys.PURGE_MARKERS)):
                return
            yield info.key


def run_scrub(
    stores: Stores, budget: ScrubBudget, pace: ReadRateLimiter, *, turn_s: float
) -> ScrubRun:
    """Run one turn of the scrub."""
    turn = ScrubRun(stores, budget, pace)
    if budget.bytes_per_s > 0 and budget.bytes_per_day > 0:
        turn.run(turn_s)
    return turn
