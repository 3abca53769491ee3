"""Evaluate a subscription against the latest bundles without storing anything.

What it says is what matching would record: the same queries, attachments and payload, but for the
ids of a subscription that does not exist.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipelines import documents, matching, subscriptions
from pipelines.queries.stored_queries import StoredQuerySet
from pipelines.ssrf_guard import parse_callback_url
from pipelines.subscriptions import MatchingBundle, NewSubscription
from storage import json_codec
from storage.catalog import events
from storage.catalog.subscriptions import Subscription
from storage.errors import StoreError, TimedOut
from storage.model import FQID, BundleEvent
from storage.stores import Stores

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """One bundle: the payload's JSON when it matches, or why that cannot be told."""

    fqid: FQID
    payload: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The bundles that were asked about, the latest first, and whether time ran out on others."""

    bundles: tuple[DryRunResult, ...]
    timed_out: bool


def dry_run_subscription(
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
    parse_callback_url(new.callback_url, allow_private=allow_private)
    subscriptions.check_subscription(new)
    asking = subscriptions.build_row(new, owner, uuid)
    tried: list[DryRunResult] = []
    try:
        for one in _evaluate_latest_bundles(
            stores, asking, limit=limit, time_s=time_s, clock=clock
        ):
            tried.append(one)
    except TimedOut:
        return DryRun(tuple(tried), timed_out=True)
    return DryRun(tuple(tried), timed_out=False)


def find_latest_match(
    stores: Stores, subscription: Subscription, *, limit: int, time_s: float, clock: Clock
) -> MatchingBundle | None:
    """Return the latest bundle that a subscription matches, whenever it was made; None if none of
    the latest does, or time runs out."""
    asking = replace(subscription, created_us=0)
    try:
        for one in _evaluate_latest_bundles(
            stores, asking, limit=limit, time_s=time_s, clock=clock
        ):
            if one.payload is not None:
                return MatchingBundle(one.fqid, json_codec.decode(one.payload.encode()))
    except TimedOut:
        pass
    return None


def _evaluate_latest_bundles(
    stores: Stores, asking: Subscription, *, limit: int, time_s: float, clock: Clock
) -> Iterator[DryRunResult]:
    """Yield the result for each of the latest bundles; TimedOut when time runs out."""
    with stores.catalog.read() as tx:
        latest = events.list_latest_created(tx, asking.replica, limit=limit)
    asked, end = StoredQuerySet([asking]), clock() + time_s

    def beat(_moved: int) -> None:
        if clock() > end:
            raise TimedOut("The dry run took too long.")

    for event in latest:
        beat(0)
        yield _evaluate_bundle(stores, asked, event, beat)


def _evaluate_bundle(
    stores: Stores, asked: StoredQuerySet, event: BundleEvent, beat: Callable[[int], None]
) -> DryRunResult:
    try:
        with documents.open_document(stores, event.replica, event.bundle_id, beat) as document:
            found = matching.evaluate_event(
                asked,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.max_query_steps,
                beat=beat,
            )
            for told in found:
                return DryRunResult(event.fqid, payload=told.payload or None, error=told.failure)
    except TimedOut:
        raise
    except StoreError as error:
        return DryRunResult(event.fqid, error=error.detail)
    return DryRunResult(event.fqid)
