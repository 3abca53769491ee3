"""How a subscription stands: paused and resumed, its secret changed, what was given up tried again.

What the clock does for all of them is here too: letting go what is held back, forgetting what is
settled. Every statement is bounded, whatever a subscription holds.
"""

from dataclasses import dataclass

from pipelines.subscriptions import Seal, check_key, own, secret_context
from storage.catalog import Tx, delivery_log, endpoints, holding, now_us, retrying
from storage.catalog import subscriptions as rows
from storage.catalog.subscriptions import Subscription
from storage.errors import Invalid
from storage.model import Replica
from storage.stores import Stores

STATEMENTS = 20
"""Bounded statements that one request or one tick of the clock makes of a kind."""
AT_ONCE = 500
"""Rows of one of them."""


@dataclass(frozen=True, slots=True)
class Whose:
    """A subscription as its owner names it, of either type."""

    uuid: str
    owner: str
    replica: Replica

    def of(self, tx: Tx) -> Subscription:
        """The subscription; NotFound, another's too."""
        return own(tx, self.uuid, self.owner, self.replica, None)


def pause(stores: Stores, whose: Whose) -> Subscription:
    """Have it sent nothing but tests; what matches is recorded, for when it is resumed."""
    with stores.catalog.write() as tx:
        rows.halt(tx, whose.of(tx).id)
        return whose.of(tx)


def resume(stores: Stores, whose: Whose) -> Subscription:
    """Have it sent what is due, paused or disabled before; its deliveries keep their schedule."""
    with stores.catalog.write() as tx:
        halted = whose.of(tx)
        rows.resume(tx, halted.id)
        # The first of them only: the clock lets go the others.
        holding.release(tx, halted.id)
        endpoints.wake(tx, halted.endpoint_id)
        return whose.of(tx)


def rotate(
    stores: Stores,
    whose: Whose,
    secret: str,
    *,
    key_id: str | None,
    overlap_s: float,
    overlap_cap_s: float,
    seal: Seal,
) -> Subscription:
    """Sign by a new secret, and by the former one too for so long."""
    check_key(key_id, secret)
    if not 0 <= overlap_s <= overlap_cap_s:
        detail = f"Must be from 0 to {overlap_cap_s:g}."
        raise Invalid(detail, errors={"/overlap_s": [detail]})
    sealed = seal(secret.encode(), secret_context(whose.uuid))
    with stores.catalog.write() as tx:
        until_us = now_us(tx) + int(overlap_s * 1e6)
        rows.rotate(tx, whose.of(tx), secret=sealed, key_id=key_id, until_us=until_us)
        return whose.of(tx)


@dataclass(frozen=True, slots=True)
class Retried:
    """How many deliveries are due again, and whether there are more to ask for."""

    count: int
    more: bool


def retry_given_up(
    stores: Stores,
    whose: Whose,
    *,
    since_us: int,
    until_us: int | None = None,
    event_type: str | None = None,
) -> Retried:
    """Make due what was given up since then, the oldest first, a bounded number at once."""
    count = 0
    with stores.catalog.read() as tx:
        until_us = now_us(tx) if until_us is None else until_us
    for _ in range(STATEMENTS):
        with stores.catalog.write() as tx:
            ident = whose.of(tx).id
            seen, made = retrying.given_up(
                tx,
                ident,
                since_us=since_us,
                until_us=until_us,
                event_type=event_type,
                limit=AT_ONCE,
            )
        count += made
        if seen < AT_ONCE:
            return Retried(count, more=False)
    return Retried(count, more=True)


def settle(stores: Stores) -> int:
    """Let go what active subscriptions hold back, cancel what deleted ones do; returns how many."""
    with stores.catalog.read() as tx:
        loose = holding.loose(tx, limit=STATEMENTS)
    settled = 0
    for one in loose:
        with stores.catalog.write() as tx:
            settled += (holding.cancel if one.deleted else holding.release)(tx, one.id)
    return settled


def expire(stores: Stores, *, keep_s: float) -> int:
    """Forget deliveries that were settled so long ago, and secrets that sign no more."""
    with stores.catalog.write() as tx:
        rows.forget_previous(tx)
        before = now_us(tx) - int(keep_s * 1e6)
    gone = 0
    for _ in range(STATEMENTS):
        with stores.catalog.write() as tx:
            some = delivery_log.expire(tx, before, limit=AT_ONCE)
        gone += some
        if some < AT_ONCE:
            break
    return gone
