"""Replays: one subscription is told of a window of events once more, or for the first time.

What happened to a bundle before it was purged is not told any more; its DELETE is, by what is left.

Deliveries of a replay are made like those of matching, with ids of their own: an event told again
is another event to all that keeps deliveries apart, made of the replay and the event.
"""

import uuid as uuids
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import orjson

from pipelines import repeating
from pipelines.finding import loading
from pipelines.flow import Step, deliver_to
from pipelines.journalling import lines
from pipelines.keeping.copying import Beat
from pipelines.notifying import events_feed
from pipelines.notifying.events_feed import Window
from pipelines.queries import matching
from pipelines.queries.questions import Questions
from pipelines.repeating import Repeatable
from storage.catalog import (
    Tx,
    deliveries,
    events,
    feeds,
    heads,
    now_us,
    replays,
    subscriptions,
    todo,
)
from storage.catalog.deliveries import NewDelivery
from storage.catalog.replays import Replay
from storage.catalog.subscriptions import Subscription
from storage.errors import Conflict, NotFound
from storage.model import Claim, Event, Todo
from storage.stores import Stores

FORGOTTEN = 1_000
"""Replays that one look forgets."""
CHUNK = 50
"""Events of one claim: each may want a document of its own."""


def request(
    stores: Stores,
    own: Subscription,
    window: Window,
    *,
    ident: str,
    repeatable: Repeatable | None,
    request_id: str = "",
) -> tuple[Replay, tuple[Todo, ...]]:
    """Begin a replay of what is in the window now; the first one again for a repeated request.

    Conflict while another replay of the subscription goes on.
    """
    with stores.catalog.write() as tx:
        before = repeating.answered(tx, repeatable)
        if before is not None:
            ident = str(orjson.loads(before)["replay_id"])
            return _known(tx, ident), ()
        place = events_feed.numbers(tx, own.replica, window)
        if not replays.add(tx, ident, own.id, own.replica, first=place.first, end=place.until):
            raise Conflict("Another replay of this subscription goes on.", code="already_exists")
        repeating.remember(tx, repeatable, orjson.dumps({"replay_id": ident}).decode())
        follow = (Todo(Step.REPLAY, own.replica, ident),)
        todo.add(tx, follow, request_id=request_id)
        return _known(tx, ident), follow


def _known(tx: Tx, ident: str) -> Replay:
    found = replays.find(tx, ident)
    if found is None:
        raise NotFound("There is no such replay.")
    return found


def find(stores: Stores, own: Subscription, ident: str) -> Replay:
    """A replay of this subscription; NotFound."""
    with stores.catalog.read() as tx:
        found = _known(tx, ident)
    if found.subscription_id != own.id:
        raise NotFound("There is no such replay.")
    return found


def expire(stores: Stores, *, keep_s: float) -> None:
    """Forget replays that ended so long ago."""
    with stores.catalog.write() as tx:
        replays.expire(tx, now_us(tx) - int(keep_s * 1e6), limit=FORGOTTEN)


def replay(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Tell of the next few events, and record how far it came, as one."""
    with stores.catalog.read() as tx:
        one = _known(tx, claim.todo.ref)
        found = feeds.span(tx, one.replica, one.next_seq, one.end_seq, limit=CHUNK)
        gone = feeds.purged(tx, {each.event.fqid for each in found})
        asking = _live(tx, one)
    made = [
        (again, list(_evaluated(stores, asking, each.event, again, beat)))
        for each, again in ((each, _again(one, each.event)) for each in found)
        if asking is not None and (each.event.fqid not in gone or each.event.type == "DELETE")
    ]
    following = found[-1].seq + 1 if found else one.end_seq
    ended = asking is None or following >= one.end_seq
    follow = () if ended else (claim.todo,)
    with stores.catalog.write() as tx:
        # All of them, in order, before each is locked by itself.
        heads.lock(tx, "bundle", {again.fqid.uuid for again, _ in made})
        receivers = [each for again, fresh in made for each in _record(tx, again, fresh, claim)]
        replays.advance(tx, one, following, deliveries=len(receivers))
        if ended:
            replays.finish(tx, one)
        todo.finish(tx, claim)
        todo.add(tx, follow, request_id=claim.request_id)
    return (*follow, *deliver_to(receivers))


def _live(tx: Tx, one: Replay) -> Questions | None:
    """The subscription's query, asked about events before its time too; None when it was ended."""
    found = subscriptions.by_ids(tx, [one.subscription_id])
    if not found or subscriptions.find(tx, found[0].uuid) is None:
        return None
    return Questions([replace(found[0], created_us=0)])


def _again(one: Replay, event: Event) -> Event:
    """The event as this replay tells it: the same in all but its id."""
    ident = uuids.uuid5(events.NAMESPACE, f"replay/{one.id}/{event.id}")
    return replace(event, id=str(ident))


def _evaluated(
    stores: Stores, asking: Questions, event: Event, again: Event, beat: Beat
) -> Iterator[NewDelivery]:
    loaded = (
        nullcontext(lines.about(event))
        if event.type == "DELETE"
        else loading.document(stores, event.replica, event.bundle_id, beat)
    )
    with loaded as document:
        yield from matching.evaluate(
            asking,
            again,
            document,
            base_url=stores.base_url,
            steps=stores.query_steps,
            beat=lambda _one: beat(0),
        )


def _record(tx: Tx, again: Event, fresh: list[NewDelivery], claim: Claim) -> list[int]:
    return deliveries.record(tx, fresh, again, request_id=claim.request_id) if fresh else []
