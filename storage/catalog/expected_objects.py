"""Objects that the catalog expects in a replica's bucket, in the byte order of their keys."""

from typing import Any

from sqlalchemy import Select, select

from storage.catalog import bulk
from storage.catalog.engine import Tx
from storage.catalog.files import select_stored_blobs
from storage.catalog.tables.integrity import purge_replicas, purges
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    blobs,
    presence,
    tombstones,
)
from storage.model import FQID, Replica


def list_blobs(tx: Tx, replica: Replica, after: str, *, limit: int) -> list[str]:
    """Return SHA-256 sums of blobs in order, after a given one."""
    query = select_stored_blobs(replica).where(blobs.c.sha256 > after)
    return list(tx.execute(query.order_by(blobs.c.sha256).limit(limit)).scalars())


def has_blob(tx: Tx, replica: Replica, sha256: str) -> bool:
    """Return whether a bucket should hold a blob."""
    query = select_stored_blobs(replica).where(blobs.c.sha256 == sha256)
    return tx.execute(query).first() is not None


def list_records(tx: Tx, kind: str, replica: Replica, after: FQID, *, limit: int) -> list[FQID]:
    """Return versions of a kind whose record a bucket should hold, after a given one."""
    return bulk.list_versions(tx, _select_records(kind, replica), after=after, limit=limit)


def has_record(tx: Tx, kind: str, replica: Replica, fqid: FQID) -> bool:
    """Return whether a bucket should hold the record of a version."""
    return _has_row(tx, _select_records(kind, replica), fqid)


def _select_records(kind: str, replica: Replica) -> Select[Any]:
    table = VERSION_TABLES[kind]
    purged = select(purges.c.id).where(
        purges.c.kind == kind, purges.c.uuid == table.c.uuid, purges.c.version == table.c.version
    )
    return (
        select(table.c.uuid, table.c.version)
        .join(presence, presence.c.id == table.c.id)
        .where(presence.c.kind == kind, presence.c.replica == replica, ~presence.c.diverged)
        .where(~purged.exists())
    )


def list_tombstones(tx: Tx, kind: str, replica: Replica, after: FQID, *, limit: int) -> list[FQID]:
    """Return tombstones of a kind whose record a bucket should hold; a whole uuid's has no
    version."""
    return bulk.list_versions(tx, _select_tombstones(kind, replica), after=after, limit=limit)


def has_tombstone(tx: Tx, kind: str, replica: Replica, fqid: FQID) -> bool:
    """Return whether a bucket should hold the record of a tombstone."""
    return _has_row(tx, _select_tombstones(kind, replica), fqid)


def _select_tombstones(kind: str, replica: Replica) -> Select[Any]:
    return (
        select(tombstones.c.uuid, tombstones.c.version)
        .join(presence, presence.c.id == tombstones.c.id)
        .where(presence.c.kind == "tombstone", presence.c.replica == replica)
        .where(~presence.c.diverged, tombstones.c.kind == kind)
    )


def list_purges(tx: Tx, kind: str, replica: Replica, after: FQID, *, limit: int) -> list[FQID]:
    """Return purges of a kind whose marker a bucket should hold; a whole uuid's has no version."""
    return bulk.list_versions(tx, _select_purges(kind, replica), after=after, limit=limit)


def has_purge(tx: Tx, kind: str, replica: Replica, fqid: FQID) -> bool:
    """Return whether a bucket should hold a purge marker."""
    return _has_row(tx, _select_purges(kind, replica), fqid)


def _select_purges(kind: str, replica: Replica) -> Select[Any]:
    return (
        select(purges.c.uuid, purges.c.version)
        .join(purge_replicas, purge_replicas.c.purge_id == purges.c.id)
        .where(purge_replicas.c.replica == replica, purge_replicas.c.marked_us.is_not(None))
        .where(purges.c.kind == kind)
    )


def _has_row(tx: Tx, query: Select[Any], fqid: FQID) -> bool:
    uuid, version = query.selected_columns
    found = query.where(uuid == fqid.uuid, version == fqid.version)
    return tx.execute(found).first() is not None
