"""Tombstones: hidden in every replica from one transaction on; the objects follow."""

from pipelines import flow
from pipelines.keeping import integrity, records
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import Tx, bundles, events, heads, todo, tombstones, versions, visibility
from storage.catalog.tombstones import Tombstone
from storage.errors import Conflict, NotFound
from storage.model import FQID, REPLICAS, Claim, Replica, Todo
from storage.stores import Stores

KIND: keys.Kind = "bundle"


def bury(
    stores: Stores,
    replica: Replica,
    uuid: str,
    version: str | None,
    *,
    reason: str,
    author: str,
    request_id: str = "",
) -> tuple[Todo, ...]:
    """Hide one version, or a uuid with all it will ever hold; the same again is success.

    NotFound when it never existed, Conflict when it is buried for another reason.
    """
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [uuid])
        if not _ever_existed(tx, uuid, version):
            raise NotFound(f"There is no bundle {uuid}{'.' + version if version else ''}.")
        if _buried_before(tx, uuid, version or "", reason):
            return ()
        _add(tx, replica, uuid, version or "", reason=reason, author=author)
        follow = _hidden(tx, uuid, version)
        todo.add(tx, follow, request_id=request_id)
    return follow


def _ever_existed(tx: Tx, uuid: str, version: str | None) -> bool:
    if version is None:
        return versions.exists(tx, KIND, uuid)
    row = bundles.by_fqid(tx, FQID(uuid, version))
    return row is not None and row.published


def _buried_before(tx: Tx, uuid: str, version: str, reason: str) -> bool:
    """True when this very tombstone exists; Conflict when it has another reason."""
    before = tombstones.find(tx, KIND, uuid, version)
    if before is not None and before.reason != reason:
        raise Conflict(
            "A tombstone with another reason exists.", code="bundle_tombstone_already_exists"
        )
    return before is not None


def _add(
    tx: Tx, replica: Replica, uuid: str, version: str, *, reason: str, author: str
) -> Tombstone:
    fresh = Tombstone(
        id=0,
        kind=KIND,
        uuid=uuid,
        version=version,
        reason=reason,
        digest=records.tombstone_digest(KIND, uuid, version, reason),
        origin=replica,
        author=author,
        event_id=events.event_id("TOMBSTONE", replica, FQID(uuid, version)),
        created_us=0,
    )
    return tombstones.add(tx, fresh)


def _hidden(tx: Tx, uuid: str, version: str | None) -> tuple[Todo, ...]:
    """One TOMBSTONE event, and what follows from it, for each version in each replica."""
    grave = uuid if version is None else f"{uuid}.{version}"
    follow = {Todo(flow.Step.BURY, replica, grave) for replica in REPLICAS}
    gone = visibility.hide(tx, KIND, uuid, version)
    if gone:
        heads.change(tx, KIND, uuid)
    for replica, fqid, ident in gone:
        event = events.append(tx, "TOMBSTONE", replica, fqid, ident)
        rows = flow.follows("tombstone", KIND, replica, "")
        follow |= {flow.addressed(row, bundle=fqid, event=event) for row in rows}
    return tuple(sorted(follow))


def write_record(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Put a tombstone's record into one replica; `[<kind>:]<uuid>[.<version>]`, of a bundle when no
    kind is named."""
    named, _, grave = claim.todo.ref.rpartition(":")
    kind = next((kind for kind in keys.KINDS if kind == named), KIND)
    uuid, _, version = grave.partition(".")
    with stores.catalog.read() as tx:
        stone = tombstones.find(tx, kind, uuid, version)
    if stone is None:
        raise NotFound(f"There is no tombstone {claim.todo.ref}.")
    replica = flow.replica_of(claim.todo)
    key = keys.tombstone(kind, uuid, version or None)
    same = integrity.place_record(stores, replica, key, records.of_tombstone(stone))
    with stores.catalog.write() as tx:
        visibility.record_seen(tx, "tombstone", stone.id, replica, diverged=not same)
        todo.finish(tx, claim)
    return ()
