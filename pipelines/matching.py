"""Match events against stored queries, and record the deliveries (MATCH and PERCOLATE).

A step reads the event, asks `known` for the stored queries, and only if there are any loads the
document and calls `evaluate`; the transactions of the step call `record`, the one that completes it
for a TOMBSTONE or DELETE also when nothing matched, since that ends what waits to be told of its
version.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pipelines import documents, flow
from pipelines.copies import Heartbeat
from pipelines.job_batches import CompletedJobs
from pipelines.queries import bounded_jmespath, payloads
from pipelines.queries.budgets import StepAccounts, evaluate_queries
from pipelines.queries.payloads import build_payload, dump_json
from pipelines.queries.stored_queries import (
    QueryCandidate,
    QueryDocument,
    StoredQuery,
    StoredQuerySet,
)
from storage.catalog import Catalog, Tx, deliveries, events, heads, jobs, subscriptions
from storage.catalog.deliveries import NewDelivery, make_delivery_id
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, Subscription, SubscriptionType
from storage.errors import NotFound, StoreError
from storage.model import BundleEvent, Job, JobClaim, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)


record_deliveries = deliveries.insert_matches


class StoredQueryCache:
    """The stored queries of one catalog, followed as its counters move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[Replica, SubscriptionType], tuple[int, StoredQuerySet]] = {}

    def get_queries(self, tx: Tx, replica: Replica, kind: SubscriptionType) -> StoredQuerySet:
        """Those of all live subscriptions of a replica and type; only new ones are read."""
        # Read before the rows: what changes in between is seen again the next time.
        change = subscriptions.read_changes(tx, replica, kind)
        with self._lock:
            seen, kept = self._kept.get((replica, kind), (-1, StoredQuerySet()))
            if seen != change:
                _apply_changes(tx, kept, subscriptions.list_live_ids(tx, replica, kind))
                self._kept[replica, kind] = change, kept
            return kept


def _apply_changes(tx: Tx, kept: StoredQuerySet, live: list[int]) -> None:
    before, now = kept.subscription_ids(), set(live)
    kept.update(subscriptions.find_all(tx, now - before), gone=before - now)


_caches: WeakKeyDictionary[Catalog, StoredQueryCache] = WeakKeyDictionary()
_caches_lock = threading.Lock()


def load_stored_queries(
    catalog: Catalog, tx: Tx, replica: Replica, kind: SubscriptionType
) -> StoredQuerySet:
    """The stored queries that an event of the replica may be for."""
    with _caches_lock:
        queries = _caches.setdefault(catalog, StoredQueryCache())
    return queries.get_queries(tx, replica, kind)


class MatchedSubscription(NamedTuple):
    """A subscription to tell of an event, or to record a failure for."""

    subscription: Subscription
    failure: str | None


def evaluate_event(
    stored: StoredQuerySet,
    event: BundleEvent,
    document: Mapping[str, Any],
    *,
    base_url: str,
    steps: int = bounded_jmespath.MAX_STEPS,
    beat: Callable[[int], None] = lambda moved: None,
) -> Iterator[NewDelivery]:
    """A delivery for each subscription that matches; a query that fails is a failed delivery.

    `document` is that of the CREATE event. Subscriptions made after the event are not asked, and
    elasticsearch ones only about new bundles. Payloads are made one by one, as they are taken.
    """
    seen = QueryDocument({**document, "event_type": event.type})
    asked = _select_candidates(stored, event, seen, steps, beat)
    accounts = StepAccounts(steps, len({each.owner for one in asked for each in one.subscribers}))
    for found in _find_matches(asked, seen, accounts, beat):
        yield _build_delivery(found, event, seen, accounts, beat, base_url=base_url)
        beat(1)


def _select_candidates(
    stored: StoredQuerySet,
    event: BundleEvent,
    seen: QueryDocument,
    steps: int,
    beat: Callable[[int], None],
) -> list[QueryCandidate]:
    """The questions that an event may answer with yes, with those of their askers it concerns."""
    asked = []
    for question, askers in stored.candidates(seen.document, steps=steps, beat=beat):
        concerned = tuple([each for each in askers if _concerns_event(event, each)])
        if concerned:
            asked.append(QueryCandidate(question, concerned))
    return asked


def _find_matches(
    asked: Iterable[QueryCandidate],
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
) -> list[MatchedSubscription]:
    """Whom to tell, the oldest subscription first."""
    subscribers = {one.stored_query: one.subscribers for one in asked}
    found = _evaluate_candidates(subscribers, seen, accounts, beat)
    return sorted(found, key=lambda one: one.subscription.id)


def _concerns_event(event: BundleEvent, subscription: Subscription) -> bool:
    if subscription.created_us > event.at_us:
        return False
    return event.type == "CREATE" or subscription.type != ELASTICSEARCH


def _evaluate_candidates(
    asking: Mapping[StoredQuery, tuple[Subscription, ...]],
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
) -> Iterator[MatchedSubscription]:
    owners = {one: frozenset([each.owner for each in asking[one]]) for one in asking}
    for verdict in evaluate_queries(owners, seen, accounts, beat):
        if verdict.matches or verdict.failure is not None:
            told = (each for each in asking[verdict.stored_query] if each.owner == verdict.owner)
            yield from (MatchedSubscription(each, verdict.failure) for each in told)


def _build_delivery(
    found: MatchedSubscription,
    event: BundleEvent,
    seen: QueryDocument,
    accounts: StepAccounts,
    beat: Callable[[int], None],
    *,
    base_url: str,
) -> NewDelivery:
    subscription, failure = found
    ident = make_delivery_id(subscription.uuid, event.id)
    if failure is None:
        try:
            values = _compute_attachments(subscription, seen, accounts, beat)
            told = build_payload(
                subscription, event, delivery=ident, base_url=base_url, attachments=values
            )
            return NewDelivery(ident, subscription.id, dump_json(told))
        except StoreError:
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
    accounts.pay([subscription.owner], min(allowed, allowed - budget.left))
    return values


BATCH_TIME_S = 0.05
"""How long a batch of events is evaluated: the deliveries of the first one wait for the last."""
MAX_BATCH, MAX_BATCH_CHARACTERS = 500, 8_000_000
"""The most that is held in memory of what an event's deliveries will say."""


def match_event(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Record the deliveries of the jmespath subscriptions that an event matches."""
    return _run_match_job(stores, claim, beat, JMESPATH)


def percolate_event(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """The same for elasticsearch subscriptions, once search can find the bundle."""
    return _run_match_job(stores, claim, beat, ELASTICSEARCH)


def _run_match_job(
    stores: Stores, claim: JobClaim, beat: Heartbeat, kind: SubscriptionType
) -> tuple[Job, ...]:
    """Run again, it finds every delivery recorded already: they are unique by event."""
    with stores.catalog.read() as tx:
        event = events.find(tx, claim.job.ref)
        if event is None:
            raise NotFound(f"There is no event {claim.job.ref}.")
        stored = load_stored_queries(stores.catalog, tx, flow.job_replica(claim.job), kind)
    receivers: set[int] = set()
    for batch, is_last in split_into_batches(
        _evaluate_with_document(stores, event, stored, beat) if stored else ()
    ):
        with stores.catalog.write() as tx:
            receivers |= {*_record_matches(tx, batch, event, claim)}
            if is_last:
                jobs.finish(tx, claim)
    return flow.delivery_jobs(receivers)


def _record_matches(
    tx: Tx, fresh: Sequence[NewDelivery], event: BundleEvent, claim: JobClaim
) -> list[int]:
    """Record what an event matched; returns the endpoint of each new delivery.

    An event that ends a version ends waiting deliveries, too.
    """
    if not fresh and event.type == "CREATE":
        return []
    return record_deliveries(tx, fresh, event, request_id=claim.request_id)


def match_events(stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat) -> CompletedJobs:
    """Match several events with the jmespath subscriptions."""
    return _run_match_jobs(stores, claims, beat, JMESPATH)


def percolate_events(stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat) -> CompletedJobs:
    """Match several events with the elasticsearch subscriptions."""
    return _run_match_jobs(stores, claims, beat, ELASTICSEARCH)


def _run_match_jobs(
    stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat, kind: SubscriptionType
) -> CompletedJobs:
    """Those events of which all deliveries fit into one transaction, together."""
    claimed = {claim.job.ref: claim for claim in claims}
    with stores.catalog.read() as tx:
        found = events.find_all(tx, list(claimed))
        stored = load_stored_queries(stores.catalog, tx, flow.job_replica(claims[0].job), kind)
    fresh = (
        _evaluate_small_events(stores, found, stored, beat)
        if stored
        else [(event, []) for event in found]
    )
    done = [claimed[event.id] for event, _ in fresh]
    if not done:
        return {}
    with stores.catalog.write() as tx:
        if any(deliveries or event.type != "CREATE" for event, deliveries in fresh):
            heads.lock(tx, "bundle", [event.fqid.uuid for event, _ in fresh])
        recorded = [_record_matches(tx, told, event, claimed[event.id]) for event, told in fresh]
        jobs.finish_all(tx, done)
    receivers = flow.delivery_jobs(ident for idents in recorded for ident in idents)
    # One message for each endpoint, for all of its events.
    return {**{claim.job: () for claim in done}, done[-1].job: receivers}


def _evaluate_small_events(
    stores: Stores, found: Iterable[BundleEvent], stored: StoredQuerySet, beat: Heartbeat
) -> list[tuple[BundleEvent, list[NewDelivery]]]:
    """Events and their deliveries, as far as there is time and room for them."""
    fresh: list[tuple[BundleEvent, list[NewDelivery]]] = []
    deadline, room = time.monotonic() + BATCH_TIME_S, MAX_BATCH
    for event in found:
        try:
            told, is_last = next(
                split_into_batches(_evaluate_with_document(stores, event, stored, beat))
            )
        except Exception as error:
            log.debug("event %s leaves its batch: %s", event.id, error)
            continue
        if is_last and len(told) <= room:
            fresh.append((event, told))
            room -= len(told)
        if time.monotonic() > deadline:
            break
    return fresh


def split_into_batches(found: Iterable[NewDelivery]) -> Iterator[tuple[list[NewDelivery], bool]]:
    """Bounded lists of them, and whether that was the last; the last may be empty."""
    batch, characters = list[NewDelivery](), 0
    for delivery in found:
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
