"""How each bundle stands in each replica's index, and the shapes that its documents take."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import bindparam, select, tuple_

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.schema import bundles, documents, shapes
from storage.model import FQID, Replica

Kinds = Mapping[str, str]
"""Path in a document → kind of its leaves."""


class Standing(NamedTuple):
    """`told`: stored queries were asked about it."""

    state: str
    shape: str
    told: bool


class Indexed(NamedTuple):
    """How a bundle is indexed now: `indexed`, `unindexed` with a reason, or `stub`; without `told`,
    stored queries are asked about it once it is found."""

    bundle_id: int
    state: str
    shape: str
    change: int
    reason: str | None = None
    told: bool = True


def state(tx: Tx, replica: Replica, bundle_id: int) -> Standing | None:
    """How a bundle stands, None before an index was ever given it."""
    return states(tx, replica, [bundle_id]).get(bundle_id)


def states(tx: Tx, replica: Replica, bundle_ids: Sequence[int]) -> dict[int, Standing]:
    """The same of several bundles, by id."""
    rows = tx.execute(_STATES, {"replica": replica, "idents": bundle_ids})
    return {row.bundle_id: Standing(row.state, row.shape, row.told) for row in rows}


_STATES = select(
    documents.c.bundle_id, documents.c.state, documents.c.shape, documents.c.told
).where(
    documents.c.replica == bindparam("replica"),
    documents.c.bundle_id.in_(bindparam("idents", expanding=True)),
)


def record(
    tx: Tx,
    replica: Replica,
    bundle_id: int,
    *,
    state: str,
    shape: str,
    change: int,
    reason: str | None = None,
    told: bool = True,
) -> None:
    """Record how one bundle is indexed."""
    record_all(tx, replica, [Indexed(bundle_id, state, shape, change, reason, told)])


def record_all(tx: Tx, replica: Replica, rows: Sequence[Indexed]) -> None:
    """Record how bundles are indexed."""
    columns: bulk.Columns = {
        "bundle_id": ("bigint", [row.bundle_id for row in rows]),
        "state": ("text", [row.state for row in rows]),
        "shape": ("text", [row.shape for row in rows]),
        "change": ("bigint", [row.change for row in rows]),
        "reason": ("text", [row.reason for row in rows]),
        "told": ("boolean", [row.told for row in rows]),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    execute_now(tx, _RECORD.format(source=source), {**parameters, "replica": replica})


_RECORD = (
    "INSERT INTO documents (replica, bundle_id, state, shape, change, reason, at_us, told)"
    " SELECT :replica, bundle_id, state, shape, change, reason, :now, told FROM {source}"
    " WHERE true ORDER BY bundle_id"
    " ON CONFLICT (replica, bundle_id) DO UPDATE SET state = excluded.state,"
    " shape = excluded.shape, change = excluded.change, reason = excluded.reason,"
    " at_us = excluded.at_us, told = excluded.told"
)


def taken_in(
    tx: Tx, replica: Replica, bundle_ids: Sequence[int], *, change: int, reason: str
) -> None:
    """Documents that an index may have, and is to be given again; nothing for those known."""
    source, parameters = bulk.derived(tx, "those", {"id": ("bigint", bundle_ids)})
    execute_now(
        tx,
        "INSERT INTO documents (replica, bundle_id, state, shape, change, reason, at_us)"
        f" SELECT :replica, id, 'unindexed', '', :change, :reason, :now FROM {source} WHERE true"
        " ON CONFLICT (replica, bundle_id) DO NOTHING",
        {**parameters, "replica": replica, "change": change, "reason": reason},
    )


def recorded_after(
    tx: Tx, replica: Replica, after: FQID, *, before_us: int, limit: int
) -> list[FQID]:
    """What a replica's index should hold, stubs too, by uuid, then version, after a given one."""
    query = (
        select(bundles.c.uuid, bundles.c.version)
        .join(documents, documents.c.bundle_id == bundles.c.id)
        .where(documents.c.replica == replica, documents.c.state.in_(("indexed", "stub")))
        .where(documents.c.at_us < before_us)
        .where(tuple_(bundles.c.uuid, bundles.c.version) > (after.uuid, after.version))
    )
    rows = tx.execute(query.order_by(bundles.c.uuid, bundles.c.version).limit(limit))
    return [FQID(row[0], row[1]) for row in rows]


def shapes_of(tx: Tx, replica: Replica, descriptor: str) -> list[Kinds]:
    """The shapes of a descriptor, in the order in which they were made."""
    query = select(shapes.c.kinds).where(
        shapes.c.replica == replica, shapes.c.descriptor == descriptor
    )
    return [orjson.loads(kinds) for kinds in tx.execute(query.order_by(shapes.c.number)).scalars()]


def save_shape(tx: Tx, replica: Replica, descriptor: str, number: int, kinds: Kinds) -> None:
    """Widen a shape, or add the next one."""
    tx.execute(
        sql(
            "INSERT INTO shapes (replica, descriptor, number, kinds)"
            " VALUES (:replica, :descriptor, :number, :kinds)"
            " ON CONFLICT (replica, descriptor, number) DO UPDATE SET kinds = excluded.kinds"
        ),
        {
            "replica": replica,
            "descriptor": descriptor,
            "number": number,
            "kinds": orjson.dumps(dict(kinds), option=orjson.OPT_SORT_KEYS).decode(),
        },
    )
