"""Filling a catalog from a bucket: journals, and with them events, numbers and times.

A bucket may hold a run of events several times: small journals beside the one that they were merged
into, one that was written anew beside the former. The one that reaches furthest is taken, of two of
the same run the later; what it makes superfluous is dropped in its time. Whatever is missing,
numbers that a journal's name tells are never given again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pipelines.journalling import lines
from pipelines.recovering import asking
from pipelines.recovering.rebuild_reading import Run, Tally
from storage import keys
from storage.catalog import events, journals, refilling, rejournalling
from storage.catalog.feeds import TYPES, Numbered
from storage.errors import Damaged, NotFound
from storage.keys import JournalKey
from storage.model import REPLICAS, Replica

BELIEVED = 10**15
"""No store came to this number of events. One name in a bucket must not use the numbers up that are
left."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A journal in the bucket; whole where its manifest is, too."""

    key: JournalKey
    size: int
    whole: bool


def journalled(run: Run) -> Tally:
    """The events of both replicas: each bucket has the journals of both."""
    tally = Tally("journal", run.replica)
    for replica in REPLICAS:
        covered = highest = 0
        for group in _groups(run, replica, tally):
            highest = max(highest, *(one.key.last for one in group))
            covered = _taken(run, replica, group, covered, tally)
        with run.unit() as tx:
            journals.lock(tx, replica)
            rejournalling.raise_floor(tx, replica, highest)
    return tally


def _groups(run: Run, replica: Replica, tally: Tally) -> Iterator[list[Candidate]]:
    """What begins at one number, the one that reaches furthest first; by that number."""
    for _, found in groupby(_listed(run, replica, tally), lambda one: one[0].first):
        seen = list(found)
        sizes = {key: size for key, manifest, size in seen if not manifest}
        whole = {key for key, manifest, _ in seen if manifest}
        for key in sorted(whole - sizes.keys(), key=str):
            tally.refuse(keys.journal_manifest(key), "The lines of this journal are not here.")
        group = [Candidate(key, sizes.get(key, 0), key in whole) for key in whole | sizes.keys()]
        yield sorted(group, key=lambda one: (one.key.last, one.key.generation), reverse=True)


def _listed(run: Run, replica: Replica, tally: Tally) -> Iterator[tuple[JournalKey, bool, int]]:
    """(journal, whether this is its manifest, size of the object)."""
    for info in asking.listed(run.stores, run.replica, keys.journals(replica)):
        key, manifest = keys.parse_journal(info.key), keys.parse_journal_manifest(info.key)
        known = key or manifest
        if known is None or known.last > BELIEVED:
            tally.refuse(info.key, "Its name is none that the store gives.")
        elif key is not None:
            yield key, False, info.size
        elif manifest is not None:
            yield manifest, True, info.size


def _taken(run: Run, replica: Replica, group: list[Candidate], covered: int, tally: Tally) -> int:
    """The last number that is covered after this group."""
    first = group[0].key.first
    for one in group:
        if one.key.last <= covered:
            _left(run, replica, one)
        elif not one.whole or not one.size:
            tally.refuse(str(one.key), "The journal is not whole.")
        elif _known(run, replica, one, tally) or _take(run, replica, one, tally):
            if first > covered + 1:
                missing = (
                    f"The numbers {covered + 1} to {first - 1} of {replica} are in no journal."
                )
                tally.refuse(keys.journals(replica), missing)
            covered = one.key.last
    return covered


def _known(run: Run, replica: Replica, one: Candidate, tally: Tally) -> bool:
    with run.stores.catalog.read() as tx:
        known = rejournalling.known(tx, replica, one.key)
    if known:
        tally.known += 1
        _left(run, replica, one)
    return known


def _left(run: Run, replica: Replica, one: Candidate) -> None:
    with run.unit() as tx:
        journals.lock(tx, replica)
        rejournalling.leave(tx, replica, one.key, one.size)


def _take(run: Run, replica: Replica, one: Candidate, tally: Tally) -> bool:
    try:
        found = _events(run, one)
        with run.unit() as tx:
            journals.lock(tx, replica)
            with refilling.trial(tx):
                fresh = rejournalling.take(tx, one.key, one.size, found)
    except (Damaged, NotFound) as error:
        tally.refuse(str(one.key), error.detail)
        return False
    tally.taken += fresh
    tally.known += not fresh
    return True


def _events(run: Run, one: Candidate) -> list[Numbered]:
    """What a manifest lists, held to its key and to the size of the lines beside it."""
    data = asking.whole(run.stores, run.replica, keys.journal_manifest(one.key))
    try:
        found = lines.read_manifest(data)
        good = _fits(one, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged("The manifest of this journal cannot be read.") from error
    if not good:
        raise Damaged("The manifest of this journal tells of something else.")
    return found


def _fits(one: Candidate, found: list[Numbered]) -> bool:
    numbers = [each.seq for each in found]
    ends = [(each.offset or 0) + (each.size or 0) + 1 for each in found]
    return (
        bool(found)
        and (numbers[0], numbers[-1]) == (one.key.first, one.key.last)
        and numbers == sorted(set(numbers))
        and [0, *ends] == [each.offset for each in found] + [one.size]
        and all(_ours(one, each) for each in found)
    )


def _ours(one: Candidate, each: Numbered) -> bool:
    event = each.event
    return (
        event.replica == one.key.replica
        and event.type in TYPES
        and event.id == events.event_id(event.type, event.replica, event.fqid)
    )
