"""Read records and journals of a bucket, for rebuild and reconcile.

Objects that the catalog knows are not read again, so an interrupted rebuild continues. Memory holds
one batch.

A bucket may hold an event several times: in small journals beside the one that they were merged
into, or in a redacted journal beside the original. The journal that reaches furthest is imported,
and of several with the same range the latest; the others are marked past. Numbers in a journal's
name are never assigned again, even if the journal is damaged.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from pipelines import records
from pipelines.journals import parse_manifest
from storage import keys
from storage.catalog import Tx, events, journals, recovery, store_state
from storage.catalog.events import EVENT_TYPES, SequencedEvent
from storage.errors import (
    ConflictError,
    DamagedObjectError,
    DomainError,
    NotFoundError,
    Unavailable,
)
from storage.keys import JournalKey
from storage.model import REPLICAS, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

READ_BATCH, READ_BATCH_BYTES = 500, 32 * 1024 * 1024
"""Objects, and bytes of them, that are read for one transaction."""
MAX_RECORD_BYTES = 512 * 1024 * 1024
"""Larger objects are no records."""
MAX_NAMED_OBJECTS = 50
"""Refused objects that a tally names; the log has all."""
MAX_EVENT_NUMBER = 10**15
"""Higher numbers are forged: one name in a bucket must not use up all that are left."""
LEASE, LEASE_S = "rebuild", 120.0
FOREIGN_NAME = "Its name is not one that the store gives."

Key = TypeVar("Key")
Record = TypeVar("Record")


@contextmanager
def name_failing_bucket(replica: Replica) -> Iterator[None]:
    """Name the bucket in errors of unavailability: nothing is known of what it holds."""
    try:
        yield
    except Unavailable as error:
        detail = f"Bucket {replica} does not answer: {error.detail}"
        raise Unavailable(detail, retry_after_s=error.retry_after_s) from error


def list_bucket(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """Yield the objects under a prefix."""
    with name_failing_bucket(replica):
        yield from stores.replicas[replica].list(prefix)


def read_record(stores: Stores, replica: Replica, key: str) -> bytes:
    """Return all bytes of a record."""
    with name_failing_bucket(replica):
        return records.read_object(stores.replicas[replica], key)


def find_replicas_without(stores: Stores, key: str) -> list[Replica]:
    """Return the replicas whose bucket lacks a record."""
    lacking: list[Replica] = []
    for replica, bucket in stores.replicas.items():
        with name_failing_bucket(replica):
            if not records.has_object(bucket, key):
                lacking.append(replica)
    return lacking


@dataclass
class RebuildTally:
    """Objects of one kind in one bucket: known before, imported, refused."""

    kind: str
    replica: Replica
    known: int = 0
    imported: int = 0
    refused: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    """The first refused objects, with reasons."""

    def refuse(self, key: str, reason: str) -> None:
        """Count an object that is not imported and stays in the bucket, for the operator."""
        self.refused += 1
        log.warning("%s in %s is not imported: %s", key, self.replica, reason)
        if len(self.named) < MAX_NAMED_OBJECTS:
            self.named.append((key, reason))


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """One rebuild from one bucket; `floor` is the lowest new change count."""

    stores: Stores
    replica: Replica
    token: str
    floor: int

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Open a transaction under the lease; ConflictError if another rebuild has it."""
        with self.stores.catalog.write() as tx:
            if not store_state.acquire_lease(tx, LEASE, token=self.token, lease_s=LEASE_S):
                raise ConflictError("Another rebuild of this catalog is running.")
            yield tx

    def end(self) -> None:
        """Release the lease."""
        with self.stores.catalog.write() as tx:
            store_state.release_lease(tx, LEASE, token=self.token)


def list_batches(
    run: RebuildRun, prefix: str, parse: Callable[[str], Key | None], tally: RebuildTally
) -> Iterator[list[tuple[Key, str]]]:
    """Yield batches of parsed and plain keys under a prefix; refuse foreign objects."""
    batch: list[tuple[Key, str]] = []
    size = 0
    for info in run.stores.replicas[run.replica].list(prefix):
        key = parse(info.key)
        if key is None or info.size > MAX_RECORD_BYTES:
            tally.refuse(info.key, FOREIGN_NAME if key is None else "It is too large for a record.")
            continue
        if batch and (len(batch) == READ_BATCH or size + info.size > READ_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((key, info.key))
        size += info.size
    if batch:
        yield batch


def import_batch(
    run: RebuildRun,
    batch: Sequence[tuple[Key, str]],
    parse: Callable[[Key, bytes], Record],
    save: Callable[[RebuildRun, Tx, Sequence[Record]], None],
    tally: RebuildTally,
) -> None:
    """Read a batch and save it in one transaction.

    If a record cannot be saved, each is saved by itself, so that only bad ones are refused.
    """
    parsed = _read_batch(run, batch, parse, tally)
    if not parsed:
        return
    with run.transaction() as tx:
        try:
            with recovery.begin_savepoint(tx):
                save(run, tx, [record for _, record in parsed])
            tally.imported += len(parsed)
            return
        except DamagedObjectError:
            pass
        for name, record in parsed:
            try:
                with recovery.begin_savepoint(tx):
                    save(run, tx, [record])
                tally.imported += 1
            except DamagedObjectError as error:
                tally.refuse(name, error.detail)


def _read_batch(
    run: RebuildRun,
    batch: Sequence[tuple[Key, str]],
    parse: Callable[[Key, bytes], Record],
    tally: RebuildTally,
) -> list[tuple[str, Record]]:
    """Read the records of a batch in parallel; refuse those that are unreadable."""

    def read(listed: tuple[Key, str]) -> Record | DomainError:
        key, name = listed
        try:
            return parse(key, records.read_object(run.stores.replicas[run.replica], name))
        except Unavailable:
            raise
        except DomainError as error:
            return error

    with ThreadPoolExecutor(run.stores.copy_parallel) as pool:
        results = list(pool.map(read, batch))
    parsed = []
    for (_, name), record in zip(batch, results, strict=True):
        if isinstance(record, DomainError):
            tally.refuse(name, record.detail)
        else:
            parsed.append((name, record))
    return parsed


# Journals ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalCandidate:
    """A journal in the bucket; it is whole if its manifest exists."""

    key: JournalKey
    size: int
    whole: bool


def import_journals(run: RebuildRun) -> RebuildTally:
    """Import the events of both replicas: each bucket has the journals of both."""
    tally = RebuildTally("journal", run.replica)
    for replica in REPLICAS:
        covered = highest = 0
        for group in _group_by_first(run, replica, tally):
            highest = max(highest, *(one.key.last for one in group))
            covered = _import_group(run, replica, group, covered, tally)
        with run.transaction() as tx:
            journals.lock(tx, replica)
            journals.raise_sequence_floor(tx, replica, highest)
    return tally


def _group_by_first(
    run: RebuildRun, replica: Replica, tally: RebuildTally
) -> Iterator[list[JournalCandidate]]:
    """Yield the journals that begin at one number, longest first, in order of that number."""
    for _, found in groupby(_list_journals(run, replica, tally), lambda one: one[0].first):
        seen = list(found)
        sizes = {key: size for key, manifest, size in seen if not manifest}
        whole = {key for key, manifest, _ in seen if manifest}
        for key in sorted(whole - sizes.keys(), key=str):
            tally.refuse(keys.journal_manifest_key(key), "The lines of this journal are not here.")
        group = [
            JournalCandidate(key, sizes.get(key, 0), key in whole) for key in whole | sizes.keys()
        ]
        yield sorted(group, key=lambda one: (one.key.last, one.key.generation), reverse=True)


def _list_journals(
    run: RebuildRun, replica: Replica, tally: RebuildTally
) -> Iterator[tuple[JournalKey, bool, int]]:
    """Yield (journal, whether the object is its manifest, size of the object)."""
    for info in list_bucket(run.stores, run.replica, keys.journal_prefix(replica)):
        key, manifest = keys.parse_journal(info.key), keys.parse_journal_manifest(info.key)
        known = key or manifest
        if known is None or known.last > MAX_EVENT_NUMBER:
            tally.refuse(info.key, FOREIGN_NAME)
        elif key is not None:
            yield key, False, info.size
        elif manifest is not None:
            yield manifest, True, info.size


def _import_group(
    run: RebuildRun,
    replica: Replica,
    group: list[JournalCandidate],
    covered: int,
    tally: RebuildTally,
) -> int:
    """Import the first usable journal of a group; return the last number that is covered then."""
    first = group[0].key.first
    for one in group:
        if one.key.last <= covered:
            _mark_superseded(run, replica, one)
        elif not one.whole or not one.size:
            tally.refuse(str(one.key), "The journal is not whole.")
        elif _import_journal(run, replica, one, tally):
            if first > covered + 1:
                missing = (
                    f"The numbers {covered + 1} to {first - 1} of {replica} are in no journal."
                )
                tally.refuse(keys.journal_prefix(replica), missing)
            covered = one.key.last
    return covered


def _mark_superseded(run: RebuildRun, replica: Replica, one: JournalCandidate) -> None:
    with run.transaction() as tx:
        journals.lock(tx, replica)
        # Another journal has its numbers.
        journals.insert_journal(tx, replica, one.key, one.size, state="past")


def _import_journal(
    run: RebuildRun, replica: Replica, one: JournalCandidate, tally: RebuildTally
) -> bool:
    """Import a journal unless its events are known; return False if it is damaged."""
    with run.stores.catalog.read() as tx:
        is_known = journals.is_known(tx, replica, one.key)
    if is_known:
        tally.known += 1
        _mark_superseded(run, replica, one)
        return True
    try:
        listed = _read_events(run, one)
        with run.transaction() as tx:
            journals.lock(tx, replica)
            with recovery.begin_savepoint(tx):
                is_new = journals.adopt(tx, one.key, one.size, listed)
    except (DamagedObjectError, NotFoundError) as error:
        tally.refuse(str(one.key), error.detail)
        return False
    tally.imported += is_new
    tally.known += not is_new
    return True


def _read_events(run: RebuildRun, one: JournalCandidate) -> list[SequencedEvent]:
    """Read a manifest and check it against the journal's key and size."""
    data = read_record(run.stores, run.replica, keys.journal_manifest_key(one.key))
    try:
        listed = parse_manifest(data)
        is_consistent = _is_consistent(one, listed)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedObjectError("The manifest of this journal cannot be read.") from error
    if not is_consistent:
        raise DamagedObjectError("The manifest belongs to another journal.")
    return listed


def _is_consistent(one: JournalCandidate, listed: list[SequencedEvent]) -> bool:
    numbers = [each.seq for each in listed]
    ends = [(each.offset or 0) + (each.size or 0) + 1 for each in listed]
    return (
        bool(listed)
        and (numbers[0], numbers[-1]) == (one.key.first, one.key.last)
        and numbers == sorted(set(numbers))
        and [0, *ends] == [each.offset for each in listed] + [one.size]
        and all(
            event.replica == one.key.replica
            and event.type in EVENT_TYPES
            and event.id == events.make_event_id(event.type, event.replica, event.fqid)
            for event in (each.event for each in listed)
        )
    )
