"""The dispatcher's side of the catalog: blocking calls, each one unit of work."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from storage.catalog import (
    Catalog,
    deliveries,
    endpoints,
    faring,
    holding,
    now_us,
    subscriptions,
    switches,
)
from storage.catalog.deliveries import Due, Result
from storage.catalog.endpoints import Endpoint
from workers.dispatch_fence import Stop

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Met:
    """What was due and must not be sent: deleted subscriptions with their endpoints, and
    deliveries of those that are paused or disabled."""

    deleted: frozenset[tuple[int, int]] = frozenset()
    halted: frozenset[int] = frozenset()


NOTHING_MET = Met()


@dataclass(frozen=True, slots=True)
class Written:
    """What a writing turn brought: endpoints that are ours now, and those that still are."""

    claimed: list[Endpoint]
    kept: set[int]


class Ledger:
    """Leases endpoints under one token, reads what is due, records what came of it."""

    def __init__(
        self, catalog: Catalog, *, token: str, lease_s: float, disable_after_s: float = 0.0
    ) -> None:
        self._catalog, self._token, self._lease_s = catalog, token, lease_s
        self._disable_after_s = disable_after_s

    def waiting(self, *, limit: int) -> tuple[int, list[int]]:
        """The catalog's time, and endpoints with something due that nobody holds; none while
        catalog and buckets disagree: what is due may have been delivered before a restore."""
        with self._catalog.read() as tx:
            if switches.value(tx, switches.IN_DOUBT) is not None:
                return now_us(tx), []
            return now_us(tx), endpoints.waiting(tx, limit=limit)

    def write(
        self,
        *,
        results: Sequence[Result],
        back: Sequence[Endpoint],
        claim: Collection[int],
        renew: Collection[int],
        met: Met = NOTHING_MET,
    ) -> Written:
        """Record results, put aside what must not be sent, hand endpoints back, hold others."""
        with self._catalog.write() as tx:
            # Subscriptions before deliveries, as everybody locks them.
            disabled = faring.count(tx, results, disable_after_s=self._disable_after_s)
            deliveries.close(tx, results)
            for subscription_id, endpoint_id in sorted(met.deleted):
                deliveries.cancel(tx, subscription_id, endpoint_id)
            holding.hold(tx, met.halted)
            endpoints.release(tx, back, token=self._token)
            kept = endpoints.renew(tx, renew, token=self._token, lease_s=self._lease_s)
            fresh = endpoints.claim(tx, claim, token=self._token, lease_s=self._lease_s)
        for uuid in disabled:
            log.warning("subscription %s is disabled: nothing but failures", uuid)
        return Written(fresh, kept)

    def stopped(self, ids: Collection[int]) -> Mapping[int, Stop]:
        """Which of these subscriptions are deleted, and which are paused or disabled."""
        with self._catalog.read() as tx:
            return subscriptions.stopped(tx, ids)

    def fetch(self, wants: Mapping[int, int]) -> dict[int, list[Due]]:
        """What is due for each of these endpoints, at most so many; nothing in doubt, as above."""
        with self._catalog.read() as tx:
            if switches.value(tx, switches.IN_DOUBT) is not None:
                return {ident: [] for ident in wants}
            return {ident: deliveries.due(tx, ident, limit=limit) for ident, limit in wants.items()}
