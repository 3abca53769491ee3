"""Transactions of a deliver process: record attempts, lease endpoints, fetch deliveries.

One transaction serves many endpoints, so that they share the cost of its commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storage.catalog import deliveries, endpoints, store_state, subscriptions
from storage.catalog.deliveries import AttemptResult, DueDelivery
from storage.catalog.endpoints import Endpoint
from storage.catalog.engine import Tx, now_us, sql

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

    `claim` leases it, `probe` even if it keeps failing; otherwise its lease is renewed. `want` is
    the number of due deliveries to fetch. `back` releases it with its new pace, unless deliveries
    were wanted and found.
    """

    endpoint_id: int
    claim: bool = False
    probe: bool = False
    limit: int = 0
    released: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Result of a visit: whether this process leases the endpoint, and what to send.

    `endpoint` is its state if it was claimed; `elsewhere` means that another process leases it.
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
    endpoints.lock(tx, [visit.endpoint_id for visit in visits])
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
    endpoints.release(tx, back, token=lessee.token)
    leased -= {row.id for row in back}
    refused = {visit.endpoint_id for visit in visits if visit.claim} - claimed.keys()
    elsewhere = endpoints.filter_leased(tx, refused)
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
    claimed = endpoints.claim(
        tx, probes, token=lessee.token, lease_s=lessee.lease_s, patience=lessee.patience
    )
    held = [visit.endpoint_id for visit in visits if not visit.claim]
    renewed = endpoints.renew(tx, held, token=lessee.token, lease_s=lessee.lease_s)
    return {row.id: row for row in claimed}, renewed | {row.id for row in claimed}


def _defer_blocked(tx: Tx, row: Endpoint) -> Endpoint:
    """Let an endpoint rest if all its due deliveries wait for earlier ones."""
    now = now_us(tx)
    which = "state = 'pending' AND endpoint_id = :id AND due_us > :after"
    query = sql(f"SELECT due_us FROM deliveries WHERE {which} ORDER BY due_us LIMIT 1")
    first = tx.execute(query, {"id": row.id, "after": 0}).scalar()
    if first is None or first > now:
        return row
    following = tx.execute(query, {"id": row.id, "after": now}).scalar()
    until = min(now + MAX_BLOCKED_US, now + MAX_BLOCKED_US if following is None else following)
    return replace(row, resume_us=max(row.resume_us, until))
