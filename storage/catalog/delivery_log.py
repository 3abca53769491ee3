"""What became of deliveries, for their owners: pages of them with every attempt, and retrying."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from sqlalchemy import Row, delete, select

from storage.catalog.deliveries import TEST, State, for_update
from storage.catalog.engine import Tx, sql
from storage.catalog.schema import attempts, deliveries
from storage.catalog.schema.telling import HELD_US
from storage.model import EventType


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
    created_us: int

    @property
    def place(self) -> "Place":
        """Where it stands in its subscription's list."""
        return self.created_us, self.id


@dataclass(frozen=True, slots=True)
class Only:
    """Which deliveries are asked for; None is any. `until_us` is not among them."""

    state: State | None = None
    event_type: str | None = None
    bundle_uuid: str | None = None
    since_us: int | None = None
    until_us: int | None = None


ALL = Only()
Place = tuple[int, int]
"""Of a delivery in its subscription's list: when it was recorded, and its id."""
_TYPES = (*get_args(EventType), TEST)

_MINE = (
    "SELECT created_us, id{more} FROM deliveries WHERE subscription_id = :subscription_id"
    " AND created_us >= :since AND (created_us, id) < (:until, :before)"
)
_LATEST = " ORDER BY created_us DESC, id DESC LIMIT :limit"


def page(
    tx: Tx,
    subscription_id: int,
    *,
    only: Only = ALL,
    after: Place | None = None,
    limit: int,
) -> list[Delivery]:
    """Deliveries of a subscription, the latest first, beyond the one at the place `after`."""
    end = min(after or (_EVER, 0), (_EVER if only.until_us is None else only.until_us, 0))
    span = {"since": only.since_us or 0, "until": end[0], "before": end[1]}
    asked = {"state": only.state, "event_type": only.event_type, "bundle_uuid": only.bundle_uuid}
    told = {name: value for name, value in asked.items() if value is not None}
    which = {"subscription_id": subscription_id, "limit": limit}
    places = tx.execute(sql(_places(only)), {**which, **span, **told})
    ids = [ident for _, ident in places]
    rows = {row.id: row for row in tx.execute(select(deliveries).where(deliveries.c.id.in_(ids)))}
    made = _attempts(tx, ids)
    return [_delivery(rows[ident], made.get(ident, ())) for ident in ids]


_EVER = 2**62


def _places(only: Only) -> str:
    """One range of an index, or one for each state and type: what was left out is read nowhere."""
    if only.bundle_uuid is not None:
        # Of one bundle there is little. Engines that know no better would take another index.
        found = _MINE.format(more=", state, event_type") + " AND bundle_uuid = :bundle_uuid"
        named = [name for name in ("state", "event_type") if getattr(only, name) is not None]
        same = " AND ".join(["TRUE", *(f"{name} = :{name}" for name in named)])
        mine = f"WITH mine AS MATERIALIZED ({found}) SELECT created_us, id FROM mine"
        return f"{mine} WHERE {same}{_LATEST}"
    if only.state is None and only.event_type is None:
        return _MINE.format(more="") + _LATEST
    states = [state for state in get_args(State) if only.state in (None, state)]
    types = [kind for kind in _TYPES if only.event_type in (None, kind)]
    return " UNION ALL ".join(_kind(state, kind) for state in states for kind in types) + _LATEST


def _kind(state: str, event_type: str) -> str:
    mine = _MINE.format(more="") + f" AND state = '{state}' AND event_type = '{event_type}'"
    return f"SELECT created_us, id FROM ({mine}{_LATEST}) AS {state}_{event_type}"


def find(tx: Tx, subscription_id: int, uuid: str) -> Delivery | None:
    """One delivery of a subscription by its transaction id."""
    query = select(deliveries).where(deliveries.c.uuid == uuid)
    row = tx.execute(query.where(deliveries.c.subscription_id == subscription_id)).first()
    return None if row is None else _delivery(row, _attempts(tx, [row.id]).get(row.id, ()))


# The first terms are spelled as the partial indexes have them.
_SETTLED, _FAILED = "state NOT IN ('pending', 'failed')", "state = 'failed'"


def expire(tx: Tx, before_us: int, *, failed: bool = False, limit: int) -> int:
    """Forget deliveries that ended before then, a bounded number: those that were given up, or all
    others; returns how many."""
    old = (
        f"SELECT id FROM deliveries WHERE {_FAILED if failed else _SETTLED}"
        f" AND finished_us < :before ORDER BY finished_us LIMIT :limit{_skipping(tx)}"
    )
    found = tx.execute(sql(old), {"before": before_us, "limit": limit})
    return _forget(tx, found.scalars().all())


def forget(tx: Tx, subscription_id: int, *, limit: int) -> int:
    """Forget what a subscription was told or was not, but for what is pending, a bounded number;
    returns how many."""
    ended = (
        "SELECT id FROM deliveries WHERE subscription_id = :id AND state <> 'pending'"
        f" LIMIT :limit{_skipping(tx)}"
    )
    found = tx.execute(sql(ended), {"id": subscription_id, "limit": limit})
    return _forget(tx, found.scalars().all())


def _forget(tx: Tx, ids: Sequence[int]) -> int:
    if ids:
        tx.execute(delete(attempts).where(attempts.c.delivery_id.in_(ids)))
        tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids)))
    return len(ids)


def _skipping(tx: Tx) -> str:
    return "" if tx.dialect.name == "sqlite" else f"{for_update(tx)} SKIP LOCKED"


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
        created_us=row.created_us,
    )
