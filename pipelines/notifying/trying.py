"""Dry runs: the payloads of a subscription for the latest bundles. Nothing is stored.

What it says is what matching would record: the same queries, attachments and payload, but for the
ids of a subscription that does not exist.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipelines.finding import loading
from pipelines.notifying import subscriptions
from pipelines.notifying.addresses import parse_callback
from pipelines.notifying.subscriptions import Match, NewSubscription
from pipelines.queries import matching
from storage import json_codec
from storage.catalog import recent
from storage.catalog.subscriptions import Subscription
from storage.errors import StoreError, TimedOut
from storage.model import FQID, Event
from storage.stores import Stores

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Tried:
    """One bundle: the payload's JSON when it matches, or why that cannot be told."""

    fqid: FQID
    payload: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The bundles that were asked about, the latest first, and whether time ran out on others."""

    bundles: tuple[Tried, ...]
    timed_out: bool


def dry_run(
    stores: Stores,
    new: NewSubscription,
    owner: str,
    *,
    uuid: str,
    limit: int,
    time_s: float,
    clock: Clock,
    allow_private: bool,
) -> DryRun:
    """Ask a subscription that is not made about the latest bundles; Invalid as `create` has it."""
    parse_callback(new.callback_url, allow_private=allow_private)
    subscriptions.check(new)
    asking = subscriptions.as_row(new, owner, uuid)
    tried: list[Tried] = []
    try:
        for one in _tries(stores, asking, limit=limit, time_s=time_s, clock=clock):
            tried.append(one)
    except TimedOut:
        return DryRun(tuple(tried), timed_out=True)
    return DryRun(tuple(tried), timed_out=False)


def first_match(
    stores: Stores, subscription: Subscription, *, limit: int, time_s: float, clock: Clock
) -> Match | None:
    """Return the latest bundle that a subscription matches, whenever it was made; None if none of
    the latest does, or time runs out."""
    asking = replace(subscription, created_us=0)
    try:
        for one in _tries(stores, asking, limit=limit, time_s=time_s, clock=clock):
            if one.payload is not None:
                return Match(one.fqid, json_codec.decode(one.payload.encode()))
    except TimedOut:
        pass
    return None


def _tries(
    stores: Stores, asking: Subscription, *, limit: int, time_s: float, clock: Clock
) -> Iterator[Tried]:
    """Yield the result for each of the latest bundles; TimedOut when time runs out."""
    with stores.catalog.read() as tx:
        latest = recent.created(tx, asking.replica, limit=limit)
    asked, end = matching.Questions([asking]), clock() + time_s

    def beat(_moved: int) -> None:
        if clock() > end:
            raise TimedOut("The dry run took too long.")

    for event in latest:
        beat(0)
        yield _try(stores, asked, event, beat)


def _try(
    stores: Stores, asked: matching.Questions, event: Event, beat: Callable[[int], None]
) -> Tried:
    try:
        with loading.document(stores, event.replica, event.bundle_id, beat) as document:
            found = matching.evaluate(
                asked,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.query_steps,
                beat=beat,
            )
            for told in found:
                return Tried(event.fqid, payload=told.payload or None, error=told.failure)
    except TimedOut:
        raise
    except StoreError as error:
        return Tried(event.fqid, error=error.detail)
    return Tried(event.fqid)
