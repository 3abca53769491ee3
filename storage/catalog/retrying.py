"""Deliveries that are tried again because their owner asks: one, or those that failed.

What tells of the beginning of a version that has ended is not told any more: its end may have been.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text

from storage.catalog import bulk, deliveries, endpoints, events, heads
from storage.catalog.engine import Tx, now_us, sql
from storage.catalog.schema.telling import HELD_US
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, EventType

_ROW = """
    SELECT d.id, d.event_type, d.bundle_uuid, d.bundle_version, d.endpoint_id, s.replica
    FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
"""
# The terms of the partial index are spelled as it has them.
_GIVEN_UP = (
    _ROW + " WHERE d.state = 'failed' AND d.payload <> '' AND d.subscription_id = :id"
    " AND d.finished_us >= :since AND d.finished_us < :until{kind}"
    " ORDER BY d.finished_us LIMIT :limit"
)
# What is due later has failed before: by the index of what is due.
_LATER = (
    _ROW + " JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts"
    " WHERE d.state = 'pending' AND d.endpoint_id = :endpoint_id AND d.due_us > :now"
    f" AND d.due_us < {HELD_US} AND d.subscription_id = :id"
    " AND a.at_us >= :since AND a.at_us < :until{kind}"
    " ORDER BY d.due_us LIMIT :limit"
)


def one(tx: Tx, ident: int) -> bool:
    """Make it due now; False when there is nothing to send, or nobody to send it to any more."""
    open_states = "d.payload <> '' AND d.state IN ('pending', 'failed', 'delivered')"
    rows = tx.execute(sql(f"{_ROW} WHERE d.id = :id AND {open_states}"), {"id": ident}).all()
    return bool(_again(tx, rows))


@dataclass(frozen=True, slots=True)
class Span:
    """When something failed, `until_us` not included, and what it tells of; None is anything."""

    since_us: int
    until_us: int
    event_type: str | None = None


def given_up(tx: Tx, one: Subscription, span: Span, *, limit: int) -> tuple[int, int]:
    """Make due now what was given up in that span, the oldest first, and say of what has ended
    that it is superseded; returns how many were looked at, and how many are due."""
    return _some(tx, one, span, _GIVEN_UP, {"limit": limit})


def put_off(tx: Tx, one: Subscription, span: Span, *, limit: int) -> tuple[int, int]:
    """Make due now what failed in that span and would be tried again later; returns the same."""
    asked = {"limit": limit, "endpoint_id": one.endpoint_id, "now": now_us(tx)}
    return _some(tx, one, span, _LATER, asked)


def _some(
    tx: Tx, one: Subscription, span: Span, statement: str, more: dict[str, int]
) -> tuple[int, int]:
    kind = "" if span.event_type is None else " AND d.event_type = :kind"
    told = {} if span.event_type is None else {"kind": span.event_type}
    asked = {"id": one.id, "since": span.since_us, "until": span.until_us, **more}
    rows = tx.execute(sql(statement.format(kind=kind)), {**asked, **told}).all()
    return len(rows), _again(tx, rows)


def _again(tx: Tx, rows: Sequence[Row[Any]]) -> int:
    # The end of a version is matched under its head: it sees what is due, or is seen here.
    heads.lock(tx, "bundle", [row.bundle_uuid for row in rows if row.event_type != deliveries.TEST])
    ended = _ended(tx, [row for row in rows if row.event_type == "CREATE"])
    deliveries.lock(tx, [row.id for row in rows])
    _set(tx, ended, "state = 'superseded', finished_us = :now, reason = :reason", "failed")
    live = [row.id for row in rows if row.id not in ended]
    due = f"CASE WHEN {_SENT} THEN :now ELSE :now + {HELD_US} END"
    made = _set(tx, live, f"state = 'pending', due_us = {due}, finished_us = NULL", "any")
    for endpoint_id in sorted({row.endpoint_id for row in rows}):
        endpoints.wake(tx, endpoint_id)
    return made


_SENT = (
    "deliveries.event_type = 'TEST' OR EXISTS (SELECT 1 FROM subscriptions s"
    " WHERE s.id = deliveries.subscription_id AND s.state = 'active')"
)
_STILL = {
    "failed": "deliveries.state = 'failed'",
    "any": "deliveries.state IN ('pending', 'failed', 'delivered')",
}


def _set(tx: Tx, ids: Sequence[int] | set[int], change: str, still: str) -> int:
    if not ids:
        return 0
    source, parameters = bulk.derived(tx, "again", {"id": ("bigint", sorted(ids))})
    told = {"now": now_us(tx)} | ({"reason": deliveries.SUPERSEDED} if ":reason" in change else {})
    changed = f"UPDATE deliveries SET {change} FROM {source} WHERE deliveries.id = again.id"
    return tx.execute(text(f"{changed} AND {_STILL[still]}"), {**parameters, **told}).rowcount


def _ended(tx: Tx, rows: Sequence[Row[Any]]) -> set[int]:
    """The deliveries of those versions that are no longer there."""
    kinds: tuple[EventType, ...] = ("TOMBSTONE", "DELETE")
    ends = {
        events.event_id(kind, row.replica, FQID(row.bundle_uuid, row.bundle_version)): row.id
        for row in rows
        for kind in kinds
    }
    if not ends:
        return set()
    source, parameters = bulk.derived(tx, "wanted", {"id": ("text", sorted(ends))})
    found = bulk.one_each(tx, "events", "e", "e.id = wanted.id")
    return {
        ends[ident]
        for ident in tx.execute(text(f"SELECT e.id FROM {source} {found}"), parameters).scalars()
    }
