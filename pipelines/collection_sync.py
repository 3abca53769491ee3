"""Making another replica hold a collection too: once all that it links to is there, its record."""

from pipelines import collections, flow, links, placing, records
from pipelines.collections import KIND
from pipelines.copying import Beat
from storage import keys
from storage.catalog import Tx, heads, link_segments, todo, visibility
from storage.catalog import collections as rows
from storage.catalog.collections import Collection, Target
from storage.errors import NotFound, Unavailable
from storage.model import FQID, REPLICAS, Claim, Replica, Todo
from storage.stores import Stores


def sync(stores: Stores, claim: Claim, fqid: FQID, _beat: Beat) -> tuple[Todo, ...]:
    """Bring the record into one bucket and let its owner see it there. Unavailable while anything
    that it links to is on its way; what is gone everywhere is not waited for."""
    target = flow.replica_of(claim.todo)
    with stores.catalog.read() as tx:
        row = rows.by_fqid(tx, fqid)
        if row is None:
            raise NotFound(f"There is no collection {fqid}.")
        contents = [link for run in link_segments.of_collection(tx, row.id) for link in run.links]
        coming = _coming(tx, row, [links.target(link) for link in contents], target)
    if coming:
        raise Unavailable(f"{len(coming)} links of {fqid} lead to what {target} has not yet.")
    same = placing.place(
        stores.replicas[target],
        keys.record(KIND, fqid),
        records.of_collection(row, contents),
        content_type=records.CONTENT_TYPE,
    )
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [fqid.uuid])
        if same:
            collections.reveal(tx, row, target)
        else:
            visibility.record_seen(tx, KIND, row.id, target, diverged=True)
        todo.finish(tx, claim)
    return ()


def _coming(tx: Tx, row: Collection, targets: list[Target], target: Replica) -> set[Target]:
    """What readers of another replica see and those of this one do not."""
    lacking = set(targets) - rows.seen(tx, [target], row.owner, targets)
    others = [replica for replica in REPLICAS if replica != target]
    return rows.seen(tx, others, row.owner, sorted(lacking))
