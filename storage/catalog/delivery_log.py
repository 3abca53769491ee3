"""What became of deliveries, for their owners: pages of them with every attempt, and retrying."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, delete, select, text

from storage.catalog.deliveries import State, for_update
from storage.catalog.engine import Tx
from storage.catalog.schema import attempts, deliveries
from storage.catalog.schema.telling import HELD_US


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
    """One event on its way to one subscriber; `next_us` only while it is pending, and not held
    back because its subscription is paused or disabled."""

    id: int
    uuid: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    state: State
    attempts: tuple[Attempt, ...]
    next_us: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Only:
    """Which deliveries are asked for; None is any. `until_us` is not among them."""

    state: State | None = None
    event_type: str | None = None
    bundle_uuid: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def of(self, query: Select[Any]) -> Select[Any]:
        """The query, narrowed."""
        same = {"state": self.state, "event_type": self.event_type, "bundle_uuid": self.bundle_uuid}
        for name, value in same.items():
            query = query if value is None else query.where(deliveries.c[name] == value)
        if self.since_us is not None:
            query = query.where(deliveries.c.created_us >= self.since_us)
        return (
            query if self.until_us is None else query.where(deliveries.c.created_us < self.until_us)
        )


ALL = Only()


def page(
    tx: Tx,
    subscription_id: int,
    *,
    only: Only = ALL,
    after: int | None = None,
    limit: int,
) -> list[Delivery]:
    """Deliveries of a subscription, the latest first, beyond the one with the id `after`."""
    query = only.of(select(deliveries).where(deliveries.c.subscription_id == subscription_id))
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


def expire(tx: Tx, before_us: int, *, limit: int) -> int:
    """Forget deliveries that were settled before then, a bounded number; returns how many. What
    was not delivered is kept, whether it is still tried or given up."""
    # The first term is spelled as the partial index has it.
    old = text(
        "SELECT id FROM deliveries WHERE state NOT IN ('pending', 'failed')"
        f" AND finished_us < :before ORDER BY finished_us LIMIT :limit{for_update(tx)}"
    )
    if tx.dialect.name != "sqlite":
        old = text(f"{old.text} SKIP LOCKED")
    ids = tx.execute(old, {"before": before_us, "limit": limit}).scalars().all()
    tx.execute(delete(attempts).where(attempts.c.delivery_id.in_(ids)))
    tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids)))
    return len(ids)


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
        next_us=row.due_us if row.state == "pending" and row.due_us < HELD_US else None,
        reason=row.reason,
    )
