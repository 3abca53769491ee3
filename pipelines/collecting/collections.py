"""Collections: written (reserve, put, publish), read, listed and deleted, by their owner alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import flow
from pipelines.collecting import links
from pipelines.depositing import purging
from pipelines.keeping import integrity, records
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import (
    Tx,
    collections,
    events,
    heads,
    link_segments,
    purges,
    todo,
    tombstones,
    versions,
    visibility,
)
from storage.catalog.collections import Collection
from storage.catalog.tombstones import Tombstone
from storage.errors import Conflict, Forbidden, NotFound
from storage.model import FQID, REPLICAS, Link, Replica, Todo
from storage.stores import Stores

KIND: keys.Kind = "collection"
REASON = "Deleted by its owner."
POINTER = "/contents/{}"


@dataclass(frozen=True, slots=True)
class NewCollection:
    """A collection as its owner describes it."""

    fqid: FQID
    replica: Replica
    name: str
    description: str
    details: Mapping[str, Any]
    contents: Sequence[Link]


@dataclass(frozen=True, slots=True)
class Written:
    """A collection that is visible now."""

    fqid: FQID
    created: bool
    todo: tuple[Todo, ...]


def write(stores: Stores, new: NewCollection, owner: str, *, request_id: str = "") -> Written:
    """Make a version visible, once; the same content again is success, whatever became of what it
    links to.

    Forbidden (another's), Conflict (other content, or under a tombstone), Unprocessable
    (`invalid_link`).
    """
    contents = links.once(new.contents)
    digest = records.collection_digest(owner, new.name, new.description, new.details, contents)
    with stores.catalog.read() as tx:
        row = _before(tx, new.fqid, owner, digest)
    if row is None:
        # By their places in the request, where identical links may stand.
        links.check(stores, new.replica, owner, new.contents, pointer=POINTER)
        row = _reserve(stores, new, contents, digest, owner)
    if row.published:
        return Written(row.fqid, created=False, todo=())
    follow = complete(stores, row, request_id=request_id)
    return Written(row.fqid, created=bool(follow), todo=follow)


def _before(tx: Tx, fqid: FQID, owner: str, digest: str) -> Collection | None:
    """The row of an equal version; Forbidden or Conflict when there may be none."""
    check_owner(collections.owner_of(tx, fqid.uuid), owner)
    if tombstones.over(tx, KIND, fqid.uuid, fqid.version):
        raise buried(fqid)
    row = collections.by_fqid(tx, fqid)
    if row is not None and row.digest != digest:
        raise Conflict(
            f"Collection {fqid} exists with other content.", code="collection_already_exists"
        )
    return row


def check_owner(theirs: str | None, owner: str) -> None:
    """Forbidden when it belongs to somebody else."""
    if theirs not in (None, owner):
        raise Forbidden("This collection belongs to somebody else.")


def buried(fqid: FQID) -> Conflict:
    """What a writer is answered whose version may no longer be seen."""
    return Conflict(
        f"Collection {fqid} is under a tombstone.", code="collection_tombstone_already_exists"
    )


def _reserve(
    stores: Stores, new: NewCollection, contents: Sequence[Link], digest: str, owner: str
) -> Collection:
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [new.fqid.uuid])
        row = _before(tx, new.fqid, owner, digest)
        if row is not None:
            return row
        links.still_there(tx, new.replica, owner, new.contents, pointer=POINTER)
        fresh = collections.NewCollection(
            fqid=new.fqid,
            digest=digest,
            origin=new.replica,
            owner=owner,
            parent=None,
            name=new.name,
            description=new.description,
            details=records.details(new.details),
            event_id=events.event_id("CREATE", new.replica, new.fqid),
            runs=link_segments.cut(contents, SEGMENT_ENTRIES),
        )
        return collections.reserve(tx, fresh)


def complete(stores: Stores, row: Collection, *, request_id: str = "") -> tuple[Todo, ...]:
    """Put the record of a reserved collection into its origin's bucket and publish it."""
    data = record_of(stores, row)
    key = keys.record(KIND, row.fqid)
    if not integrity.place_record(stores, row.origin, key, data):
        with stores.catalog.write() as tx:
            visibility.record_seen(tx, KIND, row.id, row.origin, diverged=True)
        raise Conflict(
            f"{key} holds other content than was reserved.", code="collection_already_exists"
        )
    with stores.catalog.write() as tx:
        follow = _publish(tx, row, request_id)
        hidden = tombstones.over(tx, KIND, row.fqid.uuid, row.fqid.version)
        purged = purges.among(tx, KIND, [row.fqid]) if hidden else {}
    purging.withdraw(stores, row.origin, KIND, purged)
    if hidden:
        raise buried(row.fqid)
    return follow


def record_of(stores: Stores, row: Collection) -> bytes:
    """The collection's record, from the catalog alone."""
    return records.of_collection(row, contents_of(stores, row))


def _publish(tx: Tx, row: Collection, request_id: str) -> tuple[Todo, ...]:
    heads.lock(tx, KIND, [row.fqid.uuid])
    if not versions.publish(tx, KIND, row.fqid):
        return ()
    reveal(tx, row, row.origin)
    follow = flow.follows("publish", KIND, row.origin, f"{KIND}:{row.fqid}")
    todo.add(tx, follow, request_id=request_id)
    return follow


def reveal(tx: Tx, row: Collection, replica: Replica) -> None:
    """A collection is whole in a replica: its owner sees it there, unless it was buried meanwhile.
    The caller holds its head."""
    visibility.record_seen(tx, KIND, row.id, replica)
    if tombstones.over(tx, KIND, row.fqid.uuid, row.fqid.version):
        return
    visibility.show(tx, KIND, replica, row.fqid, row.id)
    collections.own(tx, row.owner, row.fqid)
    heads.change(tx, KIND, row.fqid.uuid)


def find(
    stores: Stores, replica: Replica, uuid: str, version: str | None, owner: str
) -> Collection:
    """A visible version, the latest when none is named; NotFound, Forbidden (another's)."""
    with stores.catalog.read() as tx:
        return visible(tx, replica, uuid, version, owner)


def visible(tx: Tx, replica: Replica, uuid: str, version: str | None, owner: str) -> Collection:
    """The same in a unit of work."""
    ident = visibility.chosen(tx, KIND, replica, uuid, version)
    if ident is None:
        named = uuid if version is None else f"{uuid}.{version}"
        raise NotFound(f"There is no collection {named} in replica {replica}.")
    row = collections.by_id(tx, ident)
    check_owner(row.owner, owner)
    return row


def contents_of(stores: Stores, row: Collection) -> list[Link]:
    """All links, in their order."""
    with stores.catalog.read() as tx:
        return [link for run in link_segments.of_collection(tx, row.id) for link in run.links]


def listing(stores: Stores, owner: str, after: FQID | None, limit: int) -> list[FQID]:
    """Somebody's live versions by uuid, then version, after a given one."""
    with stores.catalog.read() as tx:
        return collections.listing(tx, owner, after=after, limit=limit)


def delete(
    stores: Stores, replica: Replica, uuid: str, owner: str, *, request_id: str = ""
) -> tuple[Todo, ...]:
    """Hide a uuid with all it will ever hold, in every replica; the tombstones' records follow.

    Forbidden (another's), NotFound when it never was or is gone.
    """
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [uuid])
        check_owner(collections.owner_of(tx, uuid), owner)
        if not versions.exists(tx, KIND, uuid) or tombstones.find(tx, KIND, uuid, ""):
            raise NotFound(f"There is no collection {uuid}.")
        tombstones.add(tx, _stone(replica, uuid, owner))
        hide(tx, uuid)
        follow = graves(uuid)
        todo.add(tx, follow, request_id=request_id)
    return follow


def hide(tx: Tx, uuid: str) -> None:
    """Let nobody see it any more; the caller holds its head."""
    collections.disown(tx, uuid)
    if visibility.hide(tx, KIND, uuid, None):
        heads.change(tx, KIND, uuid)


def graves(uuid: str) -> tuple[Todo, ...]:
    """One record of its tombstone for each bucket."""
    return tuple(Todo(flow.Step.BURY, replica, f"{KIND}:{uuid}") for replica in REPLICAS)


def _stone(replica: Replica, uuid: str, owner: str) -> Tombstone:
    return Tombstone(
        id=0,
        kind=KIND,
        uuid=uuid,
        version="",
        reason=REASON,
        digest=records.tombstone_digest(KIND, uuid, "", REASON),
        origin=replica,
        author=owner,
        event_id=events.event_id("TOMBSTONE", replica, FQID(uuid, "")),
        created_us=0,
    )
