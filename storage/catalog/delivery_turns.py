"""Transactions of a deliver process: record results; lease, feed and release endpoints.

One transaction serves many endpoints, so that its commit costs each of them little.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storage.catalog import deliveries, endpoints, faring, holding, switches
from storage.catalog.deliveries import Due, Result
from storage.catalog.endpoints import Endpoint
from storage.catalog.engine import Tx, now_us, sql

BLOCKED_US = 10_000_000
"""How long an endpoint rests at most whose due deliveries all wait for an earlier one."""


@dataclass(frozen=True, slots=True)
class Lessee:
    """Who leases: one deliver process."""

    token: str
    lease_s: float
    patience: int
    """Failures of an endpoint from which it is only probed."""
    disable_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Aside:
    """Due deliveries that must not be sent: deleted subscriptions with their endpoints, and
    deliveries of subscriptions that are paused or disabled."""

    deleted: frozenset[tuple[int, int]] = frozenset()
    halted: frozenset[int] = frozenset()


NOTHING_ASIDE = Aside()


@dataclass(frozen=True, slots=True)
class Visit:
    """What a turn wants of its endpoint's row in the next transaction.

    `claim` leases it, `probe` even if it is only probed; otherwise its lease is renewed. `want` is
    the number of due deliveries to fetch. `back` releases it with what was learnt of it, unless
    deliveries were wanted and found.
    """

    endpoint_id: int
    claim: bool = False
    probe: bool = False
    want: int = 0
    back: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class Visited:
    """The answer: whether the endpoint is leased by us now, and what to send.

    `endpoint` is its state if it was claimed; `elsewhere` says that another process leases it.
    """

    held: bool
    due: Sequence[Due] = ()
    endpoint: Endpoint | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The catalog's time, an answer for each visit, and the subscriptions that were disabled."""

    now_us: int
    visited: Mapping[int, Visited]
    disabled: Sequence[str]


def settle(
    tx: Tx,
    lessee: Lessee,
    results: Sequence[Result],
    visits: Sequence[Visit],
    aside: Aside = NOTHING_ASIDE,
) -> Settled:
    """Record results, put aside what must not be sent, then serve the visits."""
    # Subscriptions before deliveries before endpoints, as every transaction locks them.
    disabled = faring.count(tx, results, disable_after_s=lessee.disable_after_s)
    deliveries.close(tx, results)
    for subscription_id, endpoint_id in sorted(aside.deleted):
        deliveries.cancel(tx, subscription_id, endpoint_id)
    holding.hold(tx, aside.halted)
    visited = _serve(tx, lessee, visits) if visits else {}
    return Settled(now_us(tx), visited, disabled)


def _serve(tx: Tx, lessee: Lessee, visits: Sequence[Visit]) -> dict[int, Visited]:
    endpoints.lock(tx, [visit.endpoint_id for visit in visits])
    # While catalog and buckets disagree nothing is sent: it may have been sent before a restore.
    doubt = switches.value(tx, switches.IN_DOUBT) is not None
    claimed, held = _leased(tx, lessee, visits, claims=not doubt)
    due = {
        visit.endpoint_id: deliveries.due(tx, visit.endpoint_id, limit=visit.want)
        for visit in visits
        if visit.want and visit.endpoint_id in held and not doubt
    }
    back = [
        _rested(tx, visit.back) if visit.want and not doubt else visit.back
        for visit in visits
        if visit.back and visit.endpoint_id in held and not due.get(visit.endpoint_id)
    ]
    endpoints.release(tx, back, token=lessee.token)
    held -= {row.id for row in back}
    refused = {visit.endpoint_id for visit in visits if visit.claim} - claimed.keys()
    elsewhere = endpoints.leased(tx, refused)
    return {
        ident: Visited(ident in held, due.get(ident, ()), claimed.get(ident), ident in elsewhere)
        for ident in (visit.endpoint_id for visit in visits)
    }


def _leased(
    tx: Tx, lessee: Lessee, visits: Sequence[Visit], *, claims: bool
) -> tuple[dict[int, Endpoint], set[int]]:
    """The endpoints that were claimed, and the ids of all that are leased by us now."""
    probes = {visit.endpoint_id: visit.probe for visit in visits if visit.claim and claims}
    claimed = endpoints.claim(
        tx, probes, token=lessee.token, lease_s=lessee.lease_s, patience=lessee.patience
    )
    renewed = endpoints.renew(
        tx,
        [visit.endpoint_id for visit in visits if not visit.claim],
        token=lessee.token,
        lease_s=lessee.lease_s,
    )
    return {row.id: row for row in claimed}, renewed | {row.id for row in claimed}


_FIRST = """
    SELECT due_us FROM deliveries
    WHERE state = 'pending' AND endpoint_id = :id AND due_us > :after ORDER BY due_us LIMIT 1
"""


def _rested(tx: Tx, row: Endpoint) -> Endpoint:
    """The endpoint; if all that is due waits for an earlier delivery, until that one is tried."""
    now = now_us(tx)
    first = tx.execute(sql(_FIRST), {"id": row.id, "after": 0}).scalar()
    if first is None or first > now:
        return row
    following = tx.execute(sql(_FIRST), {"id": row.id, "after": now}).scalar()
    until = min(now + BLOCKED_US, now + BLOCKED_US if following is None else following)
    return replace(row, resume_us=max(row.resume_us, until))
