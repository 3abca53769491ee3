"""The steps MATCH and PERCOLATE: an event meets the stored queries of its replica."""

from collections.abc import Iterable, Iterator

from pipelines import flow, topics
from pipelines.finding import loading
from pipelines.keeping.copying import Beat
from pipelines.queries import matching
from storage.catalog import events, todo
from storage.catalog.deliveries import NewDelivery
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, SubscriptionType
from storage.errors import NotFound
from storage.model import Claim, Event, Todo
from storage.stores import Stores

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
    recorded = 0
    for batch, is_last in batches(_evaluate(stores, event, stored, beat) if stored else ()):
        with stores.catalog.write() as tx:
            recorded += matching.record(tx, batch, event, request_id=claim.request_id)
            if is_last:
                todo.finish(tx, claim)
    if recorded:
        stores.notices.publish(topics.DELIVERIES)
    return ()


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
