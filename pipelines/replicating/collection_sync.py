"""Making another replica hold a collection too: once all that it links to is there, its record."""

from pipelines import flow
from pipelines.collecting import collections, links
from pipelines.collecting.collections import KIND
from pipelines.depositing import purging
from pipelines.keeping import integrity, records
from pipelines.keeping.copying import Beat
from pipelines.replicating.replication import COPYING
from storage import keys
from storage.catalog import Tx, heads, link_segments, now_us, purges, todo, visibility
from storage.catalog import collections as rows
from storage.catalog.collections import Collection, Target
from storage.catalog.replication import under_way
from storage.errors import NotFound, Waits
from storage.model import FQID, REPLICAS, Claim, Link, Replica, Todo
from storage.stores import Stores

NAMED = 20
"""Targets of which it is found out how they stand."""
AGAIN, AGAIN_CAP_S = 0.1, 600
"""It is looked whether the targets came after this part of the time waited, a second at the least
and this at the most."""


def sync(stores: Stores, claim: Claim, fqid: FQID, _beat: Beat) -> tuple[Todo, ...]:
    """Bring the record into one bucket and let its owner see it there. Waits while anything
    that it links to is on its way, or put aside; what is gone everywhere is not waited for."""
    target = flow.replica_of(claim.todo)
    with stores.catalog.read() as tx:
        row = rows.by_fqid(tx, fqid)
        purged = purges.among(tx, KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no collection {fqid}.")
        contents = [] if row is None or purged else _contents(tx, claim, row)
    if row is None or purged:
        return purging.taken_back(stores, claim, purged)
    key, data = keys.record(KIND, fqid), records.of_collection(row, contents)
    same = integrity.place_record(stores, target, key, data)
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [fqid.uuid])
        purged = purges.among(tx, KIND, [fqid])
        if not purged:
            _reveal(tx, row, target, same=same)
            todo.finish(tx, claim)
            woken = todo.wake(tx, claim.todo.step, target, claim.todo.ref)
    return purging.taken_back(stores, claim, purged) if purged else woken


def _reveal(tx: Tx, row: Collection, target: Replica, *, same: bool) -> None:
    if same:
        collections.reveal(tx, row, target)
    else:
        visibility.record_seen(tx, KIND, row.id, target, diverged=True)


def _contents(tx: Tx, claim: Claim, row: Collection) -> list[Link]:
    """Its links, once all that they lead to is here; Waits before."""
    target = flow.replica_of(claim.todo)
    contents = [link for run in link_segments.of_collection(tx, row.id) for link in run.links]
    coming = _coming(tx, row, [links.target(link) for link in contents], target)
    if coming:
        raise _waiting(tx, claim, target, coming)
    return contents


def _coming(tx: Tx, row: Collection, targets: list[Target], target: Replica) -> set[Target]:
    """What readers of another replica see and those of this one do not."""
    lacking = set(targets) - rows.seen(tx, [target], row.owner, targets)
    others = [replica for replica in REPLICAS if replica != target]
    return rows.seen(tx, others, row.owner, sorted(lacking))


def _waiting(tx: Tx, claim: Claim, here: Replica, coming: set[Target]) -> Waits:
    """What holds it up: what was put aside before what is under way; looked at again after a part
    of the time that it has waited, so that what waits for a human costs little."""
    told = [_told(tx, one, here) for one in sorted(coming)[:NAMED]]
    told.sort(key=lambda one: not one[0])
    mine = under_way(tx, (claim.todo.step,), claim.todo.ref).get(here)
    waited_s = 0.0 if mine is None else (now_us(tx) - mine.born_us) / 1e6
    return Waits(
        f"{len(coming)} of its links lead to what {here} has not yet: {told[0][1]}",
        retry_after_s=int(min(max(waited_s * AGAIN, 1), AGAIN_CAP_S)),
        until=_last(coming),
    )


def _last(coming: set[Target]) -> str | None:
    """The collection among them that is likely to come last: it wakes what waits for it, so that a
    chain of any length comes at one go. Files and bundles wait for nothing, and come soon."""
    linked = [fqid for kind, fqid in coming if kind == KIND]
    if not linked:
        return None
    return f"{KIND}:{max(linked, key=lambda fqid: fqid.version)}"


def _told(tx: Tx, one: Target, here: Replica) -> tuple[bool, str]:
    """Whether a target was put aside, and that or how it stands."""
    kind, fqid = one
    row = under_way(tx, COPYING, f"{kind}:{fqid}").get(here)
    if row is not None and row.parked:
        return True, f"{kind} {fqid} was put aside ({row.reason})."
    return False, f"{kind} {fqid}."
