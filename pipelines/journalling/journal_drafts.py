"""What journals are made of: drafts of new events, of small journals, of what was lost or purged.

Nothing is written here: `pipelines.journalling.journals` puts drafts into the buckets.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass

from pipelines.finding import loading
from pipelines.journalling import lines
from pipelines.keeping import placing
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import Tx, feeds, journals
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Journal
from storage.errors import Damaged, NotFound, Unavailable
from storage.model import FQID, REPLICAS, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

MAX_EVENTS = 1_000
"""Events of one journal: ten of them are the largest page."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes beyond which nothing is added to a journal; the last document may reach beyond."""
FAN, TIERS = 16, 3
"""So many small journals of one tier become one of the next; those of the last stay as they are."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a journal is to hold, and which journals it takes the place of."""

    replica: Replica
    found: Sequence[Numbered]
    lines: Sequence[bytes]
    tier: int
    instead: Sequence[Journal] = ()
    gone: Set[FQID] | None = None
    """What was purged when the lines were made; None for lines of journals that are there."""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last number."""
        return self.found[0].seq, self.found[-1].seq


@dataclass(frozen=True, slots=True)
class Kept:
    """Both objects of a journal."""

    data: bytes
    manifest: bytes


def gathered(stores: Stores, replica: Replica, beat: Beat) -> Draft | None:
    """The events after the last journal: those that a dead worker began with, or as many as fit."""
    with stores.catalog.read() as tx:
        first = journals.covered(tx, replica) + 1
        begun = journals.begun(tx, replica, first)
        until = feeds.END if begun is None else begun.last + 1
        found = feeds.span(tx, replica, first, until, limit=MAX_EVENTS)
        gone = feeds.purged(tx, {each.event.fqid for each in found})
    if not found:
        return None
    room = MAX_BYTES if begun is None else None
    written = _lines(stores, found, gone, beat, room=room)
    return Draft(replica, found[: len(written)], written, tier=0, gone=gone)


def _lines(
    stores: Stores, found: Sequence[Numbered], gone: set[FQID], beat: Beat, *, room: int | None
) -> list[bytes]:
    """The lines of these events, as many as there is room for, one at least."""
    written: list[bytes] = []
    for numbered in found:
        if room is not None and room <= 0:
            break
        line = _line(stores, numbered, gone, beat)
        written.append(line)
        room = None if room is None else room - len(line)
        beat(len(line))
    return written


def _line(stores: Stores, numbered: Numbered, gone: set[FQID], beat: Beat) -> bytes:
    event = numbered.event
    if event.fqid in gone:
        return lines.of_purged(event)
    here = [event.replica, *(replica for replica in REPLICAS if replica != event.replica)]
    for replica in here:
        try:
            with loading.document(stores, replica, event.bundle_id, beat) as document:
                return lines.of_event(event, document)
        except NotFound as error:
            log.warning("journal of %s: %s", event.replica, error.detail)
    # One lost file must not end the feed of a replica.
    return lines.of_purged(event)


def merged(stores: Stores, replica: Replica, _beat: Beat) -> Draft | None:
    """The oldest small journals as one, without reading a document."""
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        few = _fitting(tx, replica)
    if not few:
        return None
    with stores.catalog.read() as tx:
        found = feeds.span(tx, replica, few[0].first, few[-1].last + 1, limit=MAX_EVENTS)
    data = b"".join(whole(stores, one) for one in few)
    starts = {one.first: sum(each.size for each in few[:place]) for place, one in enumerate(few)}
    return Draft(replica, found, _cut(data, found, starts), few[0].tier + 1, few)


def _fitting(tx: Tx, replica: Replica) -> list[Journal]:
    """The journals that are to become one; one that is large enough goes up a tier as it is."""
    while found := crowded(tx, replica):
        count, size = 0, 0
        few: list[Journal] = []
        for one in found:
            count, size = count + one.count, size + one.size
            if count > MAX_EVENTS or size > MAX_BYTES:
                break
            few.append(one)
        if len(few) > 1:
            return few
        journals.promote(tx, found[0], found[0].tier + 1)
    return []


def crowded(tx: Tx, replica: Replica) -> list[Journal]:
    """The journals of a tier that has too many."""
    for tier in range(TIERS):
        found = journals.oldest(tx, replica, tier, limit=FAN)
        if len(found) == FAN:
            return found
    return []


def _cut(data: bytes, found: Sequence[Numbered], starts: dict[int, int]) -> list[bytes]:
    """The lines in the bytes of several journals, which begin at these places."""
    cut, start = [], 0
    for numbered in found:
        start = starts.get(numbered.seq, start)
        offset, size = start + (numbered.offset or 0), numbered.size or 0
        cut.append(data[offset : offset + size])
    return cut


def whole(stores: Stores, one: Journal) -> bytes:
    """A journal's bytes, from whichever bucket has them as they were written."""
    kept = sound(stores.replicas[one.replica], one) or sound(stores.replicas[other_of(one)], one)
    if kept is None:
        raise Unavailable(f"No bucket has {one.key} as it was written.")
    return kept.data


def other_of(one: Journal) -> Replica:
    """In whose bucket the copy of a journal lies."""
    return next(replica for replica in REPLICAS if replica != one.replica)


def sound(blobs: BlobStore, one: Journal) -> Kept | None:
    """What a bucket holds of a journal, if it is all there, and as it was written."""
    try:
        manifest = placing.whole(blobs, keys.journal_manifest(one.key))
        data = placing.whole(blobs, keys.journal(one.key))
    except (Damaged, NotFound) as error:
        log.warning("%s: %s", one.key, error.detail)
        return None
    if len(data) != one.size or not lines.fits(data, manifest):
        log.warning("%s is damaged in %s", one.key, blobs.direct_url(str(one.key)))
        return None
    return Kept(data, manifest)


def remade(stores: Stores, one: Journal, beat: Beat) -> Draft:
    """A journal that no bucket has any more, anew from the catalog's events."""
    with stores.catalog.read() as tx:
        found = feeds.span(tx, one.replica, one.first, one.last + 1, limit=one.count)
        gone = feeds.purged(tx, {each.event.fqid for each in found})
    written = _lines(stores, found, gone, beat, room=None)
    return Draft(one.replica, found, written, one.tier, [one], gone)


def without_purged(stores: Stores, one: Journal, beat: Beat) -> Draft | None:
    """A journal anew, with no document of what was purged; None when it has none already."""
    with stores.catalog.read() as tx:
        found = feeds.span(tx, one.replica, one.first, one.last + 1, limit=one.count)
        gone = feeds.purged(tx, {each.event.fqid for each in found})
    try:
        kept = _cut(whole(stores, one), found, {})
    except Unavailable:
        return remade(stores, one, beat)
    fresh = [
        lines.of_purged(each.event) if each.event.fqid in gone else line
        for each, line in zip(found, kept, strict=True)
    ]
    return None if fresh == kept else Draft(one.replica, found, fresh, one.tier, [one], gone)
