"""Journals: numbered events as objects in the buckets, by steps that may die at any instant.

JOURNAL gathers what is not journalled yet, or merges small journals into a larger one; JOURNAL_COPY
brings one to the other bucket, JOURNAL_DROP removes one that is past. All begin a row, put the
objects under its name, and record them; whoever comes after a death goes on with the row.
"""

import logging
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from pipelines import flow, lines, loading, placing
from pipelines.copying import Beat
from pipelines.flow import Step
from pipelines.lines import Text
from storage import keys
from storage.catalog import Tx, feeds, journals, todo
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Journal
from storage.errors import NotFound, Unavailable
from storage.model import FQID, REPLICAS, Claim, Replica, Todo
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

GATHER, MERGE = "gather", "merge"
"""References of the two kinds of JOURNAL."""
MAX_EVENTS = 1_000
"""Events of one journal: ten of them are the largest page."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes beyond which nothing is added to a journal; the last document may reach beyond."""
FAN, TIERS = 16, 3
"""So many small journals of one tier become one of the next; those of the last stay as they are."""
DROPPED = 100
"""Journals that one look ends or drops."""
_TRIES = 3


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


def tend(stores: Stores, *, age_s: float) -> None:
    """Record what is to be done: events to be journalled, and journals that were past for so long,
    longer than a URL of theirs lives."""
    for replica in REPLICAS:
        with stores.catalog.read() as tx:
            behind = feeds.newest(tx, replica) > journals.covered(tx, replica)
            aged = journals.aged(tx, replica, int(age_s * 1e6), limit=DROPPED)
        wanted = [Todo(Step.JOURNAL, replica, GATHER)] if behind else []
        wanted += [Todo(Step.JOURNAL_DROP, replica, one.key.name) for one in aged]
        if wanted:
            with stores.catalog.write() as tx:
                journals.lock(tx, replica)
                # What nobody recorded for so long nobody will.
                journals.end(tx, (one for one in aged if one.state == "writing"))
                todo.add_new(tx, wanted)


def journal(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Write one journal: of new events, or of several small journals."""
    drafted = _gathered if claim.todo.ref == GATHER else _merged
    draft = drafted(stores, flow.replica_of(claim.todo), beat)
    if draft is not None:
        return _written(stores, draft, claim)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def _gathered(stores: Stores, replica: Replica, beat: Beat) -> Draft | None:
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
            document = loading.document(stores, replica, event.bundle_id, beat)
        except NotFound as error:
            log.warning("journal of %s: %s", event.replica, error.detail)
        else:
            return lines.of_event(event, document)
    # One lost file must not end the feed of a replica.
    return lines.of_purged(event)


def _merged(stores: Stores, replica: Replica, _beat: Beat) -> Draft | None:
    """The oldest small journals as one, without reading a document."""
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        few = _fitting(tx, replica)
    if not few:
        return None
    with stores.catalog.read() as tx:
        found = feeds.span(tx, replica, few[0].first, few[-1].last + 1, limit=MAX_EVENTS)
    data = b"".join(_bytes(stores, one) for one in few)
    starts = {one.first: sum(each.size for each in few[:place]) for place, one in enumerate(few)}
    return Draft(replica, found, _cut(data, found, starts), few[0].tier + 1, few)


def _fitting(tx: Tx, replica: Replica) -> list[Journal]:
    """The journals that are to become one; one that is large enough goes up a tier as it is."""
    while found := _crowded(tx, replica):
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


def _crowded(tx: Tx, replica: Replica) -> list[Journal]:
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


def _bytes(stores: Stores, one: Journal) -> bytes:
    """A journal's bytes, from whichever bucket has them."""
    key = keys.journal(one.key)
    try:
        return placing.whole(stores.replicas[one.replica], key)
    except NotFound:
        other = next(replica for replica in REPLICAS if replica != one.replica)
        return placing.whole(stores.replicas[other], key)


def _written(stores: Stores, draft: Draft, claim: Claim | None) -> tuple[Todo, ...]:
    """Begin, put, record. Unavailable when others changed what this was made of: again, later."""
    first, last = draft.span
    text = lines.joined(keys.JournalKey(draft.replica, first, last), draft.found, draft.lines)
    begun = _put(stores, draft, text)
    with stores.catalog.write() as tx:
        journals.lock(tx, draft.replica)
        done = not _outdated(tx, draft) and journals.record(
            tx, begun, text.places, size=len(text.data), instead=draft.instead
        )
        follow = _following(tx, begun) if done else ()
        if done:
            _finish(tx, claim, follow)
    if not done:
        _give_up(stores, begun)
        raise Unavailable(f"The journal {begun.key} was overtaken.")
    return follow


def _outdated(tx: Tx, draft: Draft) -> bool:
    """Whether a bundle was purged after its line was made: the purge did not see this journal."""
    if draft.gone is None:
        return False
    return not feeds.purged(tx, {each.event.fqid for each in draft.found}) <= draft.gone


def _put(stores: Stores, draft: Draft, text: Text) -> Journal:
    """The objects under a name of their own. What a dead worker left under it has the same bytes,
    unless a bundle was purged meanwhile: then another name is taken."""
    first, last = draft.span
    for _ in range(_TRIES):
        with stores.catalog.write() as tx:
            journals.lock(tx, draft.replica)
            begun = journals.begin(tx, draft.replica, first, last, tier=draft.tier)
        if _place(stores.replicas[draft.replica], begun, text.data, text.manifest):
            return begun
        _give_up(stores, begun)
    raise Unavailable(f"The journal {draft.replica}/{first}-{last} cannot be put.")


def _place(blobs: BlobStore, one: Journal, data: bytes, manifest: bytes) -> bool:
    """The manifest last: where it is, the journal is whole."""
    there = placing.place(blobs, keys.journal(one.key), data, content_type=lines.CONTENT_TYPE)
    return there and placing.place(
        blobs, keys.journal_manifest(one.key), manifest, content_type=lines.MANIFEST_TYPE
    )


def _following(tx: Tx, done: Journal) -> tuple[Todo, ...]:
    """A copy for the other bucket, and whatever is to be journalled or merged next."""
    replica = done.replica
    ref = f"{replica}/{done.key.name}"
    rows = [Todo(Step.JOURNAL_COPY, other, ref) for other in REPLICAS if other != replica]
    if feeds.newest(tx, replica) > journals.covered(tx, replica):
        rows.append(Todo(Step.JOURNAL, replica, GATHER))
    if _crowded(tx, replica):
        rows.append(Todo(Step.JOURNAL, replica, MERGE))
    return tuple(rows)


def _finish(tx: Tx, claim: Claim | None, follow: Iterable[Todo]) -> None:
    if claim is None:
        todo.add(tx, follow)
        return
    todo.finish(tx, claim)
    todo.add(tx, follow, request_id=claim.request_id)


def _give_up(stores: Stores, one: Journal) -> None:
    """It will never be current: what was put under its name goes now, and once more when the row
    does. Nothing happens to one that a twin recorded."""
    with stores.catalog.write() as tx:
        journals.lock(tx, one.replica)
        now = journals.find(tx, one.key)
        if now is not None and now.state == "current":
            return
        journals.end(tx, [now] if now is not None and now.state == "writing" else [])
    _erase(stores, one.key)


def _erase(stores: Stores, key: keys.JournalKey) -> None:
    for replica in REPLICAS:
        _erase_from(stores.replicas[replica], key)


def _erase_from(blobs: BlobStore, key: keys.JournalKey) -> None:
    blobs.delete(keys.journal_manifest(key))
    blobs.delete(keys.journal(key))


def copy(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Bring a journal, `<replica>/<name>`, to this bucket; one that is past is taken from it."""
    key = _key(claim.todo.ref)
    blobs = stores.replicas[flow.replica_of(claim.todo)]
    with stores.catalog.read() as tx:
        one = journals.find(tx, key)
    if one is not None and one.state == "current":
        source = stores.replicas[one.replica]
        data = placing.whole(source, keys.journal(key))
        beat(len(data))
        manifest = placing.whole(source, keys.journal_manifest(key))
        if not _place(blobs, one, data, manifest):
            _erase_from(blobs, key)
            raise Unavailable(f"The copy of {key} held other bytes.")
    if not _copied(stores, claim, key):
        _erase_from(blobs, key)
        with stores.catalog.write() as tx:
            todo.finish(tx, claim)
    return ()


def _copied(stores: Stores, claim: Claim, key: keys.JournalKey) -> bool:
    """Whether the journal is still current, so that its copy may stay."""
    with stores.catalog.write() as tx:
        journals.lock(tx, _replica(key))
        one = journals.find(tx, key)
        if one is None or one.state != "current":
            return False
        todo.finish(tx, claim)
    return True


def _key(ref: str) -> keys.JournalKey:
    key = keys.parse_journal(keys.JOURNALS + ref)
    if key is None:
        raise NotFound(f"{ref} is no journal.")
    return key


def _replica(key: keys.JournalKey) -> Replica:
    return next(name for name in REPLICAS if name == key.replica)


def drop(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Remove a journal that is past from every bucket, then its row."""
    key = _key(f"{claim.todo.replica}/{claim.todo.ref}")
    with stores.catalog.read() as tx:
        one = journals.find(tx, key)
    if one is not None and one.state == "past":
        _erase(stores, key)
    with stores.catalog.write() as tx:
        if one is not None:
            journals.forget(tx, one)
        todo.finish(tx, claim)
    return ()


def rewrite(stores: Stores, fqid: FQID, beat: Beat) -> tuple[Todo, ...]:
    """Leave nothing of a purged version in any journal but that it was there; again is the same.

    Its DELETE events were appended before: what is gathered from then on has no document of it.
    """
    follow: list[Todo] = []
    for replica in REPLICAS:
        for one in _holding(stores, replica, fqid):
            follow += _without_purged(stores, one)
            beat(one.size)
        for one in _past(stores, replica, fqid):
            _erase(stores, one.key)
            beat(0)
    return tuple(follow)


def _holding(stores: Stores, replica: Replica, fqid: FQID) -> list[Journal]:
    """The current journals with events of a version; what is being written is given up."""
    found: dict[int, Journal] = {}
    with stores.catalog.write() as tx:
        journals.lock(tx, replica)
        for seq in feeds.numbers_of(tx, replica, fqid):
            others = journals.others(tx, replica, seq)
            journals.end(tx, (one for one in others if one.state == "writing"))
            found |= {one.id: one for one in journals.current(tx, replica, seq, seq)}
    return list(found.values())


def _past(stores: Stores, replica: Replica, fqid: FQID) -> list[Journal]:
    with stores.catalog.read() as tx:
        found = {
            one.id: one
            for seq in feeds.numbers_of(tx, replica, fqid)
            for one in journals.others(tx, replica, seq)
            if one.state == "past"
        }
    return list(found.values())


def _without_purged(stores: Stores, one: Journal) -> tuple[Todo, ...]:
    """The journal anew, with no document of what was purged; nothing when it has none already."""
    with stores.catalog.read() as tx:
        found = feeds.span(tx, one.replica, one.first, one.last + 1, limit=one.count)
        gone = feeds.purged(tx, {each.event.fqid for each in found})
    data = _bytes(stores, one)
    kept = _cut(data, found, {})
    fresh = [
        lines.of_purged(each.event) if each.event.fqid in gone else line
        for each, line in zip(found, kept, strict=True)
    ]
    if fresh == kept:
        return ()
    return _written(stores, Draft(one.replica, found, fresh, one.tier, [one], gone), None)
