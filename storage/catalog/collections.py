"""Collections: versioned sets of links in shared segments, each private to its owner."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import delete, select

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import (
    collection_segments,
    collections,
    link_segments,
    owned,
    presence,
)
from storage.errors import NotFoundError
from storage.model import FQID, CollectionLink, Replica

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class StoredLinkSegment:
    """An existing segment."""

    segment_id: int
    links: Sequence[CollectionLink]


LinkRun = StoredLinkSegment | Sequence[CollectionLink]
"""An existing segment, or the links of a new one."""


def insert_links(tx: Tx, collection_id: int, runs: Sequence[LinkRun]) -> None:
    """Insert the links of a collection, in order: two statements whatever the size."""
    if not runs:
        return
    made = iter(
        _insert_link_segments(tx, [run for run in runs if not isinstance(run, StoredLinkSegment)])
    )
    idents = [run.segment_id if isinstance(run, StoredLinkSegment) else next(made) for run in runs]
    columns = sql.tuple_columns(enumerate(idents), position="integer", segment_id="bigint")
    statement = (
        "INSERT INTO collection_segments (collection_id, position, segment_id)"
        " SELECT :collection_id, position, segment_id FROM {source}"
    )
    sql.execute_with(tx, statement, "fresh", columns, collection_id=collection_id)


def _insert_link_segments(tx: Tx, runs: Sequence[Sequence[CollectionLink]]) -> list[int]:
    """Insert segments and return their ids; segments with the same links are interchangeable."""
    if not runs:
        return []
    texts = [
        orjson.dumps([(one.type, *one.target, one.path) for one in run]).decode() for run in runs
    ]
    statement = "INSERT INTO link_segments (links) SELECT links FROM {source} RETURNING id, links"
    inserted = sql.execute_with(tx, statement, "fresh", {"links": ("text", texts)})
    of_text: dict[str, list[int]] = defaultdict(list)
    for row in inserted:
        of_text[row.links].append(row.id)
    return [of_text[text].pop() for text in texts]


def list_link_segments(tx: Tx, collection_id: int) -> list[StoredLinkSegment]:
    """List a collection's segments in order, with their links: one query."""
    query = (
        select(link_segments.c.id, link_segments.c.links)
        .join(collection_segments, collection_segments.c.segment_id == link_segments.c.id)
        .where(collection_segments.c.collection_id == collection_id)
        .order_by(collection_segments.c.position)
    )
    return [
        StoredLinkSegment(
            row.id,
            [
                CollectionLink(type_, FQID(uuid, version), path)
                for type_, uuid, version, path in orjson.loads(row.links)
            ],
        )
        for row in tx.execute(query)
    ]


def delete_links(tx: Tx, collection_id: int) -> None:
    """Delete a collection's segments, except those that other versions share.

    The caller holds the lock of its head: only versions of one uuid share segments.
    """
    condition = collection_segments.c.collection_id == collection_id
    idents = list(tx.execute(select(collection_segments.c.segment_id).where(condition)).scalars())
    tx.execute(delete(collection_segments).where(condition))
    for start in range(0, len(idents), _CHUNK):
        chunk = idents[start : start + _CHUNK]
        shared = collection_segments.c.segment_id
        used = set(tx.execute(select(shared).where(shared.in_(chunk))).scalars())
        tx.execute(delete(link_segments).where(link_segments.c.id.in_(sorted(set(chunk) - used))))


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection with everything its record needs except the links; `details` is JSON."""

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
class NewCollectionVersion:
    """A collection to be reserved; `runs` are its links."""

    fqid: FQID
    digest: str
    origin: Replica
    owner: str
    parent: str | None
    name: str
    description: str
    details: str
    event_id: str
    runs: Sequence[LinkRun]


def get(tx: Tx, ident: int) -> Collection:
    """Return a row by its id."""
    row = tx.execute(select(collections).filter_by(id=ident)).first()
    if row is None:
        raise NotFoundError("The collection was deleted.")
    return sql.map_row(Collection, row)


def find(tx: Tx, fqid: FQID) -> Collection | None:
    """Return the row of a version, published or not."""
    query = select(collections).filter_by(uuid=fqid.uuid, version=fqid.version)
    return sql.find_row(tx, Collection, query)


def find_owner(tx: Tx, uuid: str) -> str | None:
    """Return the owner of a uuid: the one who reserved its first version."""
    query = select(collections.c.owner).where(collections.c.uuid == uuid)
    return tx.execute(query.limit(1)).scalar_one_or_none()


_RESERVE = (
    "INSERT INTO collections (uuid, version, digest, origin, owner, parent, name, description,"
    " details, event_id, created_us) VALUES (:uuid, :version, :digest, :origin, :owner, :parent,"
    " :name, :description, :details, :event_id, :now)"
    f" RETURNING {sql.list_columns(collections, 'collections')}"
)


def reserve(tx: Tx, new: NewCollectionVersion) -> Collection:
    """Insert a version with its links; the caller holds the lock and checked that it is new."""
    values = {name: getattr(new, name) for name in new.__slots__ if name not in ("fqid", "runs")}
    row = sql.execute(tx, _RESERVE, {**values, **new.fqid._asdict()}).one()
    reserved = sql.map_row(Collection, row)
    insert_links(tx, reserved.id, new.runs)
    return reserved


def insert_owned(tx: Tx, owner: str, fqid: FQID) -> None:
    """Add a version to its owner's list, idempotently; the caller holds the lock of its head."""
    sql.insert_missing(tx, owned, [{"owner": owner, **fqid._asdict()}])


def delete_owned(tx: Tx, uuid: str) -> None:
    """Remove a uuid from its owner's list; the caller holds the lock of its head."""
    owner = "SELECT owner FROM collections WHERE uuid = :uuid LIMIT 1"
    tx.execute(
        sql.parse(f"DELETE FROM owned WHERE uuid = :uuid AND owner = ({owner})"), {"uuid": uuid}
    )


def list_owned(tx: Tx, owner: str, *, after: FQID | None, limit: int) -> list[FQID]:
    """List an owner's live versions, in byte order of uuid and version: one index range."""
    query = select(owned.c.uuid, owned.c.version).where(owned.c.owner == owner)
    return sql.fetch_versions(tx, query, after=after, limit=limit)


def list_latest(tx: Tx, owner: str, *, after: str, limit: int) -> list[Collection]:
    """List the latest live version of each of an owner's collections, by uuid, after a uuid."""
    parameters = {"owner": owner, "after": after, "limit": limit}
    return sql.map_rows(Collection, tx.execute(_SELECT_OWN, parameters))


_OWN = (
    "(SELECT uuid, max(version) AS version FROM owned WHERE owner = :owner AND uuid > :after"
    " GROUP BY uuid ORDER BY uuid LIMIT :limit)"
)
_SELECT_OWN = sql.parse(
    f"SELECT {sql.list_columns(collections, 'c')} FROM {_OWN} AS o"
    " JOIN collections AS c ON c.uuid = o.uuid AND c.version = o.version ORDER BY c.uuid"
)


def list_containing(tx: Tx, owner: str, kind: str, target: FQID, *, limit: int) -> list[Collection]:
    """List an owner's collections whose latest version links to a bundle or file, by name.

    Looks through the latest versions of the owner's first `limit` collections.
    """
    link = orjson.dumps([kind, *target]).decode()
    rows = tx.execute(
        _SELECT_CONTAINING,
        {"owner": owner, "after": "", "limit": limit, "pattern": f"%{link[:-1]},%"},
    )
    return sql.map_rows(Collection, rows)


_SELECT_CONTAINING = sql.parse(
    f"SELECT {sql.list_columns(collections, 'c')} FROM {_OWN} AS o"
    " JOIN collections AS c ON c.uuid = o.uuid AND c.version = o.version"
    " WHERE EXISTS (SELECT 1 FROM collection_segments AS s JOIN link_segments AS l"
    " ON l.id = s.segment_id WHERE s.collection_id = c.id AND l.links LIKE :pattern)"
    " ORDER BY c.name, c.uuid"
)


def list_versions(tx: Tx, uuid: str) -> list[FQID]:
    """List all versions that were reserved and are not purged yet."""
    query = select(collections.c.version).where(collections.c.uuid == uuid)
    return [
        FQID(uuid, version)
        for version in tx.execute(query.order_by(collections.c.version)).scalars()
    ]


def has_later_version(tx: Tx, fqid: FQID) -> bool:
    """Return whether a later version exists, reserved ones included; the caller holds the lock."""
    query = "SELECT 1 FROM collections WHERE uuid = :uuid AND version > :version LIMIT 1"
    return tx.execute(sql.parse(query), fqid._asdict()).first() is not None


def delete_version(tx: Tx, fqid: FQID) -> None:
    """Delete a hidden version and the segments that it alone uses, if it exists.

    The caller holds the lock of its head.
    """
    row = find(tx, fqid)
    if row is None:
        return
    delete_links(tx, row.id)
    tx.execute(delete(presence).where(presence.c.kind == "collection", presence.c.id == row.id))
    tx.execute(delete(collections).filter_by(id=row.id))


LinkTarget = tuple[str, FQID]
"""Kind and version of a link's target."""


def filter_visible_targets(
    tx: Tx, replicas: Sequence[Replica], owner: str, targets: Sequence[LinkTarget]
) -> set[LinkTarget]:
    """Return targets visible in one of the replicas; collections only if they are the owner's.

    One query for each replica.
    """
    if not targets:
        return set()
    names = sorted((kind, *fqid) for kind, fqid in set(targets))
    columns = sql.tuple_columns(names, kind="text", uuid="text", version="text")
    source, parameters = sql.derive_table(tx, "wanted", columns)
    same = "v.kind = wanted.kind AND v.replica = :replica"
    same += " AND v.uuid = wanted.uuid AND v.version = wanted.version"
    theirs = "SELECT 1 FROM collections AS c WHERE c.id = v.id AND c.owner = :owner"
    statement = sql.parse(
        f"SELECT v.kind, v.uuid, v.version FROM {source} {sql.join_one(tx, 'visible', 'v', same)}"
        f" WHERE v.kind <> 'collection' OR EXISTS ({theirs})"
    )
    return {
        (row[0], FQID(row[1], row[2]))
        for replica in replicas
        for row in tx.execute(statement, {**parameters, "replica": replica, "owner": owner})
    }
