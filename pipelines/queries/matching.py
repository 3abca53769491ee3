"""Matching: which subscriptions an event is for, and what each of them will be told.

A step reads the event, asks `known` for the stored queries, and only if there are any loads the
document and calls `evaluate`; the transactions of the step call `record`, the one that completes it
for a TOMBSTONE or DELETE also when nothing matched, since that ends what waits to be told of its
version.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pipelines.queries import attachments, jmes
from pipelines.queries.payloads import dump, payload
from pipelines.queries.questions import Candidate, Question, Questions, Seen
from pipelines.queries.spending import Accounts, verdicts
from storage.catalog import Catalog, Tx, deliveries
from storage.catalog import subscriptions as rows
from storage.catalog.deliveries import NewDelivery, delivery_id
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription, SubscriptionType
from storage.errors import StoreError
from storage.model import Event, Replica

log = logging.getLogger(__name__)

__all__ = ["Questions", "evaluate", "known", "record"]

record = deliveries.record


class StoredQueries:
    """The stored queries of one catalog, followed as its counters move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[Replica, SubscriptionType], tuple[int, Questions]] = {}

    def of(self, tx: Tx, replica: Replica, kind: SubscriptionType) -> Questions:
        """Those of all live subscriptions of a replica and type; only new ones are read."""
        # Read before the rows: what changes in between is seen again the next time.
        change = rows.changes(tx, replica, kind)
        with self._lock:
            seen, kept = self._kept.get((replica, kind), (-1, Questions()))
            if seen != change:
                _follow(tx, kept, rows.live(tx, replica, kind))
                self._kept[replica, kind] = change, kept
            return kept


def _follow(tx: Tx, kept: Questions, live: list[int]) -> None:
    before, now = kept.ids(), set(live)
    kept.change(rows.by_ids(tx, now - before), gone=before - now)


_catalogs: WeakKeyDictionary[Catalog, StoredQueries] = WeakKeyDictionary()
_catalogs_lock = threading.Lock()


def known(catalog: Catalog, tx: Tx, replica: Replica, kind: SubscriptionType) -> Questions:
    """The stored queries that an event of the replica may be for."""
    with _catalogs_lock:
        queries = _catalogs.setdefault(catalog, StoredQueries())
    return queries.of(tx, replica, kind)


class Found(NamedTuple):
    """A subscription to tell of an event, or to record a failure for."""

    subscription: Subscription
    failure: str | None


def evaluate(
    stored: Questions,
    event: Event,
    document: Mapping[str, Any],
    *,
    base_url: str,
    steps: int = jmes.MAX_STEPS,
    beat: Callable[[int], None] = lambda moved: None,
) -> Iterator[NewDelivery]:
    """A delivery for each subscription that matches; a query that fails is a failed delivery.

    `document` is that of the CREATE event. Subscriptions made after the event are not asked, and
    elasticsearch ones only about new bundles. Payloads are made one by one, as they are taken.
    """
    seen = Seen({**document, "event_type": event.type})
    asked = _asked(stored, event, seen, steps, beat)
    accounts = Accounts(steps, len({each.owner for one in asked for each in one.askers}))
    for found in _found(asked, seen, accounts, beat):
        yield _delivery(found, event, seen, accounts, beat, base_url=base_url)
        beat(1)


def _asked(
    stored: Questions, event: Event, seen: Seen, steps: int, beat: Callable[[int], None]
) -> list[Candidate]:
    """The questions that an event may answer with yes, with those of their askers it concerns."""
    asked = []
    candidates = stored.candidates(seen.document, steps=steps, shared=seen.shared, beat=beat)
    for question, certain, askers in candidates:
        concerned = tuple([each for each in askers if _concerns(event, each)])
        if concerned:
            asked.append(Candidate(question, certain, concerned))
    return asked


def _found(
    asked: Iterable[Candidate], seen: Seen, accounts: Accounts, beat: Callable[[int], None]
) -> list[Found]:
    """Whom to tell, the oldest subscription first."""
    open_ones = {one.question: one.askers for one in asked if not one.certain}
    found = [Found(each, None) for one in asked if one.certain for each in one.askers]
    found += _answered(open_ones, seen, accounts, beat)
    return sorted(found, key=lambda one: one.subscription.id)


def _concerns(event: Event, subscription: Subscription) -> bool:
    if subscription.created_us > event.at_us:
        return False
    return event.type == "CREATE" or subscription.type != ELASTICSEARCH


def _answered(
    asking: Mapping[Question, tuple[Subscription, ...]],
    seen: Seen,
    accounts: Accounts,
    beat: Callable[[int], None],
) -> Iterator[Found]:
    owners = {one: frozenset([each.owner for each in asking[one]]) for one in asking}
    for verdict in verdicts(owners, seen, accounts, beat):
        if verdict.matches or verdict.failure is not None:
            told = (each for each in asking[verdict.question] if each.owner == verdict.owner)
            yield from (Found(each, verdict.failure) for each in told)


def _delivery(
    found: Found,
    event: Event,
    seen: Seen,
    accounts: Accounts,
    beat: Callable[[int], None],
    *,
    base_url: str,
) -> NewDelivery:
    subscription, failure = found
    ident = delivery_id(subscription.uuid, event.id)
    if failure is None:
        try:
            values = _attached(subscription, seen, accounts, beat)
            told = payload(
                subscription, event, delivery=ident, base_url=base_url, attachments=values
            )
            return NewDelivery(ident, subscription.id, dump(told))
        except StoreError:
            raise
        except Exception as error:
            failure = type(error).__name__
    log.info("subscription %s on %s: %s", subscription.uuid, event.fqid, failure)
    return NewDelivery(ident, subscription.id, "", failure=f"The query failed: {failure}")


def _attached(
    subscription: Subscription, seen: Seen, accounts: Accounts, beat: Callable[[int], None]
) -> dict[str, Any] | None:
    if subscription.attachments is None:
        return None
    room = accounts.room(subscription.owner)
    # Expensive attachments of one subscription leave steps to the owner's other subscriptions.
    allowed = min(room, max(accounts.steps, room // 2))
    budget = jmes.Budget(allowed)
    values = attachments.evaluate(
        subscription.attachments,
        seen.document,
        steps=accounts.steps,
        budget=budget,
        watch=lambda: beat(0),
    )
    accounts.pay([subscription.owner], min(allowed, allowed - budget.left))
    return values
