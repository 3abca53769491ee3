"""Match events with stored queries, and record the deliveries (MATCH and PERCOLATE).

A step loads the document only if there are stored queries. A TOMBSTONE or DELETE that matches
nothing is recorded, too: it ends the waiting deliveries of its version.

A dry run evaluates a subscription against the latest bundles, or chosen events, and stores nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from pipelines import documents, flow
from pipelines.flow import Heartbeat
from pipelines.job_batches import CompletedJobs
from pipelines.journals import purged_document
from pipelines.limits import DRY_RUN_PAYLOADS_MAX
from pipelines.queries import bounded_jmespath, payloads
from pipelines.queries.payloads import build_payload, dump_json
from pipelines.queries.stored_queries import (
    QueryDocument,
    StepAccounts,
    StoredQuery,
    StoredQuerySet,
    evaluate_queries,
)
from pipelines.ssrf_guard import parse_callback_url
from pipelines.subscriptions import MatchingBundle, NewSubscription, build_row, check_subscription
from storage import json_codec
from storage.catalog import Catalog, Tx, deliveries, events, jobs, subscriptions, versions
from storage.catalog.deliveries import NewDelivery, make_delivery_id
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, Subscription, SubscriptionType
from storage.errors import DomainError, Invalid, NotFoundError, TimeLimitExceeded, Unavailable
from storage.model import FQID, BundleEvent, Job, JobClaim, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)


class StoredQueryCache:
    """The stored queries of one catalog; a counter in the catalog tells when they changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[tuple[Replica, SubscriptionType], tuple[int, StoredQuerySet]] = {}

    def get_queries(self, tx: Tx, replica: Replica, kind: SubscriptionType) -> StoredQuerySet:
        """Return the queries of the live subscriptions of a replica and type."""
        # Read before the rows: a change in between is seen the next time.
        change = subscriptions.read_changes(tx, replica, kind)
        with self._lock:
            latest, queries = self._sets.get((replica, kind), (-1, StoredQuerySet()))
            if latest != change:
                before = queries.subscription_ids()
                live = set(subscriptions.list_live_ids(tx, replica, kind))
                queries.update(subscriptions.find_all(tx, live - before), gone=before - live)
                self._sets[replica, kind] = change, queries
            return queries


_caches: WeakKeyDictionary[Catalog, StoredQueryCache] = WeakKeyDictionary()
_caches_lock = threading.Lock()


def load_stored_queries(
    catalog: Catalog, tx: Tx, replica: Replica, kind: SubscriptionType
) -> StoredQuerySet:
    """Return the stored queries of a replica and type, from this process's cache."""
    with _caches_lock:
        queries = _caches.setdefault(catalog, StoredQueryCache())
    return queries.get_queries(tx, replica, kind)


def evaluate_event(
    stored: StoredQuerySet,
    event: BundleEvent,
    document: Mapping[str, Any],
    *,
    base_url: str,
    steps: int = bounded_jmespath.MAX_STEPS,
    beat: Callable[[int], None] = lambda moved: None,
) -> Iterator[NewDelivery]:
    """Yield a delivery for each subscription that matches, or whose query fails, oldest first.

    `document` is that of the CREATE event. Subscriptions made after the event are left out, and
    elasticsearch ones unless the bundle is new. Payloads are built one by one, as they are taken.
    """
    seen = QueryDocument({**document, "event_type": event.type})
    asked: dict[StoredQuery, list[Subscription]] = {}
    for query, subscribers in stored.candidates(seen.document, steps=steps, beat=beat):
        concerned = [
            each
            for each in subscribers
            if each.created_us <= event.at_us
            and (event.type == "CREATE" or each.type != ELASTICSEARCH)
        ]
        if concerned:
            asked[query] = concerned
    owners = {query: frozenset([each.owner for each in asked[query]]) for query in asked}
    accounts = StepAccounts(steps, len(set[str]().union(*owners.values())))
    matches = [
        (subscription, outcome.failure)
        for outcome in evaluate_queries(owners, seen, accounts, beat)
        if outcome.matches or outcome.failure is not None
        for subscription in asked[outcome.stored_query]
        if subscription.owner == outcome.owner
    ]
    for subscription, failure in sorted(matches, key=lambda match: match[0].id):
        yield _build_delivery(subscription, failure, event, seen, accounts, beat, base_url)
        beat(1)


def _build_delivery(
    subscription: Subscription,
    failure: str | None,
    event: BundleEvent,
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
    base_url: str,
) -> NewDelivery:
    ident = make_delivery_id(subscription.uuid, event.id)
    if failure is None:
        try:
            values = _compute_attachments(subscription, seen, accounts, beat)
            payload = build_payload(
                subscription, event, delivery=ident, base_url=base_url, attachments=values
            )
            return NewDelivery(ident, subscription.id, dump_json(payload))
        except DomainError:
            raise
        except Exception as error:
            failure = type(error).__name__
    log.info("subscription %s on %s: %s", subscription.uuid, event.fqid, failure)
    return NewDelivery(ident, subscription.id, "", failure=f"The query failed: {failure}")


def _compute_attachments(
    subscription: Subscription,
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
) -> dict[str, Any] | None:
    if subscription.attachments is None:
        return None
    room = accounts.remaining_steps(subscription.owner)
    # Expensive attachments of one subscription leave steps to the owner's other subscriptions.
    allowed = min(room, max(accounts.steps, room // 2))
    budget = bounded_jmespath.EvaluationBudget(allowed)
    values = payloads.evaluate_attachments(
        subscription.attachments,
        seen.document,
        steps=accounts.steps,
        budget=budget,
        watch=lambda: beat(0),
    )
    accounts.pay([subscription.owner], min(allowed, allowed - budget.remaining_steps))
    return values


BATCH_TIME_S = 0.05
"""How long a batch of events is evaluated: the deliveries of the first one wait for the last."""
MAX_BATCH, MAX_BATCH_CHARACTERS = 500, 8_000_000
"""Deliveries of one transaction, and characters of their payloads."""
SUBSCRIPTION_TYPES: Mapping[str, SubscriptionType] = {
    flow.Step.MATCH: JMESPATH,
    # Follows the INDEX job: search must find the bundle before its subscribers hear of it.
    flow.Step.PERCOLATE: ELASTICSEARCH,
}


def match_event(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Record the deliveries of an event, in batches; deliveries are unique by event."""
    with stores.catalog.read() as tx:
        event = events.find(tx, claim.job.ref)
        if event is None:
            raise NotFoundError(f"There is no event {claim.job.ref}.")
        stored = _load_queries_of_step(stores, tx, claim)
    receivers: set[int] = set()
    for batch, is_last in split_into_batches(
        _evaluate_with_document(stores, event, stored, beat) if stored else ()
    ):
        with stores.catalog.write() as tx:
            receivers |= {*_record_matches(tx, batch, event, claim)}
            if is_last:
                jobs.finish(tx, claim)
    return flow.delivery_jobs(receivers)


def _load_queries_of_step(stores: Stores, tx: Tx, claim: JobClaim) -> StoredQuerySet:
    kind = SUBSCRIPTION_TYPES[claim.job.step]
    return load_stored_queries(stores.catalog, tx, flow.job_replica(claim.job), kind)


def _record_matches(
    tx: Tx, fresh: Sequence[NewDelivery], event: BundleEvent, claim: JobClaim
) -> list[int]:
    """Record what an event matched; return the endpoint of each new delivery.

    An event that ends a version ends waiting deliveries, too.
    """
    if not fresh and event.type == "CREATE":
        return []
    return deliveries.insert_matches(tx, fresh, event, request_id=claim.request_id)


def match_events(stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat) -> CompletedJobs:
    """Record the deliveries of those events that fit into one transaction together."""
    claimed = {claim.job.ref: claim for claim in claims}
    with stores.catalog.read() as tx:
        unmatched = events.find_all(tx, list(claimed))
        stored = _load_queries_of_step(stores, tx, claims[0])
    fresh = (
        _evaluate_small_events(stores, unmatched, stored, beat)
        if stored
        else [(event, []) for event in unmatched]
    )
    done = [claimed[event.id] for event, _ in fresh]
    if not done:
        return {}
    with stores.catalog.write() as tx:
        if any(matches or event.type != "CREATE" for event, matches in fresh):
            versions.lock_heads(tx, "bundle", [event.fqid.uuid for event, _ in fresh])
        receivers = [
            endpoint
            for event, matches in fresh
            for endpoint in _record_matches(tx, matches, event, claimed[event.id])
        ]
        jobs.finish_all(tx, done)
    # One message for each endpoint, for all of its events.
    return {**{claim.job: () for claim in done}, done[-1].job: flow.delivery_jobs(receivers)}


def _evaluate_small_events(
    stores: Stores, unmatched: Iterable[BundleEvent], stored: StoredQuerySet, beat: Heartbeat
) -> list[tuple[BundleEvent, list[NewDelivery]]]:
    """Return events with their deliveries, as far as there is time and room for them."""
    fresh: list[tuple[BundleEvent, list[NewDelivery]]] = []
    deadline, room = time.monotonic() + BATCH_TIME_S, MAX_BATCH
    for event in unmatched:
        try:
            batch, is_last = next(
                split_into_batches(_evaluate_with_document(stores, event, stored, beat))
            )
        except Exception as error:
            log.debug("event %s leaves its batch: %s", event.id, error)
            continue
        if is_last and len(batch) <= room:
            fresh.append((event, batch))
            room -= len(batch)
        if time.monotonic() > deadline:
            break
    return fresh


def split_into_batches(fresh: Iterable[NewDelivery]) -> Iterator[tuple[list[NewDelivery], bool]]:
    """Yield bounded batches, and whether it is the last one, which may be empty."""
    batch, characters = list[NewDelivery](), 0
    for delivery in fresh:
        if len(batch) == MAX_BATCH or characters > MAX_BATCH_CHARACTERS:
            yield batch, False
            batch, characters = [], 0
        batch.append(delivery)
        characters += len(delivery.payload)
    yield batch, True


def _evaluate_with_document(
    stores: Stores, event: BundleEvent, stored: StoredQuerySet, beat: Heartbeat
) -> Iterator[NewDelivery]:
    with documents.open_document(stores, event.replica, event.bundle_id, beat) as document:
        yield from evaluate_event(
            stored,
            event,
            document,
            base_url=stores.base_url,
            steps=stores.max_query_steps,
            beat=lambda _one: beat(0),
        )


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """One bundle: whether it matches, with the payload's JSON or the error of its evaluation."""

    fqid: FQID
    matches: bool = False
    payload: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The evaluated bundles, the latest first, and whether the time ran out."""

    bundles: tuple[DryRunResult, ...]
    timed_out: bool


MAX_DRY_RUNS = 4
"""Concurrent dry runs of one process; each costs as much as a step of a worker."""
_dry_runs = threading.BoundedSemaphore(MAX_DRY_RUNS)


@contextmanager
def limit_dry_runs() -> Iterator[None]:
    """Limit the dry runs of this process; Unavailable when there are too many."""
    if not _dry_runs.acquire(blocking=False):
        raise Unavailable("Too many concurrent dry runs: try again later.", retry_after_s=1)
    try:
        yield
    finally:
        _dry_runs.release()


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
    payloads: int = DRY_RUN_PAYLOADS_MAX,
    bundle_uuid: str | None = None,
    event_ids: Sequence[str] | None = None,
) -> DryRun:
    """Evaluate a subscription that is not stored; raise Invalid as its creation would.

    It is tried with the latest bundles, with the versions of one bundle, or with these events.
    Only the first `payloads` matches get a payload.
    """
    parse_callback_url(new.callback_url, allow_private=allow_private)
    check_subscription(new)
    subscription = build_row(new, owner, uuid)
    purged: set[FQID] = set()
    with stores.catalog.read() as tx:
        if event_ids is None:
            tried = events.list_latest_created(tx, new.replica, limit=limit, uuid=bundle_uuid)
        else:
            tried = _find_events(tx, new.replica, event_ids)
            purged = events.filter_purged(tx, {event.fqid for event in tried})
    results: list[DryRunResult] = []
    try:
        for result in _evaluate_events(
            stores,
            subscription,
            tried,
            purged=purged,
            payloads=payloads,
            time_s=time_s,
            clock=clock,
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
    with stores.catalog.read() as tx:
        latest = events.list_latest_created(tx, subscription.replica, limit=limit)
    older = replace(subscription, created_us=0)
    results = _evaluate_events(stores, older, latest, payloads=1, time_s=time_s, clock=clock)
    with suppress(TimeLimitExceeded):
        for result in results:
            if result.payload is not None:
                payload = json_codec.decode(result.payload.encode())
                return MatchingBundle(result.fqid, payload)
    return None


def _find_events(tx: Tx, replica: Replica, idents: Sequence[str]) -> list[BundleEvent]:
    """Return events of a replica in this order; raise Invalid for those that it does not have."""
    found = {one.id: one for one in events.find_all(tx, idents) if one.replica == replica}
    for at, ident in enumerate(idents):
        if ident not in found:
            detail = f"There is no event {ident} in {replica}."
            raise Invalid(detail, errors={f"/event_ids/{at}": [detail]})
    return [found[ident] for ident in idents]


def _evaluate_events(
    stores: Stores,
    subscription: Subscription,
    tried: Sequence[BundleEvent],
    *,
    purged: Set[FQID] = frozenset(),
    payloads: int,
    time_s: float,
    clock: Clock,
) -> Iterator[DryRunResult]:
    """Yield the result for each of the events, the first matches with their payloads.

    Of a purged bundle only its DELETE event may match.

    Raise TimeLimitExceeded when the time runs out.
    """
    # Where no payload is wanted, attachments are not evaluated.
    bare = StoredQuerySet([replace(subscription, attachments=None)])
    queries, end = StoredQuerySet([subscription]), clock() + time_s

    def check_time(_moved: int) -> None:
        if clock() > end:
            raise TimeLimitExceeded("The dry run took too long.")

    for event in tried:
        check_time(0)
        if event.fqid in purged and event.type != "DELETE":
            yield DryRunResult(event.fqid)
            continue
        one = _evaluate_one(stores, queries if payloads else bare, event, check_time)
        yield one if payloads else replace(one, payload=None)
        payloads -= bool(payloads and one.matches)


def _evaluate_one(
    stores: Stores, queries: StoredQuerySet, event: BundleEvent, heartbeat: Callable[[int], None]
) -> DryRunResult:
    # As in a replay: a DELETE event comes without the document, which is purged.
    opened = (
        nullcontext(purged_document(event))
        if event.type == "DELETE"
        else documents.open_document(stores, event.replica, event.bundle_id, heartbeat)
    )
    try:
        with opened as document:
            matches = evaluate_event(
                queries,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.max_query_steps,
                beat=heartbeat,
            )
            for match in matches:
                failed = match.failure is not None
                return DryRunResult(event.fqid, not failed, match.payload or None, match.failure)
    except TimeLimitExceeded:
        raise
    except DomainError as error:
        return DryRunResult(event.fqid, error=error.detail)
    return DryRunResult(event.fqid)
