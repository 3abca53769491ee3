"""The durable job queue: insert, claim, renew, finish, postpone, and dead jobs.

The claim decides, not the message: the holder of the row's token may finish the job, and finishing
without the token rolls back. Inserting a job that is being worked on clears its token, so the work
is repeated with the new state.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.sql.elements import ColumnElement

from storage.catalog import sql
from storage.catalog.sql import Tx, now_us
from storage.catalog.store_state import EPOCH_IN_DOUBT_KEY
from storage.catalog.tables.jobs import todo
from storage.errors import ClaimLost
from storage.model import Job, JobClaim
from storage.tracing import join_request

RESEND_US = 5_000_000
"""Age after which a message counts as lost when its queue runs low."""

WAKE_LIMIT = 1_000
"""Most jobs that one finished job wakes."""


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A job that failed too often and waits for an operator."""

    todo: Job
    attempts: int
    parked_us: int
    reason: str


_IS = "step = :step AND replica = :replica AND ref = :ref"
_EXISTS = f"SELECT 1 FROM todo WHERE {_IS}"
_RENEW = f"UPDATE todo SET due_us = :now + :lease_us WHERE {_IS} AND token = :token"


def insert(tx: Tx, rows: Iterable[Job], *, request_id: str = "", sent: bool = True) -> None:
    """Insert jobs that are due now; an existing job becomes due again and loses its claim.

    `sent` says that the caller sends the messages; otherwise the scheduler does.
    """
    _insert_rows(tx, dict.fromkeys(rows, request_id), _ADD, sent=sent)


def insert_each(tx: Tx, rows: Iterable[tuple[Job, str]], *, sent: bool = True) -> None:
    """Insert jobs, each with its own request id; see `insert`."""
    _insert_rows(tx, dict(rows), _ADD, sent=sent)


def insert_new(tx: Tx, rows: Iterable[Job]) -> None:
    """Insert jobs for the scheduler to send; leave existing ones as they are."""
    _insert_rows(tx, dict.fromkeys(rows, "sweep"), _ADD_NEW)


def _insert_rows(tx: Tx, requests: Mapping[Job, str], statement: str, **more: bool) -> None:
    if requests:
        columns: sql.Columns = {
            **sql.attribute_columns(list(requests), text="step replica ref"),
            "request_id": ("text", [join_request(value) for value in requests.values()]),
        }
        sql.execute_with(tx, statement, "fresh", columns, **more)


# Sorted, so that two transactions that insert the same rows cannot deadlock.
_ADD = (
    "INSERT INTO todo (step, replica, ref, born_us, due_us, sent_us, attempts, request_id)"
    " SELECT step, replica, ref, :now, :now, CASE WHEN CAST(:sent AS boolean) THEN :now END, 0,"
    " request_id FROM {source} WHERE true ORDER BY step, replica, ref"
    " ON CONFLICT (step, replica, ref) DO UPDATE SET due_us = excluded.due_us,"
    " sent_us = excluded.sent_us, attempts = 0, token = NULL, parked_us = NULL, reason = NULL,"
    " waits_for = NULL"
)
_ADD_NEW = (
    "INSERT INTO todo (step, replica, ref, born_us, due_us, attempts, request_id)"
    " SELECT step, replica, ref, :now, :now, 0, request_id FROM {source} WHERE true"
    " ORDER BY step, replica, ref ON CONFLICT (step, replica, ref) DO NOTHING"
)

# Every step of every bundle runs these statements: build them once.
_FREE = f"{_IS} AND parked_us IS NULL AND due_us <= :now"
_TAKE = (
    "UPDATE todo SET token = :token, attempts = attempts + 1, due_us = :now + :lease_us"
    f" WHERE {_FREE} AND attempts < :most"
    f" AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{EPOCH_IN_DOUBT_KEY}')"
    " RETURNING attempts, request_id"
)
_MARK_SPENT_DEAD = (
    "UPDATE todo SET parked_us = :now, token = NULL,"
    " reason = coalesce(reason, 'Claimed too often without finishing.')"
    f" WHERE {_FREE} AND attempts >= :most"
)
_FINISH = sql.parse(f"DELETE FROM todo WHERE {_IS} AND token = :token")


def claim(tx: Tx, key: Job, *, token: str, lease_s: float, max_claims: int) -> JobClaim | None:
    """Claim a due job; None when it is not due, and while the epoch is in doubt.

    In that state, messages may be older than a restored catalog. A job that was claimed
    `max_claims` times becomes dead instead: it kills its workers.
    """
    free = {**key._asdict(), "most": max_claims}
    lease_us = int(lease_s * 1e6)
    row = sql.execute(tx, _TAKE, {**free, "token": token, "lease_us": lease_us}).first()
    if row is None:
        sql.execute(tx, _MARK_SPENT_DEAD, free)
        return None
    return JobClaim(key, token, row.attempts, row.request_id)


def claim_more(tx: Tx, like: Job, *, token: str, lease_s: float, limit: int) -> list[JobClaim]:
    """Claim other due jobs of the same step and replica, the longest due first.

    Only jobs that were never attempted: a job that failed or killed its worker is retried alone, so
    that it cannot harm others.
    """
    statement = _TAKE_MORE.format(locking=sql.lock_clause(tx, of="t", skip_locked=True))
    lease = {"token": token, "lease_us": int(lease_s * 1e6), "limit": limit}
    parameters = {"step": like.step, "replica": like.replica, **lease}
    rows = sql.execute(tx, statement, parameters).all()
    return [JobClaim(like._replace(ref=row.ref), token, 1, row.request_id) for row in rows]


_UNATTEMPTED = (
    "FROM todo AS t WHERE t.step = :step AND t.replica = :replica AND t.parked_us IS NULL"
    " AND t.attempts = 0 AND t.due_us <= :now"
)
_TAKE_MORE = (
    "UPDATE todo SET token = :token, attempts = 1, due_us = :now + :lease_us FROM ("
    f"WITH those AS MATERIALIZED (SELECT t.step, t.replica, t.ref {_UNATTEMPTED}"
    f" AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{EPOCH_IN_DOUBT_KEY}')"
    " ORDER BY t.due_us LIMIT :limit{locking})"
    " SELECT step, replica, ref FROM those) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.ref, todo.request_id"
)
_IS_ANY_DUE = (
    f"SELECT 1 FROM todo WHERE {_IS} AND parked_us IS NULL AND due_us <= :now"
    f" UNION ALL SELECT 1 FROM (SELECT 1 {_UNATTEMPTED} LIMIT 1) AS fresh LIMIT 1"
)


def is_any_due(tx: Tx, key: Job) -> bool:
    """Return whether the job, or an unattempted one of its step and replica, is due."""
    return sql.execute(tx, _IS_ANY_DUE, key._asdict()).first() is not None


def renew(tx: Tx, claim: JobClaim, *, lease_s: float) -> bool:
    """Extend a lease; False when the claim is gone."""
    parameters = {**claim.job._asdict(), "token": claim.token, "lease_us": int(lease_s * 1e6)}
    return sql.execute(tx, _RENEW, parameters).rowcount == 1


def finish(tx: Tx, claim: JobClaim) -> None:
    """Delete the job in the transaction of its effect; ClaimLost rolls that back."""
    parameters = {**claim.job._asdict(), "token": claim.token}
    if tx.execute(_FINISH, parameters).rowcount != 1:
        raise ClaimLost("The claim was lost.")


def finish_all(tx: Tx, claims: Sequence[JobClaim]) -> None:
    """Delete several jobs; raise ClaimLost if the claim on any of them is gone."""
    if not claims:
        return
    columns: sql.Columns = {
        **sql.attribute_columns([claim.job for claim in claims], text="step replica ref"),
        **sql.attribute_columns(claims, text="token"),
    }
    # Locked in the order in which `insert` touches the same rows.
    statement = _FINISH_ALL.replace("{locking}", sql.lock_clause(tx, of="t"))
    if sql.execute_with(tx, statement, "held", columns).rowcount != len(claims):
        raise ClaimLost("A claim was lost.")


_FINISH_ALL = (
    "DELETE FROM todo WHERE (step, replica, ref) IN (WITH ours AS MATERIALIZED ("
    "SELECT t.step, t.replica, t.ref FROM {source} CROSS JOIN todo AS t"
    " WHERE t.step = held.step AND t.replica = held.replica AND t.ref = held.ref"
    " AND t.token = held.token ORDER BY t.step, t.replica, t.ref{locking})"
    " SELECT step, replica, ref FROM ours)"
)


def postpone(
    tx: Tx,
    claim: JobClaim,
    *,
    delay_s: float,
    reason: str,
    counted: bool = True,
    until: str | None = None,
) -> None:
    """Release a job to be retried after `delay_s`; do nothing if its claim is gone.

    `until` is the ref of a job whose end also wakes this one. Without `counted` the attempts start
    again at 0: this attempt ended in order, unlike those that killed their workers.
    """
    claimed = update(todo).filter_by(**claim.job._asdict(), token=claim.token)
    due = sql.clock(tx) + int(delay_s * 1e6)
    values: dict[str, Any] = {
        "token": None,
        "due_us": due,
        "sent_us": None,
        "reason": reason,
        "waits_for": until,
    }
    if not counted:
        values["attempts"] = 0
    tx.execute(claimed.values(**values))


def wake(tx: Tx, step: str, replica: str, ref: str) -> tuple[Job, ...]:
    """Make up to WAKE_LIMIT jobs due that wait for `ref`; return them for the caller to send.

    Others become due at their own time.
    """
    statement = _WAKE.format(locking=sql.lock_clause(tx, skip_locked=True))
    parameters = {"step": step, "replica": replica, "awaited": ref, "limit": WAKE_LIMIT}
    return tuple(Job(step, replica, row.ref) for row in sql.execute(tx, statement, parameters))


_WAKE = (
    "UPDATE todo SET due_us = :now, sent_us = :now, waits_for = NULL FROM ("
    "WITH those AS MATERIALIZED (SELECT step, replica, ref FROM todo"
    " WHERE waits_for = :awaited AND step = :step AND replica = :replica"
    " AND parked_us IS NULL AND token IS NULL LIMIT :limit{locking})"
    " SELECT step, replica, ref FROM those) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.ref"
)


def mark_dead(tx: Tx, claim: JobClaim, *, reason: str) -> None:
    """Mark a job dead, with the reason, for an operator to inspect and revive."""
    claimed = update(todo).filter_by(**claim.job._asdict(), token=claim.token)
    tx.execute(claimed.values(parked_us=sql.clock(tx), token=None, reason=reason))


def revive(tx: Tx, key: Job) -> bool:
    """Make a dead job due again; False when it is not dead."""
    fresh = {"parked_us": None, "reason": None, "attempts": 0, "due_us": sql.clock(tx)}
    parked = update(todo).filter_by(**key._asdict()).where(todo.c.parked_us.is_not(None))
    return tx.execute(parked.values(sent_us=None, **fresh)).rowcount == 1


def take_due(tx: Tx, step: str, *, limit: int, resend: bool) -> list[tuple[Job, str, int]]:
    """Return due jobs with request ids and attempts, and mark them sent.

    `resend` includes jobs whose message was sent just now, because the queue that held it is empty.
    """
    # The holder of a locked row is claiming, finishing or renewing it: skip it.
    statement = _SEND.format(locking=sql.lock_clause(tx, skip_locked=True))
    parameters = {"step": step, "limit": limit, "age": 0 if resend else RESEND_US}
    rows = sorted(sql.execute(tx, statement, parameters).all(), key=lambda row: row.due_us)
    return [(Job(step, row.replica, row.ref), str(row.request_id), row.attempts) for row in rows]


_SEND = (
    "UPDATE todo SET sent_us = :now FROM ("
    "WITH first AS MATERIALIZED (SELECT step, replica, ref FROM todo"
    " WHERE step = :step AND parked_us IS NULL AND due_us <= :now"
    " AND (sent_us IS NULL OR sent_us <= :now - :age)"
    " ORDER BY due_us LIMIT :limit{locking})"
    " SELECT step, replica, ref FROM first) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.replica, todo.ref, todo.request_id, todo.due_us, todo.attempts"
)


def find_due_steps(tx: Tx, steps: Sequence[str]) -> set[str]:
    """Return the steps that have a due job: one index probe each."""
    rows = sql.execute_with(tx, _STEPS_DUE, "asked", {"step": ("text", steps)})
    return {row.step for row in rows if row.due}


_STEPS_DUE = (
    "SELECT step, (SELECT 1 FROM todo WHERE todo.step = asked.step AND parked_us IS NULL"
    " AND due_us <= :now ORDER BY due_us LIMIT 1) AS due FROM {source}"
)


def is_claimed(tx: Tx, key: Job) -> bool:
    """Return whether a worker holds the job."""
    token = sql.execute(tx, f"SELECT token FROM todo WHERE {_IS} AND due_us > :now", key._asdict())
    return token.scalar_one_or_none() is not None


def count_open(tx: Tx) -> dict[tuple[str, str], int]:
    """Count open jobs by step and replica."""
    counted = select(todo.c.step, todo.c.replica, func.count()).where(todo.c.parked_us.is_(None))
    rows = tx.execute(counted.group_by(todo.c.step, todo.c.replica))
    return {(step, replica): count for step, replica, count in rows}


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """Open jobs of one step and replica, and when the oldest was created."""

    step: str
    replica: str
    count: int
    born_us: int


def list_open(tx: Tx) -> list[OpenJobs]:
    """Return the open jobs by step and replica, the oldest first."""
    oldest = func.min(todo.c.born_us)
    query = (
        select(todo.c.step, todo.c.replica, func.count(), oldest)
        .where(todo.c.parked_us.is_(None))
        .group_by(todo.c.step, todo.c.replica)
        .order_by(oldest)
    )
    return [OpenJobs(*row) for row in tx.execute(query)]


@dataclass(frozen=True, slots=True)
class JobCount:
    """Jobs of one step and replica by state.

    `due_us` is when the first waiting job became or becomes due, `born_us` when the oldest job was
    created.
    """

    step: str
    replica: str
    waiting: int
    running: int
    dead: int
    due_us: int | None
    born_us: int


def count_by_state(tx: Tx) -> list[JobCount]:
    """Count all jobs by step and replica, in one pass in the order of the primary key."""
    return [JobCount(*row) for row in sql.execute(tx, _COUNT_BY_STATE, {})]


_IS_RUNNING = "parked_us IS NULL AND token IS NOT NULL AND due_us > :now"
_IS_WAITING = "parked_us IS NULL AND (token IS NULL OR due_us <= :now)"
_COUNT_BY_STATE = (
    f"SELECT step, replica, count(CASE WHEN {_IS_WAITING} THEN 1 END),"
    f" count(CASE WHEN {_IS_RUNNING} THEN 1 END), count(parked_us),"
    f" min(CASE WHEN {_IS_WAITING} THEN due_us END), min(born_us)"
    " FROM todo GROUP BY step, replica"
)


def count_open_until(tx: Tx, step: str, replica: str, until_us: int) -> tuple[int, int]:
    """Count waiting and dead jobs of a step that existed at `until_us`."""
    rows = (todo.c.step == step) & (todo.c.replica == replica) & (todo.c.born_us <= until_us)
    query = select(func.count(), func.count(todo.c.parked_us)).select_from(todo)
    total, parked = tx.execute(query.where(rows)).one()
    return total - parked, parked


def find_max_overdue_us(tx: Tx) -> int:
    """Return how long the most overdue job has been due; 0 when none is."""
    oldest = select(func.min(todo.c.due_us)).where(todo.c.parked_us.is_(None))
    now, due_us = now_us(tx), tx.execute(oldest).scalar_one()
    return 0 if due_us is None else max(0, now - int(due_us))


@dataclass(frozen=True, slots=True)
class DeadJobFilter:
    """Which dead jobs are meant; None means any.

    `reason` is a part of the reason, or a pattern of all of it with `*` and `?`; case is ignored.
    """

    step: str | None = None
    replica: str | None = None
    ref: str | None = None
    reason: str | None = None
    until_us: int | None = None
    """Dead since then or before."""


def _match_dead(filter_: DeadJobFilter) -> ColumnElement[bool]:
    wanted: ColumnElement[bool] = todo.c.parked_us.is_not(None)
    for column, value in (
        (todo.c.step, filter_.step),
        (todo.c.replica, filter_.replica),
        (todo.c.ref, filter_.ref),
    ):
        if value is not None:
            wanted &= column == value
    if filter_.reason is not None:
        reason = func.lower(func.coalesce(todo.c.reason, ""))
        wanted &= reason.like(_build_like_pattern(filter_.reason.lower()), escape="\\")
    if filter_.until_us is not None:
        wanted &= todo.c.parked_us <= filter_.until_us
    return wanted


def _build_like_pattern(reason: str) -> str:
    escaped = re.sub(r"([\\%_])", r"\\\1", reason)
    if "*" not in reason and "?" not in reason:
        return f"%{escaped}%"
    return escaped.replace("*", "%").replace("?", "_")


ANY_DEAD_JOB = DeadJobFilter()


def list_dead(tx: Tx, filter_: DeadJobFilter = ANY_DEAD_JOB, *, limit: int = 100) -> list[DeadJob]:
    """List dead jobs, the latest first."""
    query = select(todo).where(_match_dead(filter_)).order_by(todo.c.parked_us.desc())
    return [
        DeadJob(Job(row.step, row.replica, row.ref), row.attempts, row.parked_us, row.reason or "")
        for row in tx.execute(query.limit(limit))
    ]


def count_dead(tx: Tx) -> int:
    """Count dead jobs."""
    query = select(func.count()).select_from(todo).where(todo.c.parked_us.is_not(None))
    return int(tx.execute(query).scalar_one())


def count_dead_by_step(tx: Tx, filter_: DeadJobFilter) -> dict[str, int]:
    """Count dead jobs of each step."""
    query = select(todo.c.step, func.count()).where(_match_dead(filter_)).group_by(todo.c.step)
    return {str(step): int(count) for step, count in tx.execute(query)}


def delete_dead(tx: Tx, key: Job) -> bool:
    """Delete a dead job; False when it is not dead."""
    statement = f"DELETE FROM todo WHERE {_IS} AND parked_us IS NOT NULL"
    return sql.execute(tx, statement, key._asdict()).rowcount == 1


def delete(tx: Tx, key: Job) -> None:
    """Delete a job; a worker that holds it loses its claim."""
    sql.execute(tx, f"DELETE FROM todo WHERE {_IS}", key._asdict())


def exists(tx: Tx, key: Job) -> bool:
    """Return whether a job exists, dead or not."""
    return sql.execute(tx, _EXISTS, key._asdict()).first() is not None
