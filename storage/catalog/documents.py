"""Index state of each bundle in each replica, and the shapes of its documents."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import bindparam, func, literal_column, select

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import bundles, documents, shapes
from storage.model import FQID, Replica

LeafKinds = Mapping[str, str]
"""Path in a document → kind of its leaves."""


class IndexState(NamedTuple):
    """Index state; `told` says whether stored queries were matched with the bundle."""

    state: str
    shape: str
    told: bool


class IndexRecord(NamedTuple):
    """Index state of a bundle: `indexed`, `unindexed` with a reason, or `stub`.

    Without `told`, stored queries are matched once search finds the bundle.
    """

    bundle_id: int
    state: str
    shape: str
    change: int
    reason: str | None = None
    told: bool = True


def find_states(tx: Tx, replica: Replica, bundle_ids: Sequence[int]) -> dict[int, IndexState]:
    """Return the index states of several bundles, by id."""
    rows = tx.execute(_SELECT_STATES, {"replica": replica, "idents": bundle_ids})
    return {row.bundle_id: IndexState(row.state, row.shape, row.told) for row in rows}


_SELECT_STATES = select(
    documents.c.bundle_id, documents.c.state, documents.c.shape, documents.c.told
).where(
    documents.c.replica == bindparam("replica"),
    documents.c.bundle_id.in_(bindparam("idents", expanding=True)),
)


def record_states(tx: Tx, replica: Replica, rows: Sequence[IndexRecord]) -> None:
    """Record the index states of bundles."""
    columns = sql.attribute_columns(
        rows, bigint="bundle_id change", text="state shape reason", boolean="told"
    )
    sql.execute_with(tx, _RECORD, "fresh", columns, replica=replica)


_RECORD = (
    "INSERT INTO documents (replica, bundle_id, state, shape, change, reason, at_us, told)"
    " SELECT :replica, bundle_id, state, shape, change, reason, :now, told FROM {source}"
    " WHERE true ORDER BY bundle_id"
    " ON CONFLICT (replica, bundle_id) DO UPDATE SET state = excluded.state,"
    " shape = excluded.shape, change = excluded.change, reason = excluded.reason,"
    " at_us = excluded.at_us, told = excluded.told"
)


def record_unindexed(
    tx: Tx, replica: Replica, bundle_ids: Sequence[int], *, change: int, reason: str
) -> None:
    """Insert bundles as unindexed, to be indexed again; leave existing rows as they are."""
    statement = (
        "INSERT INTO documents (replica, bundle_id, state, shape, change, reason, at_us)"
        " SELECT :replica, id, 'unindexed', '', :change, :reason, :now FROM {source} WHERE true"
        " ON CONFLICT (replica, bundle_id) DO NOTHING"
    )
    values = {"replica": replica, "change": change, "reason": reason}
    sql.execute_with(tx, statement, "those", {"id": ("bigint", bundle_ids)}, **values)


def list_indexed_after(
    tx: Tx, replica: Replica, after: FQID, *, before_us: int, limit: int
) -> list[FQID]:
    """List indexed bundles, stubs included, by uuid and version, after a given one."""
    query = (
        select(bundles.c.uuid, bundles.c.version)
        .join(documents, documents.c.bundle_id == bundles.c.id)
        .where(documents.c.replica == replica, documents.c.state.in_(("indexed", "stub")))
        .where(documents.c.at_us < before_us)
    )
    return sql.fetch_versions(tx, query, after=after, limit=limit)


def list_shapes(tx: Tx, replica: Replica, descriptor: str) -> list[LeafKinds]:
    """List the shapes of a descriptor, in order of creation."""
    query = select(shapes.c.kinds).where(
        shapes.c.replica == replica, shapes.c.descriptor == descriptor
    )
    return [orjson.loads(kinds) for kinds in tx.execute(query.order_by(shapes.c.number)).scalars()]


def save_shape(tx: Tx, replica: Replica, descriptor: str, number: int, kinds: LeafKinds) -> None:
    """Insert or replace a shape."""
    text = orjson.dumps(dict(kinds), option=orjson.OPT_SORT_KEYS).decode()
    row = {"replica": replica, "descriptor": descriptor, "number": number, "kinds": text}
    sql.upsert(tx, shapes, row)


# A literal: with a parameter no engine would use the partial index.
_IS_UNINDEXED = documents.c.state == literal_column("'unindexed'")


def count_unindexed(tx: Tx) -> dict[str, int]:
    """Count documents that the search engine refused, by replica."""
    counted = select(documents.c.replica, func.count()).where(_IS_UNINDEXED)
    rows = tx.execute(counted.group_by(documents.c.replica))
    return {str(replica): int(count) for replica, count in rows}


def list_unindexed(tx: Tx, *, limit: int) -> list[tuple[str, FQID, str]]:
    """List replica, bundle and reason of documents that the search engine refused."""
    query = (
        select(documents.c.replica, bundles.c.uuid, bundles.c.version, documents.c.reason)
        .join(bundles, bundles.c.id == documents.c.bundle_id)
        .where(_IS_UNINDEXED)
        .order_by(documents.c.replica, documents.c.at_us)
    )
    rows = tx.execute(query.limit(limit))
    return [(replica, FQID(uuid, version), reason or "") for replica, uuid, version, reason in rows]
