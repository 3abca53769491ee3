"""The delivery log of a subscription: pages, attempts, expiry, and retries by its owner.

A CREATE of a version that has ended is not sent again: its TOMBSTONE or DELETE may have been.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from sqlalchemy import Row, delete, select

from storage.catalog import deliveries as catalog_deliveries
from storage.catalog import endpoints, events, sql, versions
from storage.catalog.deliveries import TEST_EVENT, DeliveryState
from storage.catalog.sql import Tx, now_us
from storage.catalog.subscriptions import Subscription
from storage.catalog.tables.event_log import PAUSED_DUE_US, attempts, deliveries
from storage.model import FQID, EventType


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One request to the receiver and its result."""

    number: int
    at_us: int
    seconds: float
    status: int | None
    error: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class LoggedDelivery:
    """One event on its way to one subscriber; `next_us` is when its next attempt is scheduled."""

    id: int
    uuid: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    state: DeliveryState
    attempts: tuple[DeliveryAttempt, ...]
    next_us: int | None
    reason: str | None
    created_us: int
    resent_from: DeliveryState | None = None
    """The state before its owner resent it, until that attempt is recorded."""

    @property
    def ignores_pause(self) -> bool:
        """Whether it is sent even while the subscription is paused or disabled."""
        return self.event_type == TEST_EVENT or self.resent_from is not None

    @property
    def position(self) -> "DeliveryPosition":
        """The delivery's place in the list of its subscription."""
        return self.created_us, self.id


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries to list; None means any. `until_us` is exclusive."""

    state: DeliveryState | None = None
    event_type: str | None = None
    bundle_uuid: str | None = None
    since_us: int | None = None
    until_us: int | None = None


ALL_DELIVERIES = DeliveryFilter()
DeliveryPosition = tuple[int, int]
"""Creation time and id of a delivery."""
_EVENT_TYPES = (*get_args(EventType), TEST_EVENT)

_SELECT_OWN = (
    "SELECT created_us, id{more} FROM deliveries WHERE subscription_id = :subscription_id"
    " AND created_us >= :since AND (created_us, id) < (:until, :before)"
)
_ORDER_LATEST = " ORDER BY created_us DESC, id DESC LIMIT :limit"


def list_deliveries(
    tx: Tx,
    subscription_id: int,
    *,
    only: DeliveryFilter = ALL_DELIVERIES,
    after: DeliveryPosition | None = None,
    limit: int,
) -> list[LoggedDelivery]:
    """List deliveries of a subscription, the latest first, after the position `after`."""
    end = min(after or (_MAX_US, 0), (_MAX_US if only.until_us is None else only.until_us, 0))
    span = {"since": only.since_us or 0, "until": end[0], "before": end[1]}
    which = {"subscription_id": subscription_id, "limit": limit, **asdict(only)}
    places = tx.execute(sql.parse(_select_positions(only)), {**which, **span})
    ids = [ident for _, ident in places]
    rows = {row.id: row for row in tx.execute(select(deliveries).where(deliveries.c.id.in_(ids)))}
    attempts_made = _list_attempts(tx, ids)
    return [_delivery_from_row(rows[ident], attempts_made.get(ident, ())) for ident in ids]


_MAX_US = 2**62


def _select_positions(only: DeliveryFilter) -> str:
    """Read one index range, or one for each state and type, so that no row is read in vain."""
    if only.bundle_uuid is not None:
        # A bundle has few rows. Without statistics, engines would use another index.
        found = _SELECT_OWN.format(more=", state, event_type") + " AND bundle_uuid = :bundle_uuid"
        named = [name for name in ("state", "event_type") if getattr(only, name) is not None]
        same = " AND ".join(["TRUE", *(f"{name} = :{name}" for name in named)])
        mine = f"WITH mine AS MATERIALIZED ({found}) SELECT created_us, id FROM mine"
        return f"{mine} WHERE {same}{_ORDER_LATEST}"
    if only.state is None and only.event_type is None:
        return _SELECT_OWN.format(more="") + _ORDER_LATEST
    states = [state for state in get_args(DeliveryState) if only.state in (None, state)]
    types = [kind for kind in _EVENT_TYPES if only.event_type in (None, kind)]
    return (
        " UNION ALL ".join(_match_kind(state, kind) for state in states for kind in types)
        + _ORDER_LATEST
    )


def _match_kind(state: str, event_type: str) -> str:
    mine = _SELECT_OWN.format(more="") + f" AND state = '{state}' AND event_type = '{event_type}'"
    return f"SELECT created_us, id FROM ({mine}{_ORDER_LATEST}) AS {state}_{event_type}"


def find_delivery(tx: Tx, subscription_id: int, uuid: str) -> LoggedDelivery | None:
    """Return one delivery of a subscription by its transaction id."""
    query = select(deliveries).filter_by(uuid=uuid, subscription_id=subscription_id)
    row = tx.execute(query).first()
    if row is None:
        return None
    return _delivery_from_row(row, _list_attempts(tx, [row.id]).get(row.id, ()))


# The first conditions are spelled as in the partial indexes.
_IS_SETTLED, _IS_FAILED = "state NOT IN ('pending', 'failed')", "state = 'failed'"


def expire_deliveries(tx: Tx, before_us: int, *, failed: bool = False, limit: int) -> int:
    """Delete up to `limit` old deliveries, failed or all others; return how many."""
    old = (
        f"SELECT id FROM deliveries WHERE {_IS_FAILED if failed else _IS_SETTLED}"
        " AND finished_us < :before ORDER BY finished_us LIMIT :limit"
        f"{sql.lock_clause(tx, skip_locked=True)}"
    )
    ids = tx.execute(sql.parse(old), {"before": before_us, "limit": limit})
    return _delete_by_ids(tx, ids.scalars().all())


def delete_deliveries(tx: Tx, subscription_id: int, *, limit: int) -> int:
    """Delete up to `limit` finished deliveries of a subscription; return how many."""
    query = (
        "SELECT id FROM deliveries WHERE subscription_id = :id AND state <> 'pending'"
        f" LIMIT :limit{sql.lock_clause(tx, skip_locked=True)}"
    )
    ids = tx.execute(sql.parse(query), {"id": subscription_id, "limit": limit})
    return _delete_by_ids(tx, ids.scalars().all())


def _delete_by_ids(tx: Tx, ids: Sequence[int]) -> int:
    if ids:
        tx.execute(delete(attempts).where(attempts.c.delivery_id.in_(ids)))
        tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids)))
    return len(ids)


def _list_attempts(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[DeliveryAttempt, ...]]:
    query = select(attempts).where(attempts.c.delivery_id.in_(ids)).order_by(attempts.c.number)
    by_delivery: dict[int, tuple[DeliveryAttempt, ...]] = defaultdict(tuple)
    for row in tx.execute(query):
        by_delivery[row.delivery_id] += (sql.map_row(DeliveryAttempt, row),)
    return by_delivery


def _delivery_from_row(row: Row[Any], attempts_made: tuple[DeliveryAttempt, ...]) -> LoggedDelivery:
    is_due = row.state == "pending" and row.due_us < PAUSED_DUE_US
    return sql.map_row(
        LoggedDelivery, row, attempts=attempts_made, next_us=row.due_us if is_due else None
    )


_SELECT_RETRY = """
    SELECT d.id, d.event_type, d.bundle_uuid, d.bundle_version, d.endpoint_id, s.replica
    FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
"""
# Conditions are spelled as in the partial index.
_SELECT_FAILED = (
    _SELECT_RETRY + " WHERE d.state = 'failed' AND d.payload <> '' AND d.subscription_id = :id"
    " AND d.finished_us >= :since_us AND d.finished_us < :until_us{kind}"
    " ORDER BY d.finished_us LIMIT :limit"
)
# A delivery due later has failed before, so the index of due times finds it.
_SELECT_POSTPONED = (
    _SELECT_RETRY + " JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts"
    " WHERE d.state = 'pending' AND d.endpoint_id = :endpoint_id AND d.due_us > :now"
    f" AND d.due_us < {PAUSED_DUE_US} AND d.subscription_id = :id"
    " AND a.at_us >= :since_us AND a.at_us < :until_us{kind}"
    " ORDER BY d.due_us LIMIT :limit"
)


_SELECT_OPEN = sql.parse(
    f"{_SELECT_RETRY} WHERE d.id = :id AND d.payload <> ''"
    " AND d.state IN ('pending', 'failed', 'delivered')"
)


def retry_delivery(tx: Tx, ident: int) -> bool:
    """Make a delivery due now; False when it is superseded or its subscription is deleted."""
    return bool(_make_due(tx, tx.execute(_SELECT_OPEN, {"id": ident}).all()))


def resend_delivery(tx: Tx, ident: int) -> bool:
    """Make a delivery due for one attempt, whatever its subscription's state.

    False when it is superseded or its subscription is deleted.
    """
    resent = (
        "resent_from = coalesce(deliveries.resent_from, deliveries.state), state = 'pending',"
        " due_us = :now"
    )
    return bool(_make_due(tx, tx.execute(_SELECT_OPEN, {"id": ident}).all(), resent))


@dataclass(frozen=True, slots=True)
class RetryWindow:
    """When deliveries failed (`until_us` is exclusive) and of which event type; None means any."""

    since_us: int
    until_us: int
    event_type: str | None = None


def retry_failed(
    tx: Tx, subscription: Subscription, window: RetryWindow, *, limit: int
) -> tuple[int, int]:
    """Make failed deliveries of a window due, the oldest first; return counts read and made due.

    Deliveries of versions that have ended become superseded.
    """
    return _retry_selected(tx, subscription, window, _SELECT_FAILED, {"limit": limit})


def retry_postponed(
    tx: Tx, subscription: Subscription, window: RetryWindow, *, limit: int
) -> tuple[int, int]:
    """Make due what failed in a window and waits for its next attempt; return the same counts."""
    parameters = {"limit": limit, "endpoint_id": subscription.endpoint_id, "now": now_us(tx)}
    return _retry_selected(tx, subscription, window, _SELECT_POSTPONED, parameters)


def _retry_selected(
    tx: Tx, subscription: Subscription, window: RetryWindow, statement: str, more: dict[str, int]
) -> tuple[int, int]:
    kind = "" if window.event_type is None else " AND d.event_type = :event_type"
    parameters = {"id": subscription.id, **asdict(window), **more}
    rows = tx.execute(sql.parse(statement.format(kind=kind)), parameters).all()
    return len(rows), _make_due(tx, rows)


_IS_SENDABLE = (
    "deliveries.event_type = 'TEST' OR EXISTS (SELECT 1 FROM subscriptions s"
    " WHERE s.id = deliveries.subscription_id AND s.state = 'active')"
)
_SET_DUE = (
    f"state = 'pending', due_us = CASE WHEN {_IS_SENDABLE} THEN :now ELSE :now + {PAUSED_DUE_US}"
    " END, finished_us = NULL, resent_from = NULL"
)


def _make_due(tx: Tx, rows: Sequence[Row[Any]], change: str = _SET_DUE) -> int:
    # An ending event is matched under the lock of its head: it sees these rows, or is seen here.
    versions.lock_heads(
        tx,
        "bundle",
        [row.bundle_uuid for row in rows if row.event_type != catalog_deliveries.TEST_EVENT],
    )
    ended = _find_superseded(tx, [row for row in rows if row.event_type == "CREATE"])
    catalog_deliveries.lock(tx, [row.id for row in rows])
    superseded = "state = 'superseded', finished_us = :now, reason = :reason"
    _update_deliveries(tx, ended, superseded, "('failed')")
    live = [row.id for row in rows if row.id not in ended]
    count = _update_deliveries(tx, live, change, "('pending', 'failed', 'delivered')")
    for endpoint_id in sorted({row.endpoint_id for row in rows}):
        endpoints.wake(tx, endpoint_id)
    return count


def _update_deliveries(tx: Tx, ids: Sequence[int] | set[int], change: str, still: str) -> int:
    if not ids:
        return 0
    statement = (
        f"UPDATE deliveries SET {change} FROM {{source}}"
        f" WHERE deliveries.id = again.id AND deliveries.state IN {still}"
    )
    again = {"id": ("bigint", sorted(ids))}
    reason = catalog_deliveries.SUPERSEDED_REASON
    return sql.execute_with(tx, statement, "again", again, reason=reason).rowcount


def _find_superseded(tx: Tx, rows: Sequence[Row[Any]]) -> set[int]:
    """Return the deliveries whose versions have ended."""
    ends = {
        ident: row.id
        for row in rows
        for ident in events.make_end_event_ids(
            row.replica, FQID(row.bundle_uuid, row.bundle_version)
        )
    }
    return {ends[ident] for ident in events.filter_existing(tx, ends)}
