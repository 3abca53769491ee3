"""What became of deliveries, for their owners: pages of them with every attempt, and retrying."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select, update

from storage.catalog import endpoints
from storage.catalog.deliveries import State
from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import attempts, deliveries


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request to the receiver and what came of it."""

    number: int
    at_us: int
    seconds: float
    status: int | None
    error: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one subscriber; `next_us` only while it is pending."""

    id: int
    uuid: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    state: State
    attempts: tuple[Attempt, ...]
    next_us: int | None
    reason: str | None


def page(
    tx: Tx,
    subscription_id: int,
    *,
    state: State | None = None,
    after: int | None = None,
    limit: int,
) -> list[Delivery]:
    """Deliveries of a subscription, the latest first, beyond the one with the id `after`."""
    query = select(deliveries).where(deliveries.c.subscription_id == subscription_id)
    if state is not None:
        query = query.where(deliveries.c.state == state)
    if after is not None:
        query = query.where(deliveries.c.id < after)
    rows = tx.execute(query.order_by(deliveries.c.id.desc()).limit(limit)).all()
    made = _attempts(tx, [row.id for row in rows])
    return [_delivery(row, made.get(row.id, ())) for row in rows]


def find(tx: Tx, subscription_id: int, uuid: str) -> Delivery | None:
    """One delivery of a subscription by its transaction id."""
    query = select(deliveries).where(deliveries.c.uuid == uuid)
    row = tx.execute(query.where(deliveries.c.subscription_id == subscription_id)).first()
    return None if row is None else _delivery(row, _attempts(tx, [row.id]).get(row.id, ()))


def retry(tx: Tx, ident: int) -> bool:
    """Make it due now; False when there is nothing to send, or nobody to send it to any more."""
    again = (
        update(deliveries)
        .where(deliveries.c.id == ident, deliveries.c.payload != "")
        .where(deliveries.c.state.in_(("pending", "failed", "delivered")))
        .values(state="pending", due_us=now_us(tx), finished_us=None)
        .returning(deliveries.c.endpoint_id)
    )
    endpoint_id = tx.execute(again).scalar_one_or_none()
    if endpoint_id is not None:
        endpoints.wake(tx, endpoint_id)
    return endpoint_id is not None


def _attempts(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[Attempt, ...]]:
    query = select(attempts).where(attempts.c.delivery_id.in_(ids)).order_by(attempts.c.number)
    made: dict[int, tuple[Attempt, ...]] = defaultdict(tuple)
    for row in tx.execute(query):
        made[row.delivery_id] += (
            Attempt(row.number, row.at_us, row.seconds, row.status, row.error, row.body),
        )
    return made


def _delivery(row: Row[Any], made: tuple[Attempt, ...]) -> Delivery:
    return Delivery(
        id=row.id,
        uuid=row.uuid,
        event_type=row.event_type,
        bundle_uuid=row.bundle_uuid,
        bundle_version=row.bundle_version,
        state=row.state,
        attempts=made,
        next_us=row.due_us if row.state == "pending" else None,
        reason=row.reason,
    )
