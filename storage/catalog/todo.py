"""The durable queue: to-do rows are born with the need, claimed before the work, deleted with it.

The claim decides, not the message: whoever holds the row's token may complete it, and a completion
whose token is gone rolls back. A need that arises again while its row is being worked on clears
the token, so that the work is done once more with the new state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.sql.elements import ColumnElement

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, execute_sql, now_us, sql
from storage.catalog.schema import todo
from storage.catalog.switches import IN_DOUBT
from storage.errors import Lost
from storage.model import Claim, Todo

RESEND_US = 5_000_000
"""Age of a message that is presumed lost when its queue runs low."""

WOKEN = 1_000
"""Rows that are woken at once by what they waited for."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A row that failed too often, waiting for a human."""

    todo: Todo
    attempts: int
    parked_us: int
    reason: str


_IS = "step = :step AND replica = :replica AND ref = :ref"
_EXISTS = f"SELECT 1 FROM todo WHERE {_IS}"
_RENEW = f"UPDATE todo SET due_us = :now + :lease_us WHERE {_IS} AND token = :token"


def _is(key: Todo) -> ColumnElement[bool]:
    return (todo.c.step == key.step) & (todo.c.replica == key.replica) & (todo.c.ref == key.ref)


def add(tx: Tx, rows: Iterable[Todo], *, request_id: str = "", sent: bool = True) -> None:
    """Record needs, all due now; one that exists is due again and its present claim is void.

    `sent` says that the caller will send the messages; the clock sends the others.
    """
    add_each(tx, [(row, request_id) for row in rows], sent=sent)


def add_each(tx: Tx, rows: Iterable[tuple[Todo, str]], *, sent: bool = True) -> None:
    """The same, each row with the id of its own request."""
    requests = dict(rows)
    if requests:
        wanted = sorted(requests)
        _insert(tx, wanted, _ADD, {"sent": sent}, requests=[requests[row] for row in wanted])


# Sorted: two that need the same rows wait for each other in one direction only.
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
    " SELECT step, replica, ref, :now, :now, 0, 'sweep' FROM {source} WHERE true"
    " ORDER BY step, replica, ref ON CONFLICT (step, replica, ref) DO NOTHING"
)


def _insert(
    tx: Tx,
    rows: Sequence[Todo],
    statement: str,
    more: Mapping[str, object],
    *,
    requests: Sequence[str] = (),
) -> None:
    columns = _columns(rows)
    if requests:
        columns["request_id"] = ("text", requests)
    source, parameters = bulk.derived(tx, "fresh", columns)
    execute_now(tx, statement.format(source=source), {**parameters, **more})


def _columns(rows: Sequence[Todo]) -> dict[str, tuple[str, Sequence[str]]]:
    return {
        "step": ("text", [row.step for row in rows]),
        "replica": ("text", [row.replica for row in rows]),
        "ref": ("text", [row.ref for row in rows]),
    }


def add_new(tx: Tx, rows: Iterable[Todo]) -> None:
    """Record needs for the clock to send; one that exists already is left as it is."""
    wanted = sorted(set(rows))
    if wanted:
        _insert(tx, wanted, _ADD_NEW, {})


# Every step of every bundle begins and ends with these: they are put together only once.
_FREE = f"{_IS} AND parked_us IS NULL AND due_us <= :now"
_TAKE = (
    "UPDATE todo SET token = :token, attempts = attempts + 1, due_us = :now + :lease_us"
    f" WHERE {_FREE} AND attempts < :most"
    f" AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{IN_DOUBT}')"
    " RETURNING attempts, request_id"
)
_PARK_SPENT = (
    "UPDATE todo SET parked_us = :now, token = NULL,"
    " reason = coalesce(reason, 'Claimed too often without an end.')"
    f" WHERE {_FREE} AND attempts >= :most"
)
_FINISH = sql(f"DELETE FROM todo WHERE {_IS} AND token = :token")


def claim(tx: Tx, key: Todo, *, token: str, lease_s: float, max_claims: int) -> Claim | None:
    """Take a row that is due and not parked; None when there is nothing to do, and while catalog
    and buckets disagree: messages may be older than a restored catalog.

    A row that was claimed `max_claims` times already is parked instead: its work kills workers.
    """
    free = {**key._asdict(), "most": max_claims}
    lease_us = int(lease_s * 1e6)
    row = execute_now(tx, _TAKE, {**free, "token": token, "lease_us": lease_us}).first()
    if row is None:
        execute_now(tx, _PARK_SPENT, free)
        return None
    return Claim(key, token, row.attempts, row.request_id)


def claim_more(tx: Tx, like: Todo, *, token: str, lease_s: float, limit: int) -> list[Claim]:
    """Claim other due jobs of the same step and replica, the longest due first.

    Only those that were never attempted: work that failed, or that killed its worker, is attempted
    by itself, so that it can do no harm to others.
    """
    locking = "" if tx.dialect.name == "sqlite" else " FOR UPDATE OF t SKIP LOCKED"
    statement = _TAKE_MORE.format(skipping=locking)
    given = {
        "step": like.step,
        "replica": like.replica,
        "token": token,
        "lease_us": int(lease_s * 1e6),
        "limit": limit,
    }
    rows = execute_now(tx, statement, given).all()
    return [Claim(like._replace(ref=row.ref), token, 1, row.request_id) for row in rows]


_FRESH = (
    "FROM todo AS t WHERE t.step = :step AND t.replica = :replica AND t.parked_us IS NULL"
    " AND t.attempts = 0 AND t.due_us <= :now"
)
_TAKE_MORE = (
    "UPDATE todo SET token = :token, attempts = 1, due_us = :now + :lease_us FROM ("
    f"WITH those AS MATERIALIZED (SELECT t.step, t.replica, t.ref {_FRESH}"
    f" AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{IN_DOUBT}')"
    " ORDER BY t.due_us LIMIT :limit{skipping})"
    " SELECT step, replica, ref FROM those) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.ref, todo.request_id"
)
_IS_ANY_DUE = (
    f"SELECT 1 FROM todo WHERE {_IS} AND parked_us IS NULL AND due_us <= :now"
    f" UNION ALL SELECT 1 FROM (SELECT 1 {_FRESH} LIMIT 1) AS fresh LIMIT 1"
)


def is_any_due(tx: Tx, key: Todo) -> bool:
    """Whether the job is due, or any other of its step and replica that was never attempted."""
    return execute_now(tx, _IS_ANY_DUE, key._asdict()).first() is not None


def renew(tx: Tx, held: Claim, *, lease_s: float) -> None:
    """Hold on for another lease; Lost when the claim is no longer ours."""
    if not renewed(tx, held, lease_s=lease_s):
        raise Lost("The claim was lost.")


def renewed(tx: Tx, held: Claim, *, lease_s: float) -> bool:
    """The same; False when the claim is no longer ours."""
    given = {**held.todo._asdict(), "token": held.token, "lease_us": int(lease_s * 1e6)}
    return execute_now(tx, _RENEW, given).rowcount == 1


def finish(tx: Tx, held: Claim) -> None:
    """Delete the row in the transaction of its effect; Lost rolls that back."""
    ours = {**held.todo._asdict(), "token": held.token}
    if tx.execute(_FINISH, ours).rowcount != 1:
        raise Lost("The claim was lost.")


def finish_all(tx: Tx, held: Sequence[Claim]) -> None:
    """The same for several jobs; Lost if the claim on any of them is gone."""
    if not held:
        return
    columns = _columns([claim.todo for claim in held])
    columns["token"] = ("text", [claim.token for claim in held])
    source, parameters = bulk.derived(tx, "held", columns)
    # In the order in which `add` goes through the same rows.
    locking = "" if tx.dialect.name == "sqlite" else " FOR UPDATE OF t"
    statement = sql(_FINISH_ALL.format(source=source, locking=locking))
    if tx.execute(statement, parameters).rowcount != len(held):
        raise Lost("A claim was lost.")


_FINISH_ALL = (
    "DELETE FROM todo WHERE (step, replica, ref) IN (WITH ours AS MATERIALIZED ("
    "SELECT t.step, t.replica, t.ref FROM {source} CROSS JOIN todo AS t"
    " WHERE t.step = held.step AND t.replica = held.replica AND t.ref = held.ref"
    " AND t.token = held.token ORDER BY t.step, t.replica, t.ref{locking})"
    " SELECT step, replica, ref FROM ours)"
)


def postpone(
    tx: Tx,
    held: Claim,
    *,
    delay_s: float,
    reason: str,
    counted: bool = True,
    until: str | None = None,
) -> None:
    """Give the row back, to be tried again after a while, or when what it waits for is done
    (`until`, the reference of another row); not an error when it was lost. One that is not
    `counted` begins anew: work that ended by itself is not what killed earlier workers."""
    ours = _is(held.todo) & (todo.c.token == held.token)
    due = now_us(tx) + int(delay_s * 1e6)
    values = {"token": None, "due_us": due, "sent_us": None, "reason": reason, "waits_for": until}
    if not counted:
        values["attempts"] = 0
    tx.execute(update(todo).where(ours).values(**values))


def wake(tx: Tx, step: str, replica: str, ref: str) -> tuple[Todo, ...]:
    """Rows of a step that waited for `ref` in a replica, due now, for the caller to send; beyond
    WOKEN of them the others wait for their own time."""
    statement = _WAKE.format(skipping="" if tx.dialect.name == "sqlite" else _SKIPPING)
    given = {"step": step, "replica": replica, "awaited": ref, "limit": WOKEN}
    return tuple(Todo(step, replica, row.ref) for row in execute_now(tx, statement, given))


_WAKE = (
    "UPDATE todo SET due_us = :now, sent_us = :now, waits_for = NULL FROM ("
    "WITH those AS MATERIALIZED (SELECT step, replica, ref FROM todo"
    " WHERE waits_for = :awaited AND step = :step AND replica = :replica"
    " AND parked_us IS NULL AND token IS NULL LIMIT :limit{skipping})"
    " SELECT step, replica, ref FROM those) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.ref"
)


def park(tx: Tx, held: Claim, *, reason: str) -> None:
    """Put the row aside with its reason, for a human to see and re-drive."""
    ours = _is(held.todo) & (todo.c.token == held.token)
    tx.execute(update(todo).where(ours).values(parked_us=now_us(tx), token=None, reason=reason))


def resume(tx: Tx, key: Todo) -> bool:
    """Let a parked row be tried afresh; False when it is not parked."""
    fresh = {"parked_us": None, "reason": None, "attempts": 0, "due_us": now_us(tx)}
    parked = update(todo).where(_is(key), todo.c.parked_us.is_not(None))
    return tx.execute(parked.values(sent_us=None, **fresh)).rowcount == 1


def due(tx: Tx, step: str, *, limit: int, resend: bool) -> list[tuple[Todo, str, int]]:
    """Rows due now with their request ids and attempts, marked as sent; with `resend` also those
    whose message went out a moment ago, because the queue that held it is empty."""
    # Who holds a row is claiming, finishing or renewing it: nobody waits for that here.
    statement = _SEND.format(skipping="" if tx.dialect.name == "sqlite" else _SKIPPING)
    given = {"step": step, "limit": limit, "age": 0 if resend else RESEND_US}
    rows = sorted(execute_now(tx, statement, given).all(), key=lambda row: row.due_us)
    return [(Todo(step, row.replica, row.ref), str(row.request_id), row.attempts) for row in rows]


_SEND = (
    "UPDATE todo SET sent_us = :now FROM ("
    "WITH first AS MATERIALIZED (SELECT step, replica, ref FROM todo"
    " WHERE step = :step AND parked_us IS NULL AND due_us <= :now"
    " AND (sent_us IS NULL OR sent_us <= :now - :age)"
    " ORDER BY due_us LIMIT :limit{skipping})"
    " SELECT step, replica, ref FROM first) AS out"
    " WHERE todo.step = out.step AND todo.replica = out.replica AND todo.ref = out.ref"
    " RETURNING todo.replica, todo.ref, todo.request_id, todo.due_us, todo.attempts"
)
_SKIPPING = " FOR UPDATE SKIP LOCKED"


def steps_due(tx: Tx, steps: Sequence[str]) -> set[str]:
    """Those steps of which any row is due: one probe of an index for each."""
    source, parameters = bulk.derived(tx, "asked", {"step": ("text", steps)})
    rows = execute_now(tx, _STEPS_DUE.format(source=source), parameters)
    return {row.step for row in rows if row.due}


_STEPS_DUE = (
    "SELECT step, (SELECT 1 FROM todo WHERE todo.step = asked.step AND parked_us IS NULL"
    " AND due_us <= :now ORDER BY due_us LIMIT 1) AS due FROM {source}"
)
_CLAIMED = f"SELECT token FROM todo WHERE {_IS} AND due_us > :now"


def claimed(tx: Tx, key: Todo) -> bool:
    """Whether somebody is working on the row."""
    found = execute_now(tx, _CLAIMED, key._asdict())
    return found.scalar_one_or_none() is not None


def backlog(tx: Tx) -> dict[tuple[str, str], int]:
    """Open rows by step and replica."""
    counted = select(todo.c.step, todo.c.replica, func.count()).where(todo.c.parked_us.is_(None))
    rows = tx.execute(counted.group_by(todo.c.step, todo.c.replica))
    return {(step, replica): count for step, replica, count in rows}


_OPEN_UNTIL = sql(
    "SELECT count(*) AS open, count(parked_us) AS parked FROM todo"
    " WHERE step = :step AND replica = :replica AND born_us <= :until"
)


def open_until(tx: Tx, step: str, replica: str, until_us: int) -> tuple[int, int]:
    """How many rows of a step that were there at a moment wait, and how many are parked."""
    asked = {"step": step, "replica": replica, "until": until_us}
    row = tx.execute(_OPEN_UNTIL, asked).one()
    return row.open - row.parked, row.parked


def overdue_us(tx: Tx) -> int:
    """How long the row that nobody took up for longest has been due; 0 when none is."""
    oldest = select(func.min(todo.c.due_us)).where(todo.c.parked_us.is_(None))
    now, due_us = now_us(tx), tx.execute(oldest).scalar_one()
    return 0 if due_us is None else max(0, now - int(due_us))


def parked(tx: Tx, *, limit: int = 100) -> list[Parked]:
    """Rows put aside, the latest first."""
    query = select(todo).where(todo.c.parked_us.is_not(None)).order_by(todo.c.parked_us.desc())
    return [
        Parked(Todo(row.step, row.replica, row.ref), row.attempts, row.parked_us, row.reason or "")
        for row in tx.execute(query.limit(limit))
    ]


def count_parked(tx: Tx) -> int:
    """How many rows were put aside."""
    query = select(func.count()).select_from(todo).where(todo.c.parked_us.is_not(None))
    return int(tx.execute(query).scalar_one())


def remove(tx: Tx, key: Todo) -> None:
    """Nobody needs it any more; whoever is working on it finds its claim lost."""
    execute_sql(tx, f"DELETE FROM todo WHERE {_IS}", key._asdict())


def exists(tx: Tx, key: Todo) -> bool:
    """Whether the row is there, parked or not."""
    return execute_sql(tx, _EXISTS, key._asdict()).first() is not None
