"""Matching: which subscriptions an event is for, and what each of them will be told.

A step reads the event, asks `known` for the compiled subscriptions, and only if there are any loads
the document and calls `evaluate`; the transaction that completes the step calls `record`, for a
TOMBSTONE or DELETE also when nothing matched, since it ends what waits to be told of its version.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pipelines import attachments, jmes
from pipelines.payloads import dump, payload
from storage.catalog import Catalog, Tx, deliveries
from storage.catalog import subscriptions as rows
from storage.catalog.deliveries import NewDelivery, delivery_id
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription, SubscriptionType
from storage.errors import Invalid
from storage.model import Event, Replica
from storage.query.analysis import Flat, flatten
from storage.query.evaluate import compile_query
from storage.query.grammar import parse_request

log = logging.getLogger(__name__)

__all__ = ["evaluate", "known", "record"]

record = deliveries.record


class Seen:
    """One document as both kinds of stored queries look at it, flattened at most once."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @cached_property
    def flat(self) -> Flat:
        """The leaves that es_queries ask about."""
        return flatten(self.document)


Ask = Callable[[Seen, int], bool]
"""Whether a document matches, in at most so many steps; Failed says why it cannot be told."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A subscription with its query compiled."""

    subscription: Subscription
    ask: Ask


class StoredQueries:
    """The compiled subscriptions of one catalog, kept for as long as its counters stand still."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[Replica, SubscriptionType], tuple[int, dict[int, Stored]]] = {}

    def of(self, tx: Tx, replica: Replica, kind: SubscriptionType) -> list[Stored]:
        """All live subscriptions of a replica and type; only new ones are read and compiled."""
        # Read before the rows: what changes in between is seen again the next time.
        change = rows.changes(tx, replica, kind)
        with self._lock:
            seen, kept = self._kept.get((replica, kind), (-1, {}))
            if seen != change:
                kept = _refreshed(tx, kept, rows.live(tx, replica, kind))
                self._kept[replica, kind] = change, kept
            return list(kept.values())


def _refreshed(tx: Tx, kept: Mapping[int, Stored], live: list[int]) -> dict[int, Stored]:
    fresh = rows.by_ids(tx, [ident for ident in live if ident not in kept])
    compiled = {row.id: Stored(row, _ask(row)) for row in fresh}
    both = {**kept, **compiled}
    return {ident: both[ident] for ident in live}


_catalogs: WeakKeyDictionary[Catalog, StoredQueries] = WeakKeyDictionary()
_catalogs_lock = threading.Lock()


def known(catalog: Catalog, tx: Tx, replica: Replica, kind: SubscriptionType) -> list[Stored]:
    """The compiled subscriptions that an event of the replica may be for."""
    with _catalogs_lock:
        queries = _catalogs.setdefault(catalog, StoredQueries())
    return queries.of(tx, replica, kind)


def _ask(subscription: Subscription) -> Ask:
    """The stored query as a question; one that no longer compiles fails whenever it is asked."""
    query = subscription.query
    try:
        if subscription.type == ELASTICSEARCH:
            fits = compile_query(parse_request(json.loads(query or "{}")))
            return lambda seen, steps: fits(seen.flat)
        if query is None:
            return lambda seen, steps: True
        expression = jmes.compiled(query)
        return lambda seen, steps: expression.matches(seen.document, jmes.Budget(steps))
    except (Invalid, ValueError) as error:
        return _broken(str(error))


def _broken(reason: str) -> Ask:
    def ask(seen: Seen, steps: int) -> bool:
        raise jmes.Failed(reason)

    return ask


def evaluate(
    stored: Iterable[Stored],
    event: Event,
    document: Mapping[str, Any],
    *,
    base_url: str,
    steps: int = jmes.MAX_STEPS,
    beat: Callable[[int], None] = lambda moved: None,
) -> list[NewDelivery]:
    """A delivery for each subscription that matches; a query that fails is a failed delivery.

    `document` is that of the CREATE event. Subscriptions made after the event are not asked, and
    elasticsearch ones only about new bundles.
    """
    seen = Seen({**document, "event_type": event.type})
    found = []
    for each in stored:
        subscription = each.subscription
        if subscription.created_us > event.at_us:
            continue
        if subscription.type == ELASTICSEARCH and event.type != "CREATE":
            continue
        delivery = _delivery(each, event, seen, base_url=base_url, steps=steps)
        found += [delivery] if delivery else []
        beat(1)
    return found


def _delivery(
    stored: Stored, event: Event, seen: Seen, *, base_url: str, steps: int
) -> NewDelivery | None:
    subscription = stored.subscription
    ident = delivery_id(subscription.uuid, event.id)
    try:
        if not stored.ask(seen, steps):
            return None
        told = _payload(subscription, event, seen, ident=ident, base_url=base_url, steps=steps)
        return NewDelivery(ident, subscription.id, dump(told))
    except Exception as error:
        reason = str(error) if isinstance(error, jmes.Failed) else type(error).__name__
        log.info("subscription %s on %s: %s", subscription.uuid, event.fqid, reason)
        return NewDelivery(ident, subscription.id, "", failure=f"The query failed: {reason}")


def _payload(
    subscription: Subscription,
    event: Event,
    seen: Seen,
    *,
    ident: str,
    base_url: str,
    steps: int,
) -> dict[str, Any]:
    asked = subscription.attachments
    values = None if asked is None else attachments.evaluate(asked, seen.document, steps=steps)
    return payload(subscription, event, delivery=ident, base_url=base_url, attachments=values)
