"""Rows that are made from a bucket's records: with the times that the records tell."""

from collections.abc import Collection, Sequence

from sqlalchemy import select, update

from storage.catalog import bulk
from storage.catalog.engine import Tx, sql
from storage.catalog.schema import bundles, collections, files, presence, purges, tombstones
from storage.model import FQID, Replica

_TABLES = {
    "file": files,
    "bundle": bundles,
    "collection": collections,
    "tombstone": tombstones,
    "purge": purges,
}


def dated(tx: Tx, kind: str, ident: int, created_us: int) -> None:
    """It was made then, not now, and published; its record says so, and must come out the same."""
    table = _TABLES[kind]
    names = [name for name in ("created_us", "published_us") if name in table.c]
    values = dict.fromkeys(names, created_us)
    tx.execute(update(table).where(table.c.id == ident).values(**values))


def held(tx: Tx, kind: str, replica: Replica, fqids: Sequence[FQID]) -> set[FQID]:
    """Those of these versions whose records the catalog knows in a bucket, and knows to
    belong there."""
    table = _TABLES[kind]
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    row = bulk.one_each(tx, table.name, "t", "t.uuid = wanted.uuid AND t.version = wanted.version")
    seen = bulk.one_each(
        tx, presence.name, "p", "p.kind = :kind AND p.id = t.id AND p.replica = :replica"
    )
    found = tx.execute(
        sql(f"SELECT t.uuid, t.version FROM {source} {row} {seen}"),
        {**parameters, "kind": kind, "replica": replica},
    )
    return {FQID(*each) for each in found}


def file_ids(tx: Tx, fqids: Collection[FQID]) -> dict[FQID, int]:
    """The ids of published files, wherever they are."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    row = bulk.one_each(tx, "files", "t", "t.uuid = wanted.uuid AND t.version = wanted.version")
    found = tx.execute(sql(f"SELECT t.uuid, t.version, t.id FROM {source} {row}"), parameters)
    return {FQID(each[0], each[1]): each[2] for each in found}


def mark_known(tx: Tx, kind: str, uuid: str, version: str, *, purged: bool) -> bool:
    """Whether the catalog knows this tombstone or purge."""
    table = purges if purged else tombstones
    query = select(table.c.id).where(
        table.c.kind == kind, table.c.uuid == uuid, table.c.version == version
    )
    return tx.execute(query).first() is not None
