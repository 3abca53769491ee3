"""Versions of any kind: published, stored in a replica, or hidden by a tombstone.

A head is one row for each uuid, or for another name: a lock and a change counter.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from sqlalchemy import bindparam, delete, insert, or_, select

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import VERSION_TABLES, heads, presence, tombstones, visible
from storage.model import FQID, REPLICAS, Replica

Line = TypeVar("Line")

_CREATE_ON_SQLITE = (
    "INSERT INTO heads (kind, uuid) VALUES (:kind, :uuid) ON CONFLICT (kind, uuid) DO NOTHING"
)
_CREATE = sql.parse(f"{_CREATE_ON_SQLITE} RETURNING id")
_HOLD = sql.parse("SELECT id FROM heads WHERE kind = :kind AND uuid = :uuid FOR UPDATE")
_COUNT_CHANGE_BY_CLOCK = (
    "UPDATE heads SET changes = CASE WHEN changes < :now THEN :now ELSE changes + 1 END"
    " WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)


def lock_heads(tx: Tx, kind: str, uuids: Iterable[str]) -> None:
    """Lock heads until the transaction ends, creating those that are absent."""
    names = sorted(set(uuids))
    if len(names) != 1:
        _lock_many_heads(tx, kind, names)
        return
    parameters = {"kind": kind, "uuid": names[0]}
    if tx.dialect.name == "sqlite":
        # The transaction already locks the whole catalog.
        sql.execute(tx, _CREATE_ON_SQLITE, parameters)
    elif (
        tx.execute(_HOLD, parameters).first() is None
        and tx.execute(_CREATE, parameters).first() is None
    ):
        # Another transaction created it in between, and its creator holds the lock.
        tx.execute(_HOLD, parameters).scalar_one()


def _lock_many_heads(tx: Tx, kind: str, uuids: Sequence[str]) -> None:
    """Lock heads in two statements, each of which visits them in order."""
    wanted = {"uuid": ("text", uuids)}
    statement = (
        "INSERT INTO heads (kind, uuid) SELECT :kind, uuid FROM {source} WHERE true"
        " ORDER BY uuid ON CONFLICT (kind, uuid) DO NOTHING"
    )
    sql.execute_with(tx, statement, "wanted", wanted, kind=kind)
    if tx.dialect.name != "sqlite":
        same = "h.kind = :kind AND h.uuid = wanted.uuid"
        head = sql.join_one(tx, "heads", "h", same, lock=True)
        query = f"SELECT h.id FROM {{source}} {head}"
        locked = sql.execute_with(tx, query, "wanted", wanted, kind=kind)
        assert len(locked.all()) == len(uuids)


def count_change(tx: Tx, kind: str, uuid: str) -> int:
    """Lock a head until the transaction ends, and count one change of it; return the count."""
    return int(sql.execute(tx, _COUNT_CHANGE, {"kind": kind, "uuid": uuid}).scalar_one())


_COUNT_CHANGE = (
    "INSERT INTO heads (kind, uuid, changes) VALUES (:kind, :uuid, 1) ON CONFLICT (kind, uuid)"
    " DO UPDATE SET changes = heads.changes + 1 RETURNING changes"
)


def count_change_by_clock(tx: Tx, kind: str, uuid: str) -> int:
    """Set the count to the clock, or add 1 if it is ahead; return the count.

    So a catalog restored from a backup never repeats a count.
    """
    return int(sql.execute(tx, _COUNT_CHANGE_BY_CLOCK, {"kind": kind, "uuid": uuid}).scalar_one())


def read_changes(tx: Tx, kind: str, uuid: str) -> int:
    """Return how often a head changed; 0 when it does not exist."""
    return tx.execute(_SELECT_CHANGES, {"kind": kind, "uuid": uuid}).scalar_one_or_none() or 0


def read_all_changes(tx: Tx, kind: str, uuids: Sequence[str]) -> dict[str, int]:
    """Return the change counts of several heads by uuid, without those that do not exist."""
    rows = tx.execute(_SELECT_ALL_CHANGES, {"kind": kind, "uuids": uuids})
    return {row.uuid: row.changes for row in rows}


# Read at every request: building a query takes longer than running it.
_SELECT_CHANGES = select(heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid == bindparam("uuid")
)
_SELECT_ALL_CHANGES = select(heads.c.uuid, heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid.in_(bindparam("uuids", expanding=True))
)


def split_runs(lines: Sequence[Line], size: int) -> list[Sequence[Line]]:
    """Split the lines of a bundle or collection into new segments of at most `size` lines."""
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def mark_published(tx: Tx, kind: str, fqid: FQID) -> bool:
    """Mark a reserved version published; False when it already was, or was purged.

    Matches by name: after a purge, the id may belong to another row.
    """
    statement = (
        f"UPDATE {VERSION_TABLES[kind].name} SET published_us = :now"
        " WHERE uuid = :uuid AND version = :version AND published_us IS NULL"
    )
    return bool(sql.execute(tx, statement, fqid._asdict()).rowcount)


def mark_all_published(tx: Tx, kind: str, fqids: Sequence[FQID]) -> set[FQID]:
    """Mark several versions published; return those that were not before."""
    name = VERSION_TABLES[kind].name
    statement = (
        f"UPDATE {name} SET published_us = :now FROM {{source}} WHERE {name}.uuid = wanted.uuid"
        f" AND {name}.version = wanted.version AND {name}.published_us IS NULL"
        f" RETURNING {name}.uuid, {name}.version"
    )
    rows = sql.execute_with(tx, statement, "wanted", sql.fqid_columns(fqids))
    return {FQID(*row) for row in rows}


def was_published(tx: Tx, kind: str, uuid: str) -> bool:
    """Return whether a uuid ever had a published version."""
    table = VERSION_TABLES[kind]
    query = select(table.c.id).where(table.c.uuid == uuid, table.c.published_us.is_not(None))
    return tx.execute(query.limit(1)).first() is not None


def find_published_id(tx: Tx, kind: str, fqid: FQID) -> int | None:
    """Return the id of a version that was published, visible or not."""
    table = VERSION_TABLES[kind]
    query = select(table.c.id).where(table.c.uuid == fqid.uuid, table.c.version == fqid.version)
    return tx.execute(query.where(table.c.published_us.is_not(None))).scalar_one_or_none()


def list_published_after(
    tx: Tx, kind: str, after: FQID, *, before_us: int, limit: int
) -> list[FQID]:
    """List versions published before a moment, by uuid and version, after a given one."""
    table = VERSION_TABLES[kind]
    query = select(table.c.uuid, table.c.version).where(table.c.published_us < before_us)
    return sql.fetch_versions(tx, query, after=after, limit=limit)


def list_stale_reservations(tx: Tx, kind: str, us: int, *, limit: int) -> list[FQID]:
    """List reservations older than `us`, whose writers should have finished."""
    table = VERSION_TABLES[kind]
    query = select(table.c.uuid, table.c.version).where(
        table.c.published_us.is_(None), table.c.created_us < us
    )
    rows = tx.execute(query.order_by(table.c.created_us).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]


def publish(tx: Tx, kind: str, replica: Replica, fqid: FQID, ident: int) -> None:
    """Make a version visible in a replica, idempotently."""
    sql.execute(
        tx,
        "INSERT INTO visible (kind, replica, uuid, version, id)"
        " VALUES (:kind, :replica, :uuid, :version, :id) ON CONFLICT DO NOTHING",
        {"kind": kind, "replica": replica, "id": ident, **fqid._asdict()},
    )


def unpublish(tx: Tx, kind: str, uuid: str, version: str | None) -> list[tuple[Replica, FQID, int]]:
    """Hide one version, or all of a uuid, in every replica; return what was visible."""
    statement = delete(visible).where(visible.c.kind == kind, visible.c.replica.in_(REPLICAS))
    statement = statement.where(visible.c.uuid == uuid)
    if version is not None:
        statement = statement.where(visible.c.version == version)
    rows = tx.execute(statement.returning(visible.c.replica, visible.c.version, visible.c.id)).all()
    return sorted((row.replica, FQID(uuid, row.version), row.id) for row in rows)


def find_latest(tx: Tx, kind: str, replica: Replica, uuid: str) -> tuple[str, int] | None:
    """Return the greatest visible version of a uuid, and its id."""
    row = tx.execute(_SELECT_LATEST, {"kind": kind, "replica": replica, "uuid": uuid}).first()
    return None if row is None else (row.version, row.id)


_OF_UUID = (
    (visible.c.kind == bindparam("kind"))
    & (visible.c.replica == bindparam("replica"))
    & (visible.c.uuid == bindparam("uuid"))
)
_SELECT_LATEST = (
    select(visible.c.version, visible.c.id)
    .where(_OF_UUID)
    .order_by(visible.c.version.desc())
    .limit(1)
)
_FIND = select(visible.c.id).where(_OF_UUID, visible.c.version == bindparam("version"))


def resolve_version(
    tx: Tx, kind: str, replica: Replica, uuid: str, version: str | None
) -> int | None:
    """Return the id of a visible version; the latest when `version` is None."""
    if version is not None:
        return find_published(tx, kind, replica, FQID(uuid, version))
    newest = find_latest(tx, kind, replica, uuid)
    return None if newest is None else newest[1]


def find_published(tx: Tx, kind: str, replica: Replica, fqid: FQID) -> int | None:
    """Return the id of a version if it is visible in a replica."""
    parameters = {"kind": kind, "replica": replica, "uuid": fqid.uuid, "version": fqid.version}
    return tx.execute(_FIND, parameters).scalar_one_or_none()


def filter_published(tx: Tx, kind: str, replica: Replica, fqids: Collection[FQID]) -> set[FQID]:
    """Return those versions that are visible in a replica: one query."""
    order = sorted(fqids)
    source, parameters = sql.derive_table(tx, "wanted", sql.fqid_columns(order))
    same = (
        "v.kind = :kind AND v.replica = :replica"
        " AND v.uuid = wanted.uuid AND v.version = wanted.version"
    )
    join = sql.join_one(tx, "visible", "v", same)
    values = {**parameters, "kind": kind, "replica": replica}
    rows = sql.fetch_rows(tx, ("v.uuid", "v.version"), f"{source} {join}", values)
    return {*map(FQID._make, rows)}


def list_published(
    tx: Tx, kind: str, replica: Replica, *, prefix: str, after: FQID | None, limit: int
) -> list[FQID]:
    """List visible versions in byte order of uuid and version: one index range."""
    query = select(visible.c.uuid, visible.c.version).where(
        visible.c.kind == kind, visible.c.replica == replica
    )
    if prefix:
        # "~" sorts after every character of a uuid.
        query = query.where(visible.c.uuid >= prefix, visible.c.uuid < prefix + "~")
    return sql.fetch_versions(tx, query, after=after, limit=limit)


def record_stored(
    tx: Tx, kind: str, ident: int, replica: Replica, *, diverged: bool = False
) -> None:
    """Record that a bucket holds a complete record, with the right digest unless `diverged`."""
    sql.execute(
        tx,
        "INSERT INTO presence (kind, id, replica, at_us, diverged, verified_us)"
        " VALUES (:kind, :id, :replica, :now, :diverged, :now) ON CONFLICT (kind, id, replica)"
        " DO UPDATE SET at_us = excluded.at_us, diverged = excluded.diverged,"
        " verified_us = excluded.verified_us",
        {"kind": kind, "id": ident, "replica": replica, "diverged": diverged},
    )


def delete_stored(tx: Tx, kind: str, ident: int, replica: Replica) -> None:
    """Record that a record is missing from a bucket."""
    record = (presence.c.kind == kind) & (presence.c.id == ident)
    tx.execute(delete(presence).where(record, presence.c.replica == replica))


def count_diverged(tx: Tx) -> int:
    """Count records that differ between buckets: they are never overwritten and raise an alarm."""
    return int(tx.execute(sql.parse("SELECT count(*) FROM presence WHERE diverged")).scalar_one())


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Why a version is hidden; `version` is empty when a whole uuid is."""

    id: int
    kind: str
    uuid: str
    version: str
    reason: str
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int


def find_tombstone(tx: Tx, kind: str, uuid: str, version: str) -> Tombstone | None:
    """Return exactly this tombstone; an empty version means that of the whole uuid."""
    query = select(tombstones).filter_by(kind=kind, uuid=uuid, version=version)
    return sql.find_row(tx, Tombstone, query)


def find_covering_tombstone(tx: Tx, kind: str, uuid: str, version: str) -> Tombstone | None:
    """Return the tombstone that hides a version: its own or that of the whole uuid."""
    parameters = {"kind": kind, "uuid": uuid, "version": version}
    return sql.find_row(tx, Tombstone, _SELECT_COVERING_TOMBSTONE, parameters)


_SELECT_COVERING_TOMBSTONE = (
    select(tombstones)
    .where(tombstones.c.kind == bindparam("kind"), tombstones.c.uuid == bindparam("uuid"))
    .where(or_(tombstones.c.version == "", tombstones.c.version == bindparam("version")))
    .order_by(tombstones.c.version)
    .limit(1)
)


def insert_tombstone(tx: Tx, new: Tombstone) -> Tombstone:
    """Insert a tombstone; the catalog sets id and time. The caller holds the lock of its head."""
    values = {**asdict(new), "created_us": sql.clock(tx)}
    del values["id"]
    row = tx.execute(insert(tombstones).values(**values).returning(tombstones)).one()
    return sql.map_row(Tombstone, row)
