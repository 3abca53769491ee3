"""Import journals from a bucket, with their events, sequence numbers and times.

A bucket may hold events several times: in small journals beside the one that they were merged into,
or in a redacted journal beside the original. The journal that reaches furthest is imported, and of
several with the same range the latest; the others are marked past. Numbers in a journal's name are
never assigned again, even if the journal is damaged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pipelines import journal_format
from pipelines.recovery import bucket_reader
from pipelines.recovery.bucket_reader import FOREIGN_NAME, RebuildRun, RebuildTally
from storage import keys
from storage.catalog import events, journals, recovery
from storage.catalog.events import EVENT_TYPES, SequencedEvent
from storage.errors import DamagedObjectError, NotFoundError
from storage.keys import JournalKey
from storage.model import REPLICAS, BundleEvent, Replica

MAX_EVENT_NUMBER = 10**15
"""Higher numbers are forged: one name in a bucket must not use up all that are left."""


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
    for info in bucket_reader.list_bucket(run.stores, run.replica, keys.journal_prefix(replica)):
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
        journals.insert_past(tx, replica, one.key, one.size)


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
    data = bucket_reader.read_record(run.stores, run.replica, keys.journal_manifest_key(one.key))
    try:
        listed = journal_format.parse_manifest(data)
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
        and all(_is_own_event(one, each.event) for each in listed)
    )


def _is_own_event(one: JournalCandidate, event: BundleEvent) -> bool:
    return (
        event.replica == one.key.replica
        and event.type in EVENT_TYPES
        and event.id == events.make_event_id(event.type, event.replica, event.fqid)
    )
