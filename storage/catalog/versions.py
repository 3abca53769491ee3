"""Versions of any kind, by their rows: reserved first, published once their record is there."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Table, select, tuple_

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now
from storage.catalog.schema import bundles, collections, files
from storage.model import FQID

_TABLES: Mapping[str, Table] = {"file": files, "bundle": bundles, "collection": collections}


def publish(tx: Tx, kind: str, fqid: FQID) -> bool:
    """Mark a reserved row published; False when it was before, or was purged. By name: an id may
    be another's by then."""
    statement = (
        f"UPDATE {_TABLES[kind].name} SET published_us = :now"
        " WHERE uuid = :uuid AND version = :version AND published_us IS NULL"
    )
    return bool(execute_now(tx, statement, fqid._asdict()).rowcount)


def publish_all(tx: Tx, kind: str, fqids: Sequence[FQID]) -> set[FQID]:
    """The same for several versions; those that were marked now."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    name = _TABLES[kind].name
    statement = (
        f"UPDATE {name} SET published_us = :now FROM {source} WHERE {name}.uuid = wanted.uuid"
        f" AND {name}.version = wanted.version AND {name}.published_us IS NULL"
        f" RETURNING {name}.uuid, {name}.version"
    )
    return {FQID(row.uuid, row.version) for row in execute_now(tx, statement, parameters)}


def exists(tx: Tx, kind: str, uuid: str) -> bool:
    """Whether any published version of a uuid was ever there."""
    table = _TABLES[kind]
    query = select(table.c.id).where(table.c.uuid == uuid, table.c.published_us.is_not(None))
    return tx.execute(query.limit(1)).first() is not None


def published_id(tx: Tx, kind: str, fqid: FQID) -> int | None:
    """The id of a published version, seen by readers or not."""
    table = _TABLES[kind]
    query = select(table.c.id).where(table.c.uuid == fqid.uuid, table.c.version == fqid.version)
    return tx.execute(query.where(table.c.published_us.is_not(None))).scalar_one_or_none()


def published_after(tx: Tx, kind: str, after: FQID, *, before_us: int, limit: int) -> list[FQID]:
    """Versions published before a moment, by uuid, then version, after a given one."""
    table = _TABLES[kind]
    place = tuple_(table.c.uuid, table.c.version)
    query = select(table.c.uuid, table.c.version).where(
        table.c.published_us < before_us, place > (after.uuid, after.version)
    )
    rows = tx.execute(query.order_by(table.c.uuid, table.c.version).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]


def reserved_before(tx: Tx, kind: str, us: int, *, limit: int) -> list[FQID]:
    """Reservations whose writer should have finished by now."""
    table = _TABLES[kind]
    query = select(table.c.uuid, table.c.version).where(
        table.c.published_us.is_(None), table.c.created_us < us
    )
    rows = tx.execute(query.order_by(table.c.created_us).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]
