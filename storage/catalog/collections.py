"""Collections: versioned sets of links, each private to its owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, select, tuple_

from storage.catalog import bulk, link_segments
from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.schema import collections, owned, presence
from storage.errors import NotFound
from storage.model import FQID, Replica


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection's row with all that its record needs but the links; `details` is JSON."""

    id: int
    fqid: FQID
    digest: str
    origin: Replica
    owner: str
    parent: str | None
    name: str
    description: str
    details: str
    event_id: str
    created_us: int
    published: bool


@dataclass(frozen=True, slots=True)
class NewCollection:
    """A collection about to be reserved; `runs` are its links."""

    fqid: FQID
    digest: str
    origin: Replica
    owner: str
    parent: str | None
    name: str
    description: str
    details: str
    event_id: str
    runs: Sequence[link_segments.Run]


def _collection(row: Row[Any]) -> Collection:
    return Collection(
        id=row.id,
        fqid=FQID(row.uuid, row.version),
        digest=row.digest,
        origin=row.origin,
        owner=row.owner,
        parent=row.parent,
        name=row.name,
        description=row.description,
        details=row.details,
        event_id=row.event_id,
        created_us=row.created_us,
        published=row.published_us is not None,
    )


def by_id(tx: Tx, ident: int) -> Collection:
    """The row of a known id."""
    row = tx.execute(select(collections).where(collections.c.id == ident)).first()
    if row is None:
        raise NotFound("There is no such collection any more.")
    return _collection(row)


def by_fqid(tx: Tx, fqid: FQID) -> Collection | None:
    """The row of a version, published or not."""
    query = select(collections).where(
        collections.c.uuid == fqid.uuid, collections.c.version == fqid.version
    )
    row = tx.execute(query).first()
    return None if row is None else _collection(row)


def owner_of(tx: Tx, uuid: str) -> str | None:
    """Whose uuid it is: that of whoever reserved its first version, for good."""
    query = select(collections.c.owner).where(collections.c.uuid == uuid)
    return tx.execute(query.limit(1)).scalar_one_or_none()


_RESERVE = (
    "INSERT INTO collections (uuid, version, digest, origin, owner, parent, name, description,"
    " details, event_id, created_us) VALUES (:uuid, :version, :digest, :origin, :owner, :parent,"
    " :name, :description, :details, :event_id, :now) RETURNING *"
)


def reserve(tx: Tx, new: NewCollection) -> Collection:
    """Insert the version with its links; the caller holds the head and saw that none exists."""
    row = execute_now(
        tx,
        _RESERVE,
        {
            "uuid": new.fqid.uuid,
            "version": new.fqid.version,
            "digest": new.digest,
            "origin": new.origin,
            "owner": new.owner,
            "parent": new.parent,
            "name": new.name,
            "description": new.description,
            "details": new.details,
            "event_id": new.event_id,
        },
    )
    reserved = _collection(row.one())
    link_segments.write(tx, reserved.id, new.runs)
    return reserved


def own(tx: Tx, owner: str, fqid: FQID) -> None:
    """Have a version on its owner's list, once; the caller holds the head."""
    tx.execute(
        sql(
            "INSERT INTO owned (owner, uuid, version) VALUES (:owner, :uuid, :version)"
            " ON CONFLICT DO NOTHING"
        ),
        {"owner": owner, "uuid": fqid.uuid, "version": fqid.version},
    )


_DISOWN = sql(
    "DELETE FROM owned WHERE uuid = :uuid"
    " AND owner = (SELECT owner FROM collections WHERE uuid = :uuid LIMIT 1)"
)


def disown(tx: Tx, uuid: str) -> None:
    """Take a uuid with all its versions off its owner's list; the caller holds the head."""
    tx.execute(_DISOWN, {"uuid": uuid})


def listing(tx: Tx, owner: str, *, after: FQID | None, limit: int) -> list[FQID]:
    """Somebody's live versions, in byte order of uuid and version: one range of one index."""
    query = select(owned.c.uuid, owned.c.version).where(owned.c.owner == owner)
    if after is not None:
        query = query.where(tuple_(owned.c.uuid, owned.c.version) > (after.uuid, after.version))
    rows = tx.execute(query.order_by(owned.c.uuid, owned.c.version).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]


def versions(tx: Tx, uuid: str) -> list[FQID]:
    """Every version that was ever reserved and is not purged yet."""
    query = select(collections.c.version).where(collections.c.uuid == uuid)
    return [
        FQID(uuid, version)
        for version in tx.execute(query.order_by(collections.c.version)).scalars()
    ]


def remove(tx: Tx, fqid: FQID) -> None:
    """Remove a version's rows, and the segments that no other one shares, if it is there; the
    caller holds the head and nobody sees it."""
    row = by_fqid(tx, fqid)
    if row is None:
        return
    link_segments.remove(tx, row.id)
    tx.execute(delete(presence).where(presence.c.kind == "collection", presence.c.id == row.id))
    tx.execute(delete(collections).where(collections.c.id == row.id))


Target = tuple[str, FQID]
"""What a link leads to: a kind and a version."""


def seen(tx: Tx, replicas: Sequence[Replica], owner: str, targets: Sequence[Target]) -> set[Target]:
    """Those of these that readers of one of the replicas see; of collections only the owner's. One
    query for each replica."""
    if not targets:
        return set()
    order = sorted(set(targets))
    columns: bulk.Columns = {
        "kind": ("text", [kind for kind, _ in order]),
        **bulk.fqids(fqid for _, fqid in order),
    }
    source, parameters = bulk.derived(tx, "wanted", columns)
    statement = sql(f"SELECT v.kind, v.uuid, v.version FROM {source} {_seen_of(tx)}")
    return {
        (row[0], FQID(row[1], row[2]))
        for replica in replicas
        for row in tx.execute(statement, {**parameters, "replica": replica, "owner": owner})
    }


def _seen_of(tx: Tx) -> str:
    same = (
        "v.kind = wanted.kind AND v.replica = :replica"
        " AND v.uuid = wanted.uuid AND v.version = wanted.version"
    )
    theirs = "SELECT 1 FROM collections AS c WHERE c.id = v.id AND c.owner = :owner"
    found = bulk.one_each(tx, "visible", "v", same)
    return f"{found} WHERE v.kind <> 'collection' OR EXISTS ({theirs})"
