"""Draft journals from new, merged, lost or purged events without writing them.

Nothing is written here: `pipelines.journals` puts drafts into the buckets.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass

from pipelines import documents, journal_format, records
from pipelines.copies import Heartbeat
from storage import keys
from storage.catalog import Tx, events, journals
from storage.catalog.events import SequencedEvent
from storage.catalog.journals import JournalObject
from storage.errors import DamagedObjectError, NotFound, Unavailable
from storage.model import FQID, REPLICAS, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

MAX_JOURNAL_EVENTS = 1_000
"""Events of one journal: ten of them are the largest page."""
MAX_JOURNAL_BYTES = 64 * 1024 * 1024
"""Bytes beyond which nothing is added to a journal; the last document may reach beyond."""
MERGE_COUNT, MERGE_TIERS = 16, 3
"""So many small journals of one tier become one of the next; those of the last stay as they are."""


@dataclass(frozen=True, slots=True)
class JournalDraft:
    """What a journal is to hold, and which journals it takes the place of."""

    replica: Replica
    events: Sequence[SequencedEvent]
    lines: Sequence[bytes]
    tier: int
    replaced: Sequence[JournalObject] = ()
    purged: Set[FQID] | None = None
    """What was purged when the lines were made; None for lines of journals that are there."""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last number."""
        return self.events[0].seq, self.events[-1].seq


@dataclass(frozen=True, slots=True)
class JournalObjects:
    """Both objects of a journal."""

    data: bytes
    manifest: bytes


def draft_new_events(stores: Stores, replica: Replica, beat: Heartbeat) -> JournalDraft | None:
    """The events after the last journal: those that a dead worker began with, or as many as fit."""
    with stores.catalog.read() as tx:
        first = journals.find_last_sequence(tx, replica) + 1
        begun = journals.find_begun(tx, replica, first)
        until = events.MAX_SEQUENCE if begun is None else begun.last + 1
        found = events.list_range(tx, replica, first, until, limit=MAX_JOURNAL_EVENTS)
        gone = events.filter_purged(tx, {each.event.fqid for each in found})
    if not found:
        return None
    room = MAX_JOURNAL_BYTES if begun is None else None
    written = _format_lines(stores, found, gone, beat, room=room)
    return JournalDraft(replica, found[: len(written)], written, tier=0, purged=gone)


def _format_lines(
    stores: Stores,
    found: Sequence[SequencedEvent],
    gone: set[FQID],
    beat: Heartbeat,
    *,
    room: int | None,
) -> list[bytes]:
    """The lines of these events, as many as there is room for, one at least."""
    written: list[bytes] = []
    for numbered in found:
        if room is not None and room <= 0:
            break
        line = _format_line(stores, numbered, gone, beat)
        written.append(line)
        room = None if room is None else room - len(line)
        beat(len(line))
    return written


def _format_line(
    stores: Stores, numbered: SequencedEvent, gone: set[FQID], beat: Heartbeat
) -> bytes:
    event = numbered.event
    if event.fqid in gone:
        return journal_format.format_purged_line(event)
    here = [event.replica, *(replica for replica in REPLICAS if replica != event.replica)]
    for replica in here:
        try:
            with documents.open_document(stores, replica, event.bundle_id, beat) as document:
                return journal_format.format_event_line(event, document)
        except NotFound as error:
            log.warning("journal of %s: %s", event.replica, error.detail)
    # One lost file must not end the feed of a replica.
    return journal_format.format_purged_line(event)


def draft_merge(stores: Stores, replica: Replica, _beat: Heartbeat) -> JournalDraft | None:
    """The oldest small journals as one, without reading a document."""
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        few = _select_mergeable(tx, replica)
    if not few:
        return None
    with stores.catalog.read() as tx:
        found = events.list_range(
            tx, replica, few[0].first, few[-1].last + 1, limit=MAX_JOURNAL_EVENTS
        )
    data = b"".join(read_journal(stores, one) for one in few)
    starts = {one.first: sum(each.size for each in few[:place]) for place, one in enumerate(few)}
    return JournalDraft(replica, found, _split_lines(data, found, starts), few[0].tier + 1, few)


def _select_mergeable(tx: Tx, replica: Replica) -> list[JournalObject]:
    """The journals that are to become one; one that is large enough goes up a tier as it is."""
    while found := find_crowded_tier(tx, replica):
        count, size = 0, 0
        few: list[JournalObject] = []
        for one in found:
            count, size = count + one.count, size + one.size
            if count > MAX_JOURNAL_EVENTS or size > MAX_JOURNAL_BYTES:
                break
            few.append(one)
        if len(few) > 1:
            return few
        journals.promote(tx, found[0], found[0].tier + 1)
    return []


def find_crowded_tier(tx: Tx, replica: Replica) -> list[JournalObject]:
    """The journals of a tier that has too many."""
    for tier in range(MERGE_TIERS):
        found = journals.list_oldest(tx, replica, tier, limit=MERGE_COUNT)
        if len(found) == MERGE_COUNT:
            return found
    return []


def _split_lines(
    data: bytes, found: Sequence[SequencedEvent], starts: dict[int, int]
) -> list[bytes]:
    """The lines in the bytes of several journals, which begin at these places."""
    cut, start = [], 0
    for numbered in found:
        start = starts.get(numbered.seq, start)
        offset, size = start + (numbered.offset or 0), numbered.size or 0
        cut.append(data[offset : offset + size])
    return cut


def read_journal(stores: Stores, one: JournalObject) -> bytes:
    """A journal's bytes, from whichever bucket has them as they were written."""
    kept = read_if_intact(stores.replicas[one.replica], one) or read_if_intact(
        stores.replicas[copy_replica(one)], one
    )
    if kept is None:
        raise Unavailable(f"No bucket has {one.key} as it was written.")
    return kept.data


def copy_replica(one: JournalObject) -> Replica:
    """In whose bucket the copy of a journal lies."""
    return next(replica for replica in REPLICAS if replica != one.replica)


def read_if_intact(blobs: BlobStore, one: JournalObject) -> JournalObjects | None:
    """What a bucket holds of a journal, if it is all there, and as it was written."""
    try:
        manifest = records.read_object(blobs, keys.journal_manifest_key(one.key))
        data = records.read_object(blobs, keys.journal_key(one.key))
    except (DamagedObjectError, NotFound) as error:
        log.warning("%s: %s", one.key, error.detail)
        return None
    if len(data) != one.size or not journal_format.matches_manifest(data, manifest):
        log.warning("%s is damaged in %s", one.key, blobs.direct_url(str(one.key)))
        return None
    return JournalObjects(data, manifest)


def redraft_journal(stores: Stores, one: JournalObject, beat: Heartbeat) -> JournalDraft:
    """A journal that no bucket has any more, anew from the catalog's events."""
    with stores.catalog.read() as tx:
        found = events.list_range(tx, one.replica, one.first, one.last + 1, limit=one.count)
        gone = events.filter_purged(tx, {each.event.fqid for each in found})
    written = _format_lines(stores, found, gone, beat, room=None)
    return JournalDraft(one.replica, found, written, one.tier, [one], gone)


def redraft_without_purged(
    stores: Stores, one: JournalObject, beat: Heartbeat
) -> JournalDraft | None:
    """A journal anew, with no document of what was purged; None when it has none already."""
    with stores.catalog.read() as tx:
        found = events.list_range(tx, one.replica, one.first, one.last + 1, limit=one.count)
        gone = events.filter_purged(tx, {each.event.fqid for each in found})
    try:
        kept = _split_lines(read_journal(stores, one), found, {})
    except Unavailable:
        return redraft_journal(stores, one, beat)
    fresh = [
        journal_format.format_purged_line(each.event) if each.event.fqid in gone else line
        for each, line in zip(found, kept, strict=True)
    ]
    return None if fresh == kept else JournalDraft(one.replica, found, fresh, one.tier, [one], gone)
