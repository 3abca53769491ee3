"""What readers see, and which bucket has which record: two narrow tables, ranges of their keys."""

from collections.abc import Collection

from sqlalchemy import bindparam, delete, select, tuple_

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, execute_sql, sql
from storage.catalog.schema import presence, visible
from storage.model import FQID, REPLICAS, Replica


def show(tx: Tx, kind: str, replica: Replica, fqid: FQID, ident: int) -> None:
    """Let readers of a replica see a version; nothing when they do already."""
    execute_sql(
        tx,
        "INSERT INTO visible (kind, replica, uuid, version, id)"
        " VALUES (:kind, :replica, :uuid, :version, :id) ON CONFLICT DO NOTHING",
        {"kind": kind, "replica": replica, "uuid": fqid.uuid, "version": fqid.version, "id": ident},
    )


def hide(tx: Tx, kind: str, uuid: str, version: str | None) -> list[tuple[Replica, FQID, int]]:
    """Hide one version, or all of a uuid, in every replica; returns what was visible before."""
    gone = delete(visible).where(visible.c.kind == kind, visible.c.replica.in_(REPLICAS))
    gone = gone.where(visible.c.uuid == uuid)
    if version is not None:
        gone = gone.where(visible.c.version == version)
    rows = tx.execute(gone.returning(visible.c.replica, visible.c.version, visible.c.id)).all()
    return sorted((row.replica, FQID(uuid, row.version), row.id) for row in rows)


def latest(tx: Tx, kind: str, replica: Replica, uuid: str) -> tuple[str, int] | None:
    """The greatest visible version of a uuid, and its id."""
    row = tx.execute(_LATEST, {"kind": kind, "replica": replica, "uuid": uuid}).first()
    return None if row is None else (row.version, row.id)


_OF_UUID = (
    (visible.c.kind == bindparam("kind"))
    & (visible.c.replica == bindparam("replica"))
    & (visible.c.uuid == bindparam("uuid"))
)
_LATEST = (
    select(visible.c.version, visible.c.id)
    .where(_OF_UUID)
    .order_by(visible.c.version.desc())
    .limit(1)
)
_FIND = select(visible.c.id).where(_OF_UUID, visible.c.version == bindparam("version"))


def chosen(tx: Tx, kind: str, replica: Replica, uuid: str, version: str | None) -> int | None:
    """The id of a visible version, the latest when none is named."""
    if version is not None:
        return find(tx, kind, replica, FQID(uuid, version))
    newest = latest(tx, kind, replica, uuid)
    return None if newest is None else newest[1]


def find(tx: Tx, kind: str, replica: Replica, fqid: FQID) -> int | None:
    """The id of a version if readers of that replica see it."""
    named = {"kind": kind, "replica": replica, "uuid": fqid.uuid, "version": fqid.version}
    return tx.execute(_FIND, named).scalar_one_or_none()


def among(tx: Tx, kind: str, replica: Replica, fqids: Collection[FQID]) -> set[FQID]:
    """Those of these versions that readers of that replica see; one query."""
    order = sorted(fqids)
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(order))
    same = (
        "v.kind = :kind AND v.replica = :replica"
        " AND v.uuid = wanted.uuid AND v.version = wanted.version"
    )
    found = bulk.one_each(tx, "visible", "v", same)
    given = {**parameters, "kind": kind, "replica": replica}
    rows = bulk.fetch(tx, ("v.uuid", "v.version"), f"{source} {found}", given)
    return {*map(FQID._make, rows)}


def listing(
    tx: Tx, kind: str, replica: Replica, *, prefix: str, after: FQID | None, limit: int
) -> list[FQID]:
    """Visible versions in byte order of uuid and version: one range of one index."""
    query = select(visible.c.uuid, visible.c.version).where(
        visible.c.kind == kind, visible.c.replica == replica
    )
    if prefix:
        # "~" sorts after every character that a uuid may hold.
        query = query.where(visible.c.uuid >= prefix, visible.c.uuid < prefix + "~")
    if after is not None:
        query = query.where(tuple_(visible.c.uuid, visible.c.version) > (after.uuid, after.version))
    rows = tx.execute(query.order_by(visible.c.uuid, visible.c.version).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]


def record_seen(tx: Tx, kind: str, ident: int, replica: Replica, *, diverged: bool = False) -> None:
    """The record, and all it names, is in this bucket with the right digest (or is `diverged`)."""
    execute_now(
        tx,
        "INSERT INTO presence (kind, id, replica, at_us, diverged, verified_us)"
        " VALUES (:kind, :id, :replica, :now, :diverged, :now) ON CONFLICT (kind, id, replica)"
        " DO UPDATE SET at_us = excluded.at_us, diverged = excluded.diverged,"
        " verified_us = excluded.verified_us",
        {"kind": kind, "id": ident, "replica": replica, "diverged": diverged},
    )


def forget_record(tx: Tx, kind: str, ident: int, replica: Replica) -> None:
    """The record was found missing from this bucket."""
    tx.execute(
        delete(presence).where(
            presence.c.kind == kind, presence.c.id == ident, presence.c.replica == replica
        )
    )


def count_diverged(tx: Tx) -> int:
    """Records that differ between buckets: never overwritten, always alarmed."""
    return int(tx.execute(sql("SELECT count(*) FROM presence WHERE diverged")).scalar_one())
