"""How far replication is: bounded looks at the indexes of events, to-do rows and presence.

However much waits, a look takes the first so many rows of an index and no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause, select

from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.schema import metadata, presence
from storage.model import FQID, Replica, Todo

LOOKED_AT = 2_500
"""Rows of one step that are looked at, the longest due first, and rows put aside."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A to-do row that stands between a version and its replica."""

    todo: Todo
    born_us: int
    attempts: int
    parked: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows of one step in one replica, and since when the oldest waits. `prefix` is what stands
    before the colon of their references, as far as four characters."""

    step: str
    replica: str
    prefix: str
    parked: bool
    rows: int
    oldest_us: int


def lags(tx: Tx, kind: str, replica: Replica, *, window_us: int, limit: int) -> list[int]:
    """Microseconds between the publication of a version elsewhere and its being whole here, of
    those that came of late; ascending."""
    given = {"replica": replica, "limit": limit, "window": window_us}
    return sorted(int(lag) for lag in execute_now(tx, _LAGS[kind], given).scalars())


_BY_PRESENCE = (
    "SELECT p.at_us - t.published_us FROM ("
    " SELECT id, at_us FROM presence WHERE replica = :replica AND kind = '{kind}'"
    " AND at_us >= :now - :window ORDER BY at_us DESC LIMIT :limit) AS p"
    " JOIN {kind}s AS t ON t.id = p.id"
    " WHERE t.origin <> :replica AND t.published_us IS NOT NULL"
)
# Their events are written once and never move.
_BY_EVENTS = (
    "SELECT e.at_us - b.published_us FROM ("
    " SELECT bundle_id, type, at_us FROM events WHERE replica = :replica AND seq IS NOT NULL"
    " ORDER BY seq DESC LIMIT :limit) AS e"
    " JOIN bundles AS b ON b.id = e.bundle_id"
    " WHERE e.type = 'CREATE' AND b.origin <> :replica AND e.at_us >= :now - :window"
)
_LAGS = {
    "file": _BY_PRESENCE.format(kind="file"),
    "bundle": _BY_EVENTS,
    "collection": _BY_PRESENCE.format(kind="collection"),
}

_OPEN = (
    "SELECT * FROM (SELECT step, replica, ref, born_us, due_us, attempts, parked_us, reason"
    " FROM todo WHERE step = :step_{place} AND parked_us IS NULL"
    " ORDER BY due_us LIMIT :limit) AS open_{place}"
)
_PARKED = (
    "SELECT * FROM (SELECT step, replica, ref, born_us, due_us, attempts, parked_us, reason"
    " FROM todo WHERE parked_us IS NOT NULL ORDER BY parked_us DESC LIMIT :limit) AS parked"
    " WHERE step IN ({steps})"
)


def _looked_at(steps: Sequence[str], rest: str) -> tuple[TextClause, dict[str, object]]:
    """A statement over the rows of these steps that are looked at, `looked`."""
    given: dict[str, object] = {f"step_{place}": step for place, step in enumerate(steps)}
    named = ", ".join(f":{name}" for name in given)
    parts = [_OPEN.format(place=place) for place in range(len(steps))]
    looked = " UNION ALL ".join([*parts, _PARKED.format(steps=named)])
    return sql(f"WITH looked AS ({looked}) {rest}"), {**given, "limit": LOOKED_AT}


def backlog(tx: Tx, steps: Sequence[str]) -> list[Backlog]:
    """What waits, by step, replica, kind and whether it was put aside."""
    statement, given = _looked_at(steps, _COUNTED)
    return [
        Backlog(row.step, row.replica, row.prefix, bool(row.aside), row.held, row.oldest_us)
        for row in tx.execute(statement, given)
    ]


_COUNTED = (
    "SELECT step, replica, CASE WHEN ref LIKE '%:%' THEN substr(ref, 1, 4) ELSE '' END AS prefix,"
    " CASE WHEN parked_us IS NULL THEN 0 ELSE 1 END AS aside, count(*) AS held,"
    " min(born_us) AS oldest_us"
    " FROM looked GROUP BY step, replica, prefix, aside ORDER BY step, replica, prefix, aside"
)


def oldest(tx: Tx, steps: Sequence[str]) -> list[Waiting]:
    """For each replica what has waited for longest, put aside or not."""
    statement, given = _looked_at(steps, _OLDEST)
    return [_waiting(row) for row in tx.execute(statement, given)]


_OLDEST = (
    "SELECT step, replica, ref, born_us, attempts, parked_us, reason FROM ("
    " SELECT looked.*, row_number() OVER (PARTITION BY replica ORDER BY born_us, ref) AS place"
    " FROM looked) AS placed WHERE place = 1 ORDER BY replica"
)


def failures(tx: Tx, steps: Sequence[str], *, limit: int) -> list[Waiting]:
    """What failed and waits for its next try or for a human, the latter first, the latest first."""
    statement, given = _looked_at(steps, _FAILED)
    return [_waiting(row) for row in tx.execute(statement, {**given, "most": limit})]


_FAILED = (
    "SELECT step, replica, ref, born_us, attempts, parked_us, reason FROM looked"
    " WHERE reason IS NOT NULL"
    " ORDER BY CASE WHEN parked_us IS NULL THEN 1 ELSE 0 END, coalesce(parked_us, due_us) DESC, ref"
    " LIMIT :most"
)


def _waiting(row: Row[Any]) -> Waiting:
    key = Todo(row.step, row.replica, row.ref)
    return Waiting(key, row.born_us, row.attempts, row.parked_us is not None, row.reason)


@dataclass(frozen=True, slots=True)
class Diverged:
    """A record of which a bucket holds another one."""

    kind: str
    name: str
    replica: str
    at_us: int


def diverged(tx: Tx, *, limit: int) -> list[Diverged]:
    """Records that differ between buckets, some of them."""
    query = select(presence).where(presence.c.diverged).order_by(presence.c.replica)
    return [
        Diverged(row.kind, _name(tx, row.kind, row.id), row.replica, row.at_us)
        for row in tx.execute(query.limit(limit)).all()
    ]


def counts(tx: Tx) -> dict[str, int]:
    """How many records differ and how many documents were refused; no more than are looked at."""
    return {
        name: int(tx.execute(sql(_COUNT.format(rows=rows)), {"limit": LOOKED_AT}).scalar_one())
        for name, rows in _WRONG.items()
    }


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :limit) AS looked"
_WRONG = {
    "diverged": "presence WHERE diverged",
    "unindexed": "documents WHERE state = 'unindexed'",
}


def _name(tx: Tx, kind: str, ident: int) -> str:
    table = metadata.tables.get(f"{kind}s")
    if table is None:
        return str(ident)
    row = tx.execute(select(table.c.uuid, table.c.version).where(table.c.id == ident)).first()
    return str(ident) if row is None else str(FQID(row.uuid, row.version))


@dataclass(frozen=True, slots=True)
class Seen:
    """A bucket's record of a version, when it was seen last."""

    at_us: int
    diverged: bool


def seen(tx: Tx, kind: str, ident: int) -> dict[str, Seen]:
    """Which buckets have a version's record, by replica."""
    query = select(presence.c.replica, presence.c.at_us, presence.c.diverged).where(
        presence.c.kind == kind, presence.c.id == ident
    )
    return {row.replica: Seen(row.at_us, bool(row.diverged)) for row in tx.execute(query)}


def under_way(tx: Tx, steps: Sequence[str], ref: str) -> dict[str, Waiting]:
    """What is to be done for one reference, by replica: a few probes of a key."""
    query = sql(
        "SELECT step, replica, ref, born_us, attempts, parked_us, reason FROM todo"
        " WHERE step = :step AND replica IN ('aws', 'gcp') AND ref = :ref"
    )
    found = [
        _waiting(row) for step in steps for row in tx.execute(query, {"step": step, "ref": ref})
    ]
    return {row.todo.replica: row for row in found}
