"""Replication lag, backlog and failures, by bounded index scans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause, select, tuple_

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables import metadata
from storage.catalog.tables.jobs import todo
from storage.catalog.tables.versions import presence
from storage.model import FQID, Job, Replica

SCAN_LIMIT = 2_500
"""Most jobs of one step that are read, the longest due first, and most dead jobs."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """An open or dead job that keeps a version from its replica."""

    todo: Job
    born_us: int
    attempts: int
    parked: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class ReplicationBacklog:
    """Jobs of one step in one replica, and the age of the oldest.

    `prefix` is the part of their refs before the colon, up to four characters.
    """

    step: str
    replica: str
    prefix: str
    parked: bool
    rows: int
    oldest_us: int


def list_lags(tx: Tx, kind: str, replica: Replica, *, window_us: int, limit: int) -> list[int]:
    """Return recent replication lags in microseconds, ascending.

    A lag is the time from publication elsewhere until the version is complete here.
    """
    parameters = {"replica": replica, "limit": limit, "window": window_us}
    return sorted(int(lag) for lag in sql.execute(tx, _LAGS[kind], parameters).scalars())


_BY_PRESENCE = (
    "SELECT p.at_us - t.published_us FROM ("
    " SELECT id, at_us FROM presence WHERE replica = :replica AND kind = '{kind}'"
    " AND at_us >= :now - :window ORDER BY at_us DESC LIMIT :limit) AS p"
    " JOIN {kind}s AS t ON t.id = p.id"
    " WHERE t.origin <> :replica AND t.published_us IS NOT NULL"
)
# Rows of events are written once and never change.
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

_SELECT_OPEN = (
    "SELECT * FROM (SELECT step, replica, ref, born_us, due_us, attempts, parked_us, reason"
    " FROM todo WHERE step = :step_{place} AND parked_us IS NULL"
    " ORDER BY due_us LIMIT :limit) AS open_{place}"
)
_SELECT_DEAD = (
    "SELECT * FROM (SELECT step, replica, ref, born_us, due_us, attempts, parked_us, reason"
    " FROM todo WHERE parked_us IS NOT NULL ORDER BY parked_us DESC LIMIT :limit) AS parked"
    " WHERE step IN ({steps})"
)


def _build_scan(steps: Sequence[str], rest: str) -> tuple[TextClause, dict[str, object]]:
    """Return a statement over the bounded scan `looked` of these steps' rows."""
    given: dict[str, object] = {f"step_{place}": step for place, step in enumerate(steps)}
    parameters = ", ".join(f":{name}" for name in given)
    parts = [_SELECT_OPEN.format(place=place) for place in range(len(steps))]
    looked = " UNION ALL ".join([*parts, _SELECT_DEAD.format(steps=parameters)])
    return sql.parse(f"WITH looked AS ({looked}) {rest}"), {**given, "limit": SCAN_LIMIT}


def list_backlog(tx: Tx, steps: Sequence[str]) -> list[ReplicationBacklog]:
    """Return the backlog by step, replica, kind and whether the jobs are dead."""
    statement, parameters = _build_scan(steps, _SELECT_BACKLOG)
    return [
        ReplicationBacklog(
            row.step, row.replica, row.prefix, bool(row.aside), row.held, row.oldest_us
        )
        for row in tx.execute(statement, parameters)
    ]


_SELECT_BACKLOG = (
    "SELECT step, replica, CASE WHEN ref LIKE '%:%' THEN substr(ref, 1, 4) ELSE '' END AS prefix,"
    " CASE WHEN parked_us IS NULL THEN 0 ELSE 1 END AS aside, count(*) AS held,"
    " min(born_us) AS oldest_us"
    " FROM looked GROUP BY step, replica, prefix, aside ORDER BY step, replica, prefix, aside"
)


def list_oldest(tx: Tx, steps: Sequence[str]) -> list[WaitingJob]:
    """Return the oldest job of each replica, dead or not."""
    statement, parameters = _build_scan(steps, _SELECT_OLDEST)
    return [_waiting_job_from_row(row) for row in tx.execute(statement, parameters)]


_SELECT_OLDEST = (
    "SELECT step, replica, ref, born_us, attempts, parked_us, reason FROM ("
    " SELECT looked.*, row_number() OVER (PARTITION BY replica ORDER BY born_us, ref) AS place"
    " FROM looked) AS placed WHERE place = 1 ORDER BY replica"
)


def list_failures(tx: Tx, steps: Sequence[str], *, limit: int) -> list[WaitingJob]:
    """List failed jobs, dead ones first, the latest first."""
    statement, parameters = _build_scan(steps, _SELECT_FAILURES)
    return [
        _waiting_job_from_row(row) for row in tx.execute(statement, {**parameters, "most": limit})
    ]


_SELECT_FAILURES = (
    "SELECT step, replica, ref, born_us, attempts, parked_us, reason FROM looked"
    " WHERE reason IS NOT NULL"
    " ORDER BY CASE WHEN parked_us IS NULL THEN 1 ELSE 0 END, coalesce(parked_us, due_us) DESC, ref"
    " LIMIT :most"
)


def _waiting_job_from_row(row: Row[Any]) -> WaitingJob:
    key = Job(row.step, row.replica, row.ref)
    return WaitingJob(key, row.born_us, row.attempts, row.parked_us is not None, row.reason)


@dataclass(frozen=True, slots=True)
class DivergedVersion:
    """A record that differs from that of another bucket."""

    kind: str
    name: str
    replica: str
    at_us: int
    id: int


def list_diverged(
    tx: Tx, *, after: DivergedVersion | None = None, limit: int
) -> list[DivergedVersion]:
    """List some records that differ between buckets, after a given one."""
    place = presence.c.replica, presence.c.kind, presence.c.id
    query = select(presence).where(presence.c.diverged).order_by(*place)
    if after is not None:
        query = query.where(tuple_(*place) > tuple_(after.replica, after.kind, after.id))
    return [
        DivergedVersion(row.kind, _find_name(tx, row.kind, row.id), row.replica, row.at_us, row.id)
        for row in tx.execute(query.limit(limit)).all()
    ]


def count_problems(tx: Tx) -> dict[str, int]:
    """Count diverged records and refused documents, up to a bound."""
    return {
        name: int(
            tx.execute(sql.parse(_COUNT.format(rows=rows)), {"limit": SCAN_LIMIT}).scalar_one()
        )
        for name, rows in _PROBLEMS.items()
    }


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :limit) AS looked"
_PROBLEMS = {
    "diverged": "presence WHERE diverged",
    "unindexed": "documents WHERE state = 'unindexed'",
}


def _find_name(tx: Tx, kind: str, ident: int) -> str:
    table = metadata.tables.get(f"{kind}s")
    if table is None:
        return str(ident)
    row = tx.execute(select(table.c.uuid, table.c.version).where(table.c.id == ident)).first()
    return str(ident) if row is None else str(FQID(row.uuid, row.version))


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A bucket's record of a version, and when it was last seen."""

    at_us: int
    diverged: bool


def find_stored_records(tx: Tx, kind: str, ident: int) -> dict[str, StoredRecord]:
    """Return the buckets that hold a version's record, by replica."""
    query = select(presence.c.replica, presence.c.at_us, presence.c.diverged).where(
        presence.c.kind == kind, presence.c.id == ident
    )
    return {row.replica: StoredRecord(row.at_us, bool(row.diverged)) for row in tx.execute(query)}


def find_waiting(tx: Tx, steps: Sequence[str], ref: str) -> dict[str, WaitingJob]:
    """Return the jobs of one ref by replica: a few index probes."""
    query = sql.parse(
        f"SELECT {sql.list_columns(todo, 't')} FROM todo AS t"
        " WHERE step = :step AND replica IN ('aws', 'gcp') AND ref = :ref"
    )
    found = (row for step in steps for row in tx.execute(query, {"step": step, "ref": ref}))
    return {row.replica: _waiting_job_from_row(row) for row in found}
