"""Journals: numbered events as objects in the buckets, by steps that may die at any instant.

JOURNAL gathers what is not journalled yet, or merges small journals into a larger one. Whoever
writes one begins a row, puts the objects under its name, and records them; whoever comes after a
death goes on with the row. Copies of journals are in `pipelines.journalling.journal_copies`.
"""

from collections.abc import Iterable

from pipelines import flow
from pipelines.flow import Step
from pipelines.journalling import lines
from pipelines.journalling.journal_drafts import Draft, crowded, gathered, merged, without_purged
from pipelines.journalling.lines import Text
from pipelines.keeping import placing
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import Tx, feeds, journals, todo
from storage.catalog.journals import Journal
from storage.errors import Unavailable
from storage.model import FQID, REPLICAS, Claim, Replica, Todo
from storage.protocols import BlobStore
from storage.stores import Stores

GATHER, MERGE = "gather", "merge"
"""References of the two kinds of JOURNAL."""
DROPPED = 100
"""Journals that one look ends or drops."""
_TRIES = 3


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
    drafted = gathered if claim.todo.ref == GATHER else merged
    draft = drafted(stores, flow.replica_of(claim.todo), beat)
    if draft is not None:
        return written(stores, draft, claim)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def written(stores: Stores, draft: Draft, claim: Claim | None) -> tuple[Todo, ...]:
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
        if place(stores.replicas[draft.replica], begun, text.data, text.manifest):
            return begun
        _give_up(stores, begun)
    raise Unavailable(f"The journal {draft.replica}/{first}-{last} cannot be put.")


def place(blobs: BlobStore, one: Journal, data: bytes, manifest: bytes) -> bool:
    """The manifest last: where it is, the journal is whole. False when other bytes lie there."""
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
    if crowded(tx, replica):
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
    erase(stores, one.key)


def erase(stores: Stores, key: keys.JournalKey) -> None:
    """Remove a journal from every bucket."""
    for replica in REPLICAS:
        erase_from(stores.replicas[replica], key)


def erase_from(blobs: BlobStore, key: keys.JournalKey) -> None:
    """Remove a journal from this bucket, the manifest first: what is left is no journal."""
    blobs.delete(keys.journal_manifest(key))
    blobs.delete(keys.journal(key))


def rewrite(stores: Stores, fqid: FQID, beat: Beat) -> tuple[Todo, ...]:
    """Leave nothing of a purged version in any journal but that it was there; again is the same.

    Its DELETE events were appended before: what is gathered from then on has no document of it.
    """
    follow: list[Todo] = []
    for replica in REPLICAS:
        for one in _holding(stores, replica, fqid):
            draft = without_purged(stores, one, beat)
            follow += () if draft is None else written(stores, draft, None)
            beat(one.size)
        for one in _past(stores, replica, fqid):
            erase(stores, one.key)
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
