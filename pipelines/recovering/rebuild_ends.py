"""Filling a catalog from a bucket: what follows from what was taken in.

Events that no journal has are recorded, the same ids as before, and nobody is told of them again;
what was going on, purges and records of tombstones, is driven on; documents are to be indexed.
"""

from collections.abc import Sequence

from pipelines.collecting import collections
from pipelines.depositing import manifests
from pipelines.flow import Step
from pipelines.recovering.rebuild_reading import Run, Tally
from pipelines.recovering.reconciling import TAKEN_IN
from storage.catalog import (
    Tx,
    documents,
    events,
    heads,
    purges,
    refilling,
    rejournalling,
    restoring,
    todo,
    versions,
)
from storage.catalog.purges import Purge
from storage.catalog.tombstones import Tombstone
from storage.model import FQID, REPLICAS, Event, EventType, Todo

PAGE = 500
LATER = 2**62
"""After every moment."""


def follow(run: Run) -> Tally:
    """Go through all that there is; again is the same."""
    tally = Tally("event", run.replica)
    _bundles(run, tally)
    _tombstones(run)
    _purges(run, tally)
    return tally


def _bundles(run: Run, tally: Tally) -> None:
    after = FQID("", "")
    while page := _page(run, after):
        with run.unit() as tx:
            heads.lock(tx, manifests.KIND, [fqid.uuid for fqid in page])
            _append(tx, _missing(run, tx, page), tally)
            _index(run, tx, page)
        after = page[-1]


def _page(run: Run, after: FQID) -> list[FQID]:
    with run.stores.catalog.read() as tx:
        return versions.published_after(tx, manifests.KIND, after, before_us=LATER, limit=PAGE)


def _missing(run: Run, tx: Tx, page: Sequence[FQID]) -> list[Event]:
    """The events that these bundles had, if no journal tells of them."""
    kind = manifests.KIND
    here = restoring.held(tx, kind, run.replica, page)
    buried, purged = refilling.buried(tx, kind, page), set(purges.among(tx, kind, page))
    wanted = [_event("CREATE", run.replica, fqid) for fqid in sorted(here - buried - purged)]
    return [
        *wanted,
        *_ended(tx, "TOMBSTONE", sorted(buried)),
        *_ended(tx, "DELETE", sorted(purged)),
    ]


def _ended(tx: Tx, kind: EventType, fqids: Sequence[FQID]) -> list[Event]:
    """The ends of those that were ever seen, in each replica where they were."""
    begun = [_event("CREATE", replica, fqid) for fqid in fqids for replica in REPLICAS]
    never = rejournalling.without(tx, [event.id for event in begun])
    return [_event(kind, one.replica, one.fqid) for one in begun if one.id not in never]


def _event(kind: EventType, replica: str, fqid: FQID) -> Event:
    name = next(one for one in REPLICAS if one == replica)
    return Event(events.event_id(kind, name, fqid), name, kind, fqid, 0, 0)


def _append(tx: Tx, wanted: Sequence[Event], tally: Tally) -> None:
    lacking = rejournalling.without(tx, [event.id for event in wanted])
    idents = refilling.digests(tx, manifests.KIND, [event.fqid for event in wanted])
    for event in wanted:
        if event.id in lacking:
            ident = idents.get(event.fqid, (0, ""))[0]
            events.append(tx, event.type, event.replica, event.fqid, ident)
            tally.taken += 1
        else:
            tally.known += 1


def _index(run: Run, tx: Tx, page: Sequence[FQID]) -> None:
    """Every bundle here, seen or buried, has its document or stub written again: an index that was
    not lost may know otherwise. A document that was there before is no news to stored queries."""
    here = sorted(restoring.held(tx, manifests.KIND, run.replica, page))
    idents = refilling.digests(tx, manifests.KIND, here)
    documents.taken_in(
        tx, run.replica, [idents[fqid][0] for fqid in here], change=run.floor, reason=TAKEN_IN
    )
    todo.add_new(tx, [Todo(Step.INDEX, run.replica, str(fqid)) for fqid in here])


def _tombstones(run: Run) -> None:
    """Every bucket is to have their records."""
    after = 0
    while page := _stones(run, after):
        with run.unit() as tx:
            todo.add_new(tx, [row for stone in page for row in _graves(stone)])
        after = page[-1].id


def _stones(run: Run, after: int) -> list[Tombstone]:
    with run.stores.catalog.read() as tx:
        return refilling.tombstones_after(tx, after, limit=PAGE)


def _graves(stone: Tombstone) -> list[Todo]:
    if stone.kind == collections.KIND:
        return list(collections.graves(stone.uuid))
    grave = f"{stone.uuid}.{stone.version}" if stone.version else stone.uuid
    return [Todo(Step.BURY, replica, grave) for replica in REPLICAS]


def _purges(run: Run, tally: Tally) -> None:
    """They are driven to their end once more: what the other bucket holds is not known."""
    after = 0
    while page := _purge_page(run, after):
        with run.unit() as tx:
            told = [FQID(one.uuid, one.version) for one in page if _of_bundle(one)]
            _append(tx, _ended(tx, "DELETE", told), tally)
            going = [one for one in page if one.finished_us is None]
            rows = [
                Todo(Step.MARK, name, f"{one.kind}:{one.name}")
                for one in going
                for name in REPLICAS
            ]
            todo.add_new(tx, rows)
        after = page[-1].id


def _of_bundle(one: Purge) -> bool:
    return one.kind == manifests.KIND and bool(one.version)


def _purge_page(run: Run, after: int) -> list[Purge]:
    with run.stores.catalog.read() as tx:
        return refilling.purges_after(tx, after, limit=PAGE)
