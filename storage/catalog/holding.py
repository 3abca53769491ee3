"""What a subscription that is not active is not sent: deliveries held back, and let go again.

A row that is held back is pending and due never; its schedule is kept in its due time, so that
order, superseding and cancelling need not know of it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text

from storage.catalog import bulk, deliveries
from storage.catalog.engine import Tx, now_us, sql
from storage.catalog.schema.telling import HELD_US

AT_ONCE = 1000
"""Deliveries that one statement lets go."""

# Both terms are spelled as the partial index has them.
_HELD = f"state = 'pending' AND due_us >= {HELD_US}"


@dataclass(frozen=True, slots=True)
class Loose:
    """A subscription that holds back what it should not: it is active again, or deleted."""

    id: int
    deleted: bool


def hold(tx: Tx, ids: Collection[int]) -> int:
    """Hold back these deliveries where their subscription is not active; returns how many."""
    if not ids:
        return 0
    deliveries.lock(tx, ids)
    source, parameters = bulk.derived(tx, "met", {"id": ("bigint", sorted(ids))})
    which = _MET_ON_SQLITE if tx.dialect.name == "sqlite" else _MET
    held = f"UPDATE deliveries SET due_us = due_us + {HELD_US} WHERE {which}"
    return tx.execute(text(held.format(source=source)), parameters).rowcount


def _may_be_held(d: str) -> str:
    return (
        f"{d}.state = 'pending' AND {d}.event_type <> 'TEST' AND {d}.due_us < {HELD_US}"
        f" AND EXISTS (SELECT 1 FROM subscriptions s WHERE s.id = {d}.subscription_id"
        " AND s.state <> 'active')"
    )


# Each row by its key, whatever the statistics say: with some, both engines compared every pending
# row with every one of these. An array is joined with nothing.
_MET = f"""
    id = ANY(ARRAY(
        SELECT d.id FROM {{source}},
            LATERAL (SELECT * FROM deliveries WHERE deliveries.id = met.id OFFSET 0) AS d
        WHERE {_may_be_held("d")}
    ))
"""
_MET_ON_SQLITE = f"id IN (SELECT id FROM {{source}}) AND {_may_be_held('deliveries')}"


def release(tx: Tx, subscription_id: int) -> int:
    """Let a bounded number of a subscription's deliveries go on with their schedule."""
    return _let_go(tx, subscription_id, f"due_us = due_us - {HELD_US}", {})


def cancel(tx: Tx, subscription_id: int) -> int:
    """Cancel a bounded number of what a deleted subscription held back."""
    ended = "state = 'cancelled', finished_us = :now, reason = :reason"
    return _let_go(tx, subscription_id, ended, {"now": now_us(tx), "reason": deliveries.DELETED})


# Rows that are bounded and locked are a materialised table: PostgreSQL may look for the first ones
# anew after each row that it changed, and so let all of them go.
def _let_go(tx: Tx, subscription_id: int, change: str, told: dict[str, object]) -> int:
    freed = sql(
        f"UPDATE deliveries SET {change} WHERE id IN ("
        f"WITH first AS MATERIALIZED (SELECT id FROM deliveries WHERE {_HELD}"
        f" AND subscription_id = :id ORDER BY id LIMIT {AT_ONCE}{deliveries.for_update(tx)})"
        " SELECT id FROM first)"
    )
    return tx.execute(freed, {"id": subscription_id, **told}).rowcount


_HOLDERS = f"""
    WITH RECURSIVE held (id) AS (
        SELECT (SELECT subscription_id FROM deliveries WHERE {_HELD}
                ORDER BY subscription_id, id LIMIT 1)
        UNION ALL
        SELECT (SELECT subscription_id FROM deliveries
                WHERE {_HELD} AND subscription_id > held.id
                ORDER BY subscription_id, id LIMIT 1)
        FROM held WHERE held.id IS NOT NULL
    )
"""
"""Subscriptions that hold something back, one step of an index each (see `endpoints.waiting`)."""

_LOOSE = f"""{_HOLDERS}
    SELECT s.id, s.deleted_us IS NOT NULL AS deleted
    FROM held JOIN subscriptions s ON s.id = held.id
    WHERE s.deleted_us IS NOT NULL OR s.state = 'active' LIMIT :limit
"""


def loose(tx: Tx, *, limit: int) -> list[Loose]:
    """Subscriptions with something to let go: a walk of one step each, however much they hold."""
    rows = tx.execute(sql(_LOOSE), {"limit": limit})
    return [Loose(row.id, bool(row.deleted)) for row in rows]


# `>=` finds the same row as `=`, since each of the holders has one, and leaves PostgreSQL the one
# index in whose order it is the first; for `=` it may read and sort the whole subscription.
_AGED = f"""{_HOLDERS}
    SELECT held.id FROM held WHERE (
        SELECT d.created_us FROM deliveries d
        WHERE d.state = 'pending' AND d.due_us >= {HELD_US} AND d.subscription_id >= held.id
        ORDER BY d.subscription_id, d.id LIMIT 1
    ) < :before LIMIT :limit
"""


def aged(tx: Tx, before_us: int, *, limit: int) -> list[int]:
    """Subscriptions that hold back what was recorded before then: a walk of two steps each."""
    asked = {"before": before_us, "limit": limit}
    return list(tx.execute(sql(_AGED), asked).scalars())


TOO_LONG = "It was held back for longer than is kept what is not delivered."


def abandon(tx: Tx, subscription_id: int, before_us: int) -> int:
    """Cancel a bounded number of what was recorded before then and is still held back."""
    ended = sql(
        "UPDATE deliveries SET state = 'cancelled', finished_us = :now, reason = :reason"
        " WHERE id IN ("
        f"WITH oldest AS MATERIALIZED (SELECT id, created_us FROM deliveries WHERE {_HELD}"
        f" AND subscription_id = :id ORDER BY id LIMIT {AT_ONCE}{deliveries.for_update(tx)})"
        " SELECT id FROM oldest WHERE created_us < :before)"
    )
    asked = {"id": subscription_id, "before": before_us, "now": now_us(tx), "reason": TOO_LONG}
    return tx.execute(ended, asked).rowcount
