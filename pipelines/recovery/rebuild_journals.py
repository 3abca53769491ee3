"""Import journals from a bucket, with their events, sequence numbers and times.

A bucket may hold a run of events several times: small journals beside the one that they were merged
into, one that was written anew beside the former. The one that reaches furthest is taken, of two of
the same run the later; what it makes superfluous is dropped in its time. Whatever is missing,
numbers that a journal's name tells are never given again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pipelines import journal_format
from pipelines.recovery import bucket_reader
from pipelines.recovery.bucket_reader import RebuildRun, RebuildTally
from storage import keys
from storage.catalog import events, journals, recovery
from storage.catalog.events import EVENT_TYPES, SequencedEvent
from storage.errors import DamagedObjectError, NotFound
from storage.keys import JournalKey
from storage.model import REPLICAS, Replica

MAX_EVENT_NUMBER = 10**15
"""No store came to this number of events. One name in a bucket must not use the numbers up that are
left."""


@dataclass(frozen=True, slots=True)
class JournalCandidate:
    """A journal in the bucket; whole where its manifest is, too."""

    key: JournalKey
    size: int
    whole: bool


def import_journals(run: RebuildRun) -> RebuildTally:
    """The events of both replicas: each bucket has the journals of both."""
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
    """What begins at one number, the one that reaches furthest first; by that number."""
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
    """(journal, whether this is its manifest, size of the object)."""
    for info in bucket_reader.list_bucket(run.stores, run.replica, keys.journal_prefix(replica)):
        key, manifest = keys.parse_journal(info.key), keys.parse_journal_manifest(info.key)
        known = key or manifest
        if known is None or known.last > MAX_EVENT_NUMBER:
            tally.refuse(info.key, "Its name is none that the store gives.")
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
    """The last number that is covered after this group."""
    first = group[0].key.first
    for one in group:
        if one.key.last <= covered:
            _mark_superseded(run, replica, one)
        elif not one.whole or not one.size:
            tally.refuse(str(one.key), "The journal is not whole.")
        elif _is_known(run, replica, one, tally) or _import_journal(run, replica, one, tally):
            if first > covered + 1:
                missing = (
                    f"The numbers {covered + 1} to {first - 1} of {replica} are in no journal."
                )
                tally.refuse(keys.journal_prefix(replica), missing)
            covered = one.key.last
    return covered


def _is_known(
    run: RebuildRun, replica: Replica, one: JournalCandidate, tally: RebuildTally
) -> bool:
    with run.stores.catalog.read() as tx:
        known = journals.is_known(tx, replica, one.key)
    if known:
        tally.known += 1
        _mark_superseded(run, replica, one)
    return known


def _mark_superseded(run: RebuildRun, replica: Replica, one: JournalCandidate) -> None:
    with run.transaction() as tx:
        journals.lock(tx, replica)
        journals.insert_past(tx, replica, one.key, one.size)


def _import_journal(
    run: RebuildRun, replica: Replica, one: JournalCandidate, tally: RebuildTally
) -> bool:
    try:
        found = _read_events(run, one)
        with run.transaction() as tx:
            journals.lock(tx, replica)
            with recovery.begin_savepoint(tx):
                fresh = journals.adopt(tx, one.key, one.size, found)
    except (DamagedObjectError, NotFound) as error:
        tally.refuse(str(one.key), error.detail)
        return False
    tally.imported += fresh
    tally.known += not fresh
    return True


def _read_events(run: RebuildRun, one: JournalCandidate) -> list[SequencedEvent]:
    """What a manifest lists, held to its key and to the size of the lines beside it."""
    data = bucket_reader.read_record(run.stores, run.replica, keys.journal_manifest_key(one.key))
    try:
        found = journal_format.parse_manifest(data)
        good = _is_consistent(one, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedObjectError("The manifest of this journal cannot be read.") from error
    if not good:
        raise DamagedObjectError("The manifest of this journal tells of something else.")
    return found


def _is_consistent(one: JournalCandidate, found: list[SequencedEvent]) -> bool:
    numbers = [each.seq for each in found]
    ends = [(each.offset or 0) + (each.size or 0) + 1 for each in found]
    return (
        bool(found)
        and (numbers[0], numbers[-1]) == (one.key.first, one.key.last)
        and numbers == sorted(set(numbers))
        and [0, *ends] == [each.offset for each in found] + [one.size]
        and all(_is_own_event(one, each) for each in found)
    )


def _is_own_event(one: JournalCandidate, each: SequencedEvent) -> bool:
    event = each.event
    return (
        event.replica == one.key.replica
        and event.type in EVENT_TYPES
        and event.id == events.make_event_id(event.type, event.replica, event.fqid)
    )
