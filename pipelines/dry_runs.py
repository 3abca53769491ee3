"""Evaluate a subscription against the latest bundles without storing anything.

The queries, attachments and payloads are those of matching, except for the ids of a subscription
that does not exist.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from pipelines import documents, matching, subscriptions
from pipelines.queries.stored_queries import StoredQuerySet
from pipelines.ssrf_guard import parse_callback_url
from pipelines.subscriptions import MatchingBundle, NewSubscription
from storage import json_codec
from storage.catalog import events
from storage.catalog.subscriptions import Subscription
from storage.errors import DomainError, TimeLimitExceeded
from storage.model import FQID, BundleEvent
from storage.stores import Stores

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """One bundle: the payload's JSON if it matches, or the error of its evaluation."""

    fqid: FQID
    payload: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The evaluated bundles, the latest first, and whether the time ran out."""

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
    """Evaluate a subscription that is not stored; raise Invalid as its creation would."""
    parse_callback_url(new.callback_url, allow_private=allow_private)
    subscriptions.check_subscription(new)
    subscription = subscriptions.build_row(new, owner, uuid)
    results: list[DryRunResult] = []
    try:
        for result in _evaluate_latest(
            stores, subscription, limit=limit, time_s=time_s, clock=clock
        ):
            results.append(result)
    except TimeLimitExceeded:
        return DryRun(tuple(results), timed_out=True)
    return DryRun(tuple(results), timed_out=False)


def find_latest_match(
    stores: Stores, subscription: Subscription, *, limit: int, time_s: float, clock: Clock
) -> MatchingBundle | None:
    """Return the latest bundle that matches, even if it is older than the subscription.

    None if none of the latest ones matches, or if the time runs out.
    """
    results = _evaluate_latest(
        stores, replace(subscription, created_us=0), limit=limit, time_s=time_s, clock=clock
    )
    with suppress(TimeLimitExceeded):
        for result in results:
            if result.payload is not None:
                payload = json_codec.decode(result.payload.encode())
                return MatchingBundle(result.fqid, payload)
    return None


def _evaluate_latest(
    stores: Stores, subscription: Subscription, *, limit: int, time_s: float, clock: Clock
) -> Iterator[DryRunResult]:
    """Yield the result for each of the latest bundles.

    Raise TimeLimitExceeded when the time runs out.
    """
    with stores.catalog.read() as tx:
        latest = events.list_latest_created(tx, subscription.replica, limit=limit)
    queries, end = StoredQuerySet([subscription]), clock() + time_s

    def check_time(_moved: int) -> None:
        if clock() > end:
            raise TimeLimitExceeded("The dry run took too long.")

    for event in latest:
        check_time(0)
        yield _evaluate_bundle(stores, queries, event, check_time)


def _evaluate_bundle(
    stores: Stores, queries: StoredQuerySet, event: BundleEvent, heartbeat: Callable[[int], None]
) -> DryRunResult:
    try:
        with documents.open_document(stores, event.replica, event.bundle_id, heartbeat) as document:
            matches = matching.evaluate_event(
                queries,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.max_query_steps,
                beat=heartbeat,
            )
            for match in matches:
                return DryRunResult(event.fqid, match.payload or None, match.failure)
    except TimeLimitExceeded:
        raise
    except DomainError as error:
        return DryRunResult(event.fqid, error=error.detail)
    return DryRunResult(event.fqid)
