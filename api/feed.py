"""The live feed over HTTP: what happens, once and in order, by waiting requests or as a stream."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flask import Response

from api import streaming
from api.errors import answer
from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url
from api.schemas.events import Feed, FollowEvents, FollowEventsQuery
from pipelines import topics
from pipelines.notifying import events_feed
from pipelines.notifying.events_feed import Renumbered, Seen
from storage.catalog.feeds import Numbered

NO_STORE = {"Cache-Control": "no-store"}
STREAMED_OR_NOT = ["application/json", streaming.MIMETYPE]


@operation(
    "GET",
    "/events/feed",
    tag="events",
    query=FollowEventsQuery,
    answers={200: Answer("What is new; empty when nothing was in time.", Feed)},
    errors=(503,),
    about="Waits for something new, for as long as the header `Prefer: wait=<seconds>` says. With"
    " `Accept: text/event-stream` a stream of Server-Sent Events: the id of each is the cursor"
    " after it, and the header `Last-Event-ID` wins over `after`; a stream ends after a while, to"
    " be asked for again. Every event comes once, in order, whoever is restarted meanwhile.",
)
def get_events_feed(call: Call[FollowEvents, None]) -> Response:
    """Follow what happens."""
    streamed = call.request.accept_mimetypes.best_match(STREAMED_OR_NOT) == streaming.MIMETYPE
    try:
        return (_streamed if streamed else _waited)(call)
    except Renumbered as error:
        return _restored(call, error)


def _waited(call: Call[FollowEvents, None]) -> Response:
    """What is new, once there is anything; who only asks for the head does not wait."""
    query, seen = call.query, _seen(call, call.query.after)
    found = call.services.waiting.until(
        lambda: events_feed.since(call.stores, query.replica, seen, query.per_page),
        bool,
        client=call.client,
        topics=[topics.EVENTS],
        within_s=0 if call.headed else call.wait_s(call.services.settings.wait_s),
        repeated=True,
    )
    last = _told_of(seen, found[-1]) if found else seen
    told = {"events": [_told(call, one) for one in found], "cursor": _cursor(call, last)}
    return reply(told, 200, NO_STORE)


def _scope(call: Call[FollowEvents, None]) -> tuple[str, ...]:
    return "get_events_feed", call.query.replica


def _cursor(call: Call[FollowEvents, None], seen: Seen) -> str:
    return call.services.cursors.seal(_scope(call), [seen.numbering, str(seen.seq), str(seen.us)])


def _seen(call: Call[FollowEvents, None], pointer: str | None, parameter: str = "after") -> Seen:
    """How far the reader is, by its cursor."""
    if pointer is None:
        return events_feed.latest(call.stores, call.query.replica)
    if not pointer:
        return events_feed.beginning(call.stores)
    position = call.services.cursors.open(_scope(call), pointer, parameter=parameter)
    numbering, seq, us = position
    return Seen(numbering, int(seq), int(us))


def _told_of(seen: Seen, one: Numbered) -> Seen:
    """How far the reader is with this event."""
    return Seen(seen.numbering, one.seq, one.seq_us)


def _told(call: Call[FollowEvents, None], numbered: Numbered) -> dict[str, Any]:
    told = events_feed.shown(numbered)
    asked = f"version={told['bundle_version']}&replica={told['replica']}"
    return told | {"bundle_url": f"{call.base}/v1/bundles/{told['bundle_uuid']}?{asked}"}


def _restored(call: Call[FollowEvents, None], error: Renumbered) -> Response:
    """Where to go on is said, and not done: the reader is to know that events may come again."""
    said = (
        f"{error.detail} Go on with the URL of the header Link: nothing is missed then, and what"
        " comes again has the event_id that it had."
    )
    response = answer(400, error.code, said, {"after": [said]})
    if error.certain is not None:
        url = next_url(call.request, call.base, {"after": _cursor(call, error.certain)})
        response.headers["Link"] = f'<{url}>; rel="next"'
    return response


def _streamed(call: Call[FollowEvents, None]) -> Response:
    query, settings = call.query, call.services.settings
    last = call.request.headers.get("Last-Event-ID")
    begun = _seen(call, last, "Last-Event-ID") if last else _seen(call, query.after)
    # Before anything is said: a stream that has begun has no other status.
    events_feed.since(call.stores, query.replica, begun, 1)
    if call.headed:
        return Response(mimetype=streaming.MIMETYPE, headers=NO_STORE)

    def since(seq: int) -> Iterator[streaming.Message]:
        seen = replace(begun, seq=seq)
        for one in events_feed.since(call.stores, query.replica, seen, query.per_page):
            cursor = _cursor(call, _told_of(begun, one))
            yield streaming.Message(one.seq, cursor, _told(call, one))

    return call.services.streams.respond(
        since,
        client=call.client,
        start=streaming.Message(begun.seq, _cursor(call, begun), None),
        topic=topics.EVENTS,
        life_s=settings.feed_life_s,
        heartbeat_s=settings.feed_heartbeat_s,
    )


OPERATIONS: tuple[Operation, ...] = (get_events_feed,)
