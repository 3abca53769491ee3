"""Webhook endpoints, each leased by at most one deliver process at a time.

A process leases an endpoint that has something due, and releases it with the new pace. When a
process dies, its endpoints are free again once their leases expire.

`settle_turns` is the transaction of a deliver process: it records attempts, leases endpoints, and
fetches deliveries. One serves many endpoints, so that they share the cost of its commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import delete, select, text

from storage.catalog import deliveries, sql, store_state, subscriptions
from storage.catalog.deliveries import AttemptResult, DueDelivery
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.event_log import endpoints

# Every statement spells `'pending'` as a literal: the partial indexes require it. The statements
# select the first row in index order, not min() or EXISTS: a planner with old statistics would
# search all rows for those.
_WALK = """
    WITH RECURSIVE busy (id) AS (
        SELECT (SELECT endpoint_id FROM deliveries WHERE state = 'pending'
                ORDER BY endpoint_id, due_us LIMIT 1)
        UNION ALL
        SELECT (SELECT endpoint_id FROM deliveries
                WHERE state = 'pending' AND endpoint_id > busy.id
                ORDER BY endpoint_id, due_us LIMIT 1)
        FROM busy WHERE busy.id IS NOT NULL
    )
"""
_BUSY = f"""
    {_WALK}
    SELECT e.id FROM busy JOIN endpoints e ON e.id = busy.id
    WHERE e.lease_us < :now AND e.resume_us <= :now
    AND (SELECT d.due_us FROM deliveries d
         WHERE d.state = 'pending' AND d.endpoint_id = e.id
         ORDER BY d.due_us LIMIT 1) <= :now
    ORDER BY e.resume_us > 0, e.lease_us LIMIT :limit
"""


SETTLE_IDLE_S = 2.5
"""Half a lease. A deliver process that is cut off must not block the records of others for so long
that they lose their leases, and their deliveries are sent again."""
RECENT_LEASE_US = 1_000_000
"""Longer than an attempt may still begin after its lease ended."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Pace and failures of a receiver; see `pipelines.deliveries`."""

    id: int
    failures: int
    width: float
    resume_us: int


# Not NOT IN or NOT EXISTS, for which a planner would read all subscriptions.
_IS_UNREFERENCED = (
    "(SELECT s.id FROM subscriptions s WHERE s.endpoint_id = endpoints.id LIMIT 1) IS NULL"
)


def list_unreferenced(tx: Tx, *, after: int = 0, limit: int) -> tuple[list[int], int | None]:
    """List which of the next `limit` endpoints have no subscription, not even a deleted one.

    The second value is the id to continue after; None at the end.
    """
    query = text(
        f"SELECT id, {_IS_UNREFERENCED} FROM endpoints WHERE id > :after ORDER BY id LIMIT :limit"
    )
    page = tx.execute(query, {"after": after, "limit": limit}).all()
    found = [int(ident) for ident, is_unreferenced in page if is_unreferenced]
    return found, page[-1][0] if len(page) == limit else None


def delete_unreferenced(tx: Tx, ids: Collection[int]) -> int:
    """Delete those endpoints that still have no subscription and no lease; return how many."""
    if not ids:
        return 0
    free = select(endpoints.c.id).where(endpoints.c.id.in_(ids), endpoints.c.lease_us < now_us(tx))
    held = free.order_by(endpoints.c.id).with_for_update(skip_locked=True)
    unleased = tx.execute(held).scalars().all()
    # Checked again under the lock: a subscription could have been inserted meanwhile.
    statement = delete(endpoints).where(endpoints.c.id.in_(unleased), text(_IS_UNREFERENCED))
    return tx.execute(statement).rowcount


def list_waiting(tx: Tx, *, limit: int) -> list[int]:
    """List unleased endpoints with due deliveries, the longest unserved first, failing ones last.

    Walks from one endpoint with pending deliveries to the next, so a million deliveries to one dead
    receiver cost one step.
    """
    rows = tx.execute(text(_BUSY), {"now": now_us(tx), "limit": limit})
    return [int(ident) for ident in rows.scalars()]


def lock(tx: Tx, ids: Collection[int], *, if_free: Collection[int] = ()) -> None:
    """Lock endpoints in the order of their ids, before any of them is claimed or released.

    Those of `if_free` are locked unless another process leases them, whose transactions must not
    be waited for. Releasing looks for due deliveries after the lock.
    """
    if not (ids or if_free) or tx.dialect.name == "sqlite":
        return
    is_free = endpoints.c.id.in_(if_free) & (endpoints.c.lease_us < sql.clock(tx))
    locked = select(endpoints.c.id).where(endpoints.c.id.in_(ids) | is_free)
    tx.execute(locked.order_by(endpoints.c.id).with_for_update(key_share=True))


def claim(
    tx: Tx, probes: Mapping[int, bool], *, token: str, lease_s: float, patience: int
) -> list[Endpoint]:
    """Lease those endpoints that are free; `probes` says which to claim even if they keep failing.

    An endpoint with `patience` failures is otherwise not claimed before its `resume_us`.
    """
    if not probes:
        return []
    columns = sql.tuple_columns(probes.items(), id="bigint", probe="boolean")
    taken = (
        "UPDATE endpoints SET token = :token, lease_us = :now + :lease_us FROM {source}"
        " WHERE endpoints.id = wanted.id AND endpoints.lease_us < :now"
        " AND (endpoints.failures < :patience OR (wanted.probe AND endpoints.resume_us <= :now))"
        " RETURNING endpoints.id, failures, width, resume_us"
    )
    limits = {"token": token, "lease_us": int(lease_s * 1e6), "patience": patience}
    return [Endpoint(*row) for row in sql.execute_with(tx, taken, "wanted", columns, **limits)]


def filter_leased(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return which of these endpoints are leased by any process."""
    query = select(endpoints.c.id).where(
        endpoints.c.id.in_(ids), endpoints.c.lease_us >= sql.clock(tx)
    )
    return set(tx.execute(query).scalars()) if ids else set()


def is_leased(tx: Tx, ident: int) -> bool:
    """Return whether an endpoint is or just was leased; waits for a claim under way."""
    query = select(endpoints.c.lease_us).where(
        endpoints.c.id == ident, endpoints.c.token.is_not(None)
    )
    lease_us = tx.execute(query.with_for_update(read=True)).scalar()
    return lease_us is not None and lease_us > now_us(tx) - RECENT_LEASE_US


def renew(tx: Tx, ids: Collection[int], *, token: str, lease_s: float) -> set[int]:
    """Extend leases; return the ids still leased, without those that another process took."""
    if not ids:
        return set()
    kept = (
        "UPDATE endpoints SET lease_us = :now + :lease_us FROM {source}"
        " WHERE endpoints.id = held.id AND endpoints.token = :token RETURNING endpoints.id"
    )
    held = {"id": ("bigint", sorted(ids))}
    lease_us = int(lease_s * 1e6)
    return {*sql.execute_with(tx, kept, "held", held, token=token, lease_us=lease_us).scalars()}


def release(tx: Tx, rows: Iterable[Endpoint], *, token: str) -> None:
    """Release endpoints with their new pace, except those whose lease was lost."""
    listed = sorted(rows, key=lambda row: row.id)
    if not listed:
        return
    columns = sql.attribute_columns(
        listed, bigint="id resume_us", integer="failures", float8="width"
    )
    released = (
        "UPDATE endpoints SET token = NULL, lease_us = :now - 1, failures = back.failures,"
        " width = back.width, resume_us = back.resume_us FROM {source}"
        " WHERE endpoints.id = back.id AND endpoints.token = :token"
    )
    sql.execute_with(tx, released, "back", columns, token=token)


def wake(tx: Tx, ident: int) -> None:
    """Allow the next attempt at once, whatever the endpoint's past failures."""
    woken = text("UPDATE endpoints SET resume_us = 0 WHERE id = :id AND token IS NULL")
    tx.execute(woken, {"id": ident})


MAX_BLOCKED_US = 10_000_000
"""Longest rest of an endpoint whose due deliveries all wait for earlier ones."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A deliver process that leases endpoints."""

    token: str
    lease_s: float
    patience: int
    """Failures after which an endpoint is only probed."""
    disable_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WithheldDeliveries:
    """Due deliveries that must not be sent.

    They belong to deleted subscriptions, listed with their endpoints, or to paused or disabled
    ones.
    """

    deleted: frozenset[tuple[int, int]] = frozenset()
    halted: frozenset[int] = frozenset()


NOTHING_WITHHELD = WithheldDeliveries()


@dataclass(frozen=True, slots=True)
class EndpointVisit:
    """What a turn does with its endpoint in the next transaction.

    `claim` leases it, `probe` even if it keeps failing; otherwise its lease is renewed. At most
    `limit` due deliveries are fetched. `released` releases it with its new pace, unless deliveries
    were found.
    """

    endpoint_id: int
    claim: bool = False
    probe: bool = False
    limit: int = 0
    released: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Result of a visit: whether this process leases the endpoint, and what to send.

    `endpoint` is its state if it was claimed; `is_leased_elsewhere`: another process leases it.
    """

    is_leased: bool
    deliveries: Sequence[DueDelivery] = ()
    endpoint: Endpoint | None = None
    is_leased_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The catalog's time, a result for each visit, and the subscriptions that were disabled."""

    now_us: int
    visited: Mapping[int, VisitResult]
    disabled: Sequence[str]


def settle_turns(
    tx: Tx,
    lessee: LeaseHolder,
    results: Sequence[AttemptResult],
    visits: Sequence[EndpointVisit],
    aside: WithheldDeliveries = NOTHING_WITHHELD,
) -> TurnResult:
    """Record results, pause or cancel what must not be sent, then serve the visits."""
    sql.limit_idle_time(tx, SETTLE_IDLE_S)
    # Subscriptions before deliveries before endpoints, as in every transaction.
    disabled = subscriptions.count_failures(tx, results, disable_after_s=lessee.disable_after_s)
    deliveries.record_attempts(tx, results)
    for subscription_id, endpoint_id in sorted(aside.deleted):
        deliveries.cancel_pending(tx, subscription_id, endpoint_id)
    deliveries.pause(tx, aside.halted)
    visited = _serve_visits(tx, lessee, visits) if visits else {}
    return TurnResult(now_us(tx), visited, disabled)


def _serve_visits(
    tx: Tx, lessee: LeaseHolder, visits: Sequence[EndpointVisit]
) -> dict[int, VisitResult]:
    claims = [visit.endpoint_id for visit in visits if visit.claim]
    lock(tx, [visit.endpoint_id for visit in visits if not visit.claim], if_free=claims)
    # Send nothing while the epoch is in doubt: it may have been sent before a restore.
    doubt = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY) is not None
    claimed, leased = _lease_endpoints(tx, lessee, visits, claims=not doubt)
    due = {
        visit.endpoint_id: deliveries.list_due(tx, visit.endpoint_id, limit=visit.limit)
        for visit in visits
        if visit.limit and visit.endpoint_id in leased and not doubt
    }
    back = [
        _defer_blocked(tx, visit.released) if visit.limit and not doubt else visit.released
        for visit in visits
        if visit.released and visit.endpoint_id in leased and not due.get(visit.endpoint_id)
    ]
    release(tx, back, token=lessee.token)
    leased -= {row.id for row in back}
    refused = {visit.endpoint_id for visit in visits if visit.claim} - claimed.keys()
    elsewhere = filter_leased(tx, refused)
    return {
        ident: VisitResult(
            ident in leased, due.get(ident, ()), claimed.get(ident), ident in elsewhere
        )
        for ident in (visit.endpoint_id for visit in visits)
    }


def _lease_endpoints(
    tx: Tx, lessee: LeaseHolder, visits: Sequence[EndpointVisit], *, claims: bool
) -> tuple[dict[int, Endpoint], set[int]]:
    """Return the endpoints that were claimed, and the ids of all that this process leases."""
    probes = {visit.endpoint_id: visit.probe for visit in visits if visit.claim and claims}
    claimed = claim(
        tx, probes, token=lessee.token, lease_s=lessee.lease_s, patience=lessee.patience
    )
    held = [visit.endpoint_id for visit in visits if not visit.claim]
    renewed = renew(tx, held, token=lessee.token, lease_s=lessee.lease_s)
    return {row.id: row for row in claimed}, renewed | {row.id for row in claimed}


def _defer_blocked(tx: Tx, row: Endpoint) -> Endpoint:
    """Let an endpoint rest if all its due deliveries wait for earlier ones."""
    now = now_us(tx)
    which = "state = 'pending' AND endpoint_id = :id AND due_us > :after"
    query = sql.parse(f"SELECT due_us FROM deliveries WHERE {which} ORDER BY due_us LIMIT 1")
    first = tx.execute(query, {"id": row.id, "after": 0}).scalar()
    if first is None or first > now:
        return row
    following = tx.execute(query, {"id": row.id, "after": now}).scalar()
    until = min(now + MAX_BLOCKED_US, now + MAX_BLOCKED_US if following is None else following)
    return replace(row, resume_us=max(row.resume_us, until))


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """A receiver that fails, or that deliveries wait for."""

    address: str
    failures: int
    resume_us: int
    """Nothing is sent before this time; 0 if nothing is held back."""
    waiting: int


def list_active(tx: Tx, *, limit: int) -> list[EndpointStatus]:
    """Return receivers that fail or that deliveries wait for, those with most failures first."""
    # Receivers that wait fill what those that fail leave of the limit, and may be among them.
    statement = f"""
        {_WALK}
        SELECT e.address, e.failures, e.resume_us,
            (SELECT count(*) FROM deliveries d WHERE d.state = 'pending' AND d.endpoint_id = e.id)
        FROM (
            SELECT id FROM (SELECT id FROM endpoints WHERE failures > 0
                            ORDER BY failures DESC, id DESC LIMIT :limit) AS failing
            UNION
            SELECT id FROM (SELECT id FROM busy WHERE id IS NOT NULL LIMIT :limit) AS waiting
        ) AS active {sql.join_one(tx, "endpoints", "e", "e.id = active.id")}
        ORDER BY e.failures DESC, e.id DESC LIMIT :limit
    """
    return [EndpointStatus(*row) for row in tx.execute(text(statement), {"limit": limit})]
