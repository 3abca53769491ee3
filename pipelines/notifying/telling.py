"""The steps MATCH and PERCOLATE: an event meets the stored queries of its replica."""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from pipelines import flow
from pipelines.batches import Completed
from pipelines.finding import loading
from pipelines.keeping.copying import Beat
from pipelines.queries import matching
from storage.catalog import Tx, events, heads, todo
from storage.catalog.deliveries import NewDelivery
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, SubscriptionType
from storage.errors import NotFound
from storage.model import Claim, Event, Todo
from storage.stores import Stores

log = logging.getLogger(__name__)

TOGETHER_S = 0.05
"""How long a batch of events is evaluated: the deliveries of the first one wait for the last."""
BATCH, BATCH_CHARACTERS = 500, 8_000_000
"""The most that is held in memory of what an event's deliveries will say."""


def match(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Record the deliveries of the jmespath subscriptions that an event matches."""
    return _tell(stores, claim, beat, JMESPATH)


def percolate(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """The same for elasticsearch subscriptions, once search can find the bundle."""
    return _tell(stores, claim, beat, ELASTICSEARCH)


def _tell(stores: Stores, claim: Claim, beat: Beat, kind: SubscriptionType) -> tuple[Todo, ...]:
    """Run again, it finds every delivery recorded already: they are unique by event."""
    with stores.catalog.read() as tx:
        event = events.get(tx, claim.todo.ref)
        if event is None:
            raise NotFound(f"There is no event {claim.todo.ref}.")
        stored = matching.known(stores.catalog, tx, flow.replica_of(claim.todo), kind)
    receivers: set[int] = set()
    for batch, is_last in batches(_evaluate(stores, event, stored, beat) if stored else ()):
        with stores.catalog.write() as tx:
            receivers |= {*_record(tx, batch, event, claim)}
            if is_last:
                todo.finish(tx, claim)
    return flow.deliver_to(receivers)


def _record(tx: Tx, fresh: Sequence[NewDelivery], event: Event, claim: Claim) -> list[int]:
    """Record what an event matched; returns the endpoint of each new delivery.

    An event that ends a version ends waiting deliveries, too.
    """
    if not fresh and event.type == "CREATE":
        return []
    return matching.record(tx, fresh, event, request_id=claim.request_id)


def match_batch(stores: Stores, claims: Sequence[Claim], beat: Beat) -> Completed:
    """Match several events with the jmespath subscriptions."""
    return _tell_batch(stores, claims, beat, JMESPATH)


def percolate_batch(stores: Stores, claims: Sequence[Claim], beat: Beat) -> Completed:
    """Match several events with the elasticsearch subscriptions."""
    return _tell_batch(stores, claims, beat, ELASTICSEARCH)


def _tell_batch(
    stores: Stores, claims: Sequence[Claim], beat: Beat, kind: SubscriptionType
) -> Completed:
    """Those events of which all deliveries fit into one transaction, together."""
    claimed = {claim.todo.ref: claim for claim in claims}
    with stores.catalog.read() as tx:
        found = events.among(tx, list(claimed))
        stored = matching.known(stores.catalog, tx, flow.replica_of(claims[0].todo), kind)
    fresh = _few(stores, found, stored, beat) if stored else [(event, []) for event in found]
    done = [claimed[event.id] for event, _ in fresh]
    if not done:
        return {}
    with stores.catalog.write() as tx:
        if any(deliveries or event.type != "CREATE" for event, deliveries in fresh):
            heads.lock(tx, "bundle", [event.fqid.uuid for event, _ in fresh])
        recorded = [_record(tx, told, event, claimed[event.id]) for event, told in fresh]
        todo.finish_all(tx, done)
    receivers = flow.deliver_to(ident for idents in recorded for ident in idents)
    # One message for each endpoint, whichever events it is told.
    return {**{claim.todo: () for claim in done}, done[-1].todo: receivers}


def _few(
    stores: Stores, found: Iterable[Event], stored: matching.Questions, beat: Beat
) -> list[tuple[Event, list[NewDelivery]]]:
    """Events and their deliveries, as far as there is time and room for them."""
    fresh: list[tuple[Event, list[NewDelivery]]] = []
    deadline, room = time.monotonic() + TOGETHER_S, BATCH
    for event in found:
        try:
            told, is_last = next(batches(_evaluate(stores, event, stored, beat)))
        except Exception as error:
            log.debug("event %s leaves its batch: %s", event.id, error)
            continue
        if is_last and len(told) <= room:
            fresh.append((event, told))
            room -= len(told)
        if time.monotonic() > deadline:
            break
    return fresh


def batches(found: Iterable[NewDelivery]) -> Iterator[tuple[list[NewDelivery], bool]]:
    """Bounded lists of them, and whether that was the last; the last may be empty."""
    batch, characters = list[NewDelivery](), 0
    for delivery in found:
        if len(batch) == BATCH or characters > BATCH_CHARACTERS:
            yield batch, False
            batch, characters = [], 0
        batch.append(delivery)
        characters += len(delivery.payload)
    yield batch, True


def _evaluate(
    stores: Stores, event: Event, stored: matching.Questions, beat: Beat
) -> Iterator[NewDelivery]:
    with loading.document(stores, event.replica, event.bundle_id, beat) as document:
        yield from matching.evaluate(
            stored,
            event,
            document,
            base_url=stores.base_url,
            steps=stores.query_steps,
            beat=lambda _one: beat(0),
        )
