"""How a subscription stands: paused and resumed, its secret changed, what failed tried again.

What the clock does for all of them is here too: letting go what is held back, forgetting what is
settled. Every statement is bounded, whatever a subscription holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.notifying.subscriptions import (
    Seal,
    check_key,
    own,
    secret_context,
    wait_for_attempts,
)
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
    """Have it sent nothing but tests; what matches is recorded, for when it is resumed.

    No attempt begins once this has returned.
    """
    with stores.catalog.write() as tx:
        rows.halt(tx, whose.of(tx).id)
        paused = whose.of(tx)
    wait_for_attempts(stores, paused.endpoint_id)
    return paused


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


def retry_failed(
    stores: Stores,
    whose: Whose,
    *,
    since_us: int,
    until_us: int | None = None,
    event_type: str | None = None,
) -> Retried:
    """Make due what failed since then, whether it was given up or is to be tried again later; the
    oldest first, a bounded number at once."""
    with stores.catalog.read() as tx:
        span = retrying.Span(since_us, now_us(tx) if until_us is None else until_us, event_type)
    count = 0
    failed = iter((retrying.given_up, retrying.put_off))
    some = next(failed, None)
    for _ in range(STATEMENTS):
        if some is None:
            break
        with stores.catalog.write() as tx:
            seen, made = some(tx, whose.of(tx), span, limit=AT_ONCE)
        count += made
        if seen < AT_ONCE:
            some = next(failed, None)
    return Retried(count, more=some is not None)


def settle(stores: Stores) -> int:
    """Let go what active subscriptions hold back, cancel what deleted ones do; returns how many."""
    with stores.catalog.read() as tx:
        loose = holding.loose(tx, limit=STATEMENTS)
    settled = 0
    for one in loose:
        with stores.catalog.write() as tx:
            settled += (holding.cancel if one.deleted else holding.release)(tx, one.id)
    return settled


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long deliveries are kept that came to an end, and those that nobody took; 0 of the
    latter is for ever."""

    ended_s: float
    undelivered_s: float


def expire(stores: Stores, keep: Keeping) -> int:
    """Forget deliveries that are kept no longer, what deleted subscriptions leave, their endpoints
    too, and secrets that sign no more; returns how many deliveries."""
    with stores.catalog.write() as tx:
        rows.forget_previous(tx)
        now = now_us(tx)
    ended_us = now - int(keep.ended_s * 1e6)
    gone = _in_turns(stores, lambda tx: delivery_log.expire(tx, ended_us, limit=AT_ONCE))
    if keep.undelivered_s > 0:
        gone += _expire_undelivered(stores, now - int(keep.undelivered_s * 1e6))
    with stores.catalog.read() as tx:
        deleted = rows.deleted_before(tx, ended_us, limit=STATEMENTS)
    gone += sum(_forget(stores, ident) for ident in deleted)
    _forget_endpoints(stores)
    return gone


def _forget_endpoints(stores: Stores) -> None:
    """What was learnt of receivers that nobody names any more."""
    with stores.catalog.read() as tx:
        unnamed = endpoints.unnamed(tx, limit=AT_ONCE)
    if unnamed:
        with stores.catalog.write() as tx:
            endpoints.forget(tx, unnamed)


def _expire_undelivered(stores: Stores, before_us: int) -> int:
    with stores.catalog.read() as tx:
        aged = holding.aged(tx, before_us, limit=STATEMENTS)
    for ident in aged:
        with stores.catalog.write() as tx:
            holding.abandon(tx, ident, before_us)
    return _in_turns(
        stores, lambda tx: delivery_log.expire(tx, before_us, failed=True, limit=AT_ONCE)
    )


def _in_turns(stores: Stores, some: Callable[[Tx], int]) -> int:
    """Bounded statements until one of them finds too little to do, and no more than so many."""
    done = 0
    for _ in range(STATEMENTS):
        with stores.catalog.write() as tx:
            found = some(tx)
        done += found
        if found < AT_ONCE:
            break
    return done


def _forget(stores: Stores, ident: int) -> int:
    """A deleted subscription with all that it was told."""
    gone = _in_turns(stores, lambda tx: delivery_log.forget(tx, ident, limit=AT_ONCE))
    with stores.catalog.write() as tx:
        rows.forget(tx, ident)
    return gone
