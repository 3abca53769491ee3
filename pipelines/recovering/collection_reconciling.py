"""Reconciling collections: a catalog takes in what their records in a bucket tell."""

from collections.abc import Sequence

from pipelines.collecting import collections
from pipelines.collecting.collections import KIND
from pipelines.flow import Step
from pipelines.keeping import readback, records
from pipelines.keeping.readback import CollectionRecord
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.recovering import asking
from storage import keys
from storage.catalog import Tx, alike, heads, link_segments, purges, restoring, todo, versions
from storage.catalog import collections as rows
from storage.catalog.collections import Collection
from storage.errors import Damaged
from storage.keys import RecordKey
from storage.model import FQID, Link, Replica, Todo
from storage.stores import Stores


def take(stores: Stores, replica: Replica, key: RecordKey) -> None:
    """Take one record in: its owner sees it in this replica, unless it is buried. A record is put
    only once all that it links to is in the bucket."""
    record = keys.record(KIND, key.fqid)
    found = readback.collection(key, asking.whole(stores, replica, record))
    lacking = asking.lacking(stores, record)
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [key.fqid.uuid])
        collections.reveal(tx, row(tx, found), replica)
        todo.add_new(tx, [Todo(Step.SYNC, name, f"{KIND}:{key.fqid}") for name in lacking])


def row(tx: Tx, found: CollectionRecord) -> Collection:
    """The row of a record, published; the caller holds its head. Damaged for another's, for other
    content than the catalog's, and for what was purged."""
    if purges.among(tx, KIND, [found.fqid]):
        raise Damaged(f"Collection {found.fqid} was purged.")
    before = rows.by_fqid(tx, found.fqid)
    if before is not None and before.digest != found.digest:
        raise Damaged(f"The catalog knows collection {found.fqid} with other content.")
    if rows.owner_of(tx, found.fqid.uuid) not in (None, found.owner):
        raise Damaged(f"The catalog knows another owner of collection {found.fqid.uuid}.")
    kept = before or rows.reserve(tx, _new(tx, found))
    if before is None:
        restoring.dated(tx, KIND, kept.id, found.created_us)
    versions.publish(tx, KIND, kept.fqid)
    return kept


def _new(tx: Tx, found: CollectionRecord) -> rows.NewCollection:
    return rows.NewCollection(
        fqid=found.fqid,
        digest=found.digest,
        origin=found.origin,
        owner=found.owner,
        parent=found.parent,
        name=found.name,
        description=found.description,
        details=records.details(found.details),
        event_id=found.event_id,
        runs=alike.shared(found.contents, _before(tx, found), SEGMENT_ENTRIES),
    )


def _before(tx: Tx, found: CollectionRecord) -> list[tuple[link_segments.Kept, Sequence[Link]]]:
    """The segments of the version that it was made from, with their links."""
    parent = rows.by_fqid(tx, FQID(found.fqid.uuid, found.parent)) if found.parent else None
    runs = [] if parent is None else link_segments.of_collection(tx, parent.id)
    return [(run, run.links) for run in runs]
