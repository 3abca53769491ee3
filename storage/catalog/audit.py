"""The audit log: who changed what of that which decides who may do what. Rows are only added, in
the unit of work of the change, by whoever holds what is changed. Who came and went is told there,
too, and forgotten after a while.
"""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from storage.catalog.engine import Tx, execute_now, sql

OPERATOR = "the operator"
"""Who changed something at a terminal: whoever may run commands there. No token can name them,
since no identity has a space in it."""
PASSING = ("login", "login_failed", "locked_out", "logout")
"""What changes nothing, and anybody may cause: it is not kept for ever."""
FORGOTTEN = 1_000
"""Rows that one statement forgets: the oldest, by their ids."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change about to be recorded: `what` was done to `target`, spelled `<kind>/<id>`; `before`
    and `after` are JSON, None for what was or is not there."""

    who: str
    what: str
    target: str
    before: str | None
    after: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Recorded(Change):
    """One that was."""

    id: int
    uuid: str
    at_us: int


_ADD = (
    "INSERT INTO audit (uuid, at_us, who, what, target, before, after, request_id)"
    " VALUES (:uuid, :now, :who, :what, :target, :before, :after, :request_id)"
)


def add(tx: Tx, change: Change) -> None:
    """Record a change."""
    given = {name: getattr(change, name) for name in Change.__slots__}
    execute_now(tx, _ADD, {**given, "uuid": str(uuid4())}).close()


@dataclass(frozen=True, slots=True)
class Filter:
    """Whose changes, of which kind, since when; None is any."""

    who: str | None = None
    what: str | None = None
    since_us: int | None = None


_CONDITIONS = {"who": "who = :who", "what": "what = :what", "since_us": "at_us >= :since_us"}


def listing(tx: Tx, wanted: Filter, *, before_id: int | None, limit: int) -> list[Recorded]:
    """Changes before a given one, the newest first."""
    given: dict[str, Any] = {name: getattr(wanted, name) for name in _CONDITIONS}
    conditions = [said for name, said in _CONDITIONS.items() if given[name] is not None]
    conditions += ["id < :before_id"] if before_id is not None else []
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT * FROM audit {where} ORDER BY id DESC LIMIT :limit"
    named = {name: value for name, value in given.items() if value is not None}
    if before_id is not None:
        named["before_id"] = before_id
    rows = tx.execute(sql(query), {**named, "limit": limit})
    return [Recorded(**row._mapping) for row in rows]


_FORGET = sql(
    "DELETE FROM audit WHERE at_us < :before AND id IN"
    " (SELECT id FROM audit WHERE what = :what ORDER BY id LIMIT :limit)"
)


def forget(tx: Tx, before_us: int) -> int:
    """Forget what passes and was told before, a bounded number of each; returns the most of one."""
    given = {"before": before_us, "limit": FORGOTTEN}
    return max(tx.execute(_FORGET, {**given, "what": what}).rowcount for what in PASSING)
