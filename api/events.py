"""Events over HTTP: windows of journals, the live feed, one event's document, replays."""

from collections.abc import Iterator
from typing import Any

from flask import Response

from api import streaming
from api.bundles import absolute
from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.schemas.common import InReplica, InReplicaQuery
from api.schemas.events import (
    EventDocument,
    EventList,
    Feed,
    FollowEvents,
    FollowEventsQuery,
    ListEvents,
    ListEventsQuery,
    ReadEvent,
    ReadEventQuery,
    ReplayAnswer,
    ReplayBody,
    ReplayWindow,
)
from pipelines import events_feed, formats, records, replay, subscriptions, topics
from pipelines.events_feed import Place, Stream, Window
from pipelines.formats import version_at
from storage.catalog.feeds import Numbered
from storage.catalog.replays import Replay
from storage.catalog.subscriptions import Subscription
from storage.errors import Invalid
from storage.model import FQID

TAG = "events"
NO_STORE = {"Cache-Control": "no-store"}


@operation(
    "GET",
    "/events",
    tag=TAG,
    query=ListEventsQuery,
    answers={200: Answer("The last page.", EventList), 206: Answer("A page.", EventList)},
    paged="event_streams",
    about="Journals with events of the window, in the order in which they became known. Behind a"
    " `stream_url`, which honours `Range`, lies the document of each event, one a line; `events`"
    " has those of the window with their places in it. What is new is listed within seconds.",
)
def get_events(call: Call[ListEvents, None]) -> Response:
    """List what happened."""
    query = call.query
    window = _window(query.from_date, query.to_date)
    scope = ("get_events", query.replica, query.from_date or "", query.to_date or "")
    found, further = events_feed.streams(
        call.stores, query.replica, window, _place(call, scope), query.per_page
    )
    response = reply({"event_streams": [_stream(call, one) for one in found]})
    return paged(response, "event_streams", _next(call, scope, further) if further else None)


def _window(from_date: str | None, to_date: str | None) -> Window:
    if from_date is not None and to_date is not None and from_date > to_date:
        said = "from_date is later than to_date"
        raise Invalid(said, code="illegal_version", errors={"from_date": [said]})
    return Window(from_date, to_date)


def _place(call: Call[ListEvents, None], scope: tuple[str, ...]) -> Place | None:
    if call.query.token is None:
        return None
    first, until = call.services.cursors.open(scope, call.query.token, parameter="token")
    return Place(int(first), int(until))


def _next(call: Call[ListEvents, None], scope: tuple[str, ...], place: Place) -> str:
    pointer = call.services.cursors.seal(scope, [str(place.first), str(place.until)])
    return next_url(call.request, call.base, {"token": pointer})


def _stream(call: Call[ListEvents, None], one: Stream) -> dict[str, Any]:
    expires_s = call.services.settings.signed_url_s
    url = events_feed.stream_url(call.stores, one.journal, expires_s=expires_s)
    return {
        "journal_id": one.journal.key.name,
        "from_date": version_at(one.events[0].seq_us),
        # As in windows: this moment is not in it any more.
        "to_date": version_at(one.events[-1].seq_us + 1),
        "size": one.journal.size,
        "stream_url": absolute(call, url),
        "events": [_journalled(each) for each in one.events],
    }


def _journalled(numbered: Numbered) -> dict[str, Any]:
    return {
        "event_id": numbered.event.id,
        "event_type": numbered.event.type,
        "timestamp": version_at(numbered.seq_us),
        "offset": numbered.offset,
        "size": numbered.size,
    }


@operation(
    "GET",
    "/events/feed",
    tag=TAG,
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
    if call.request.accept_mimetypes.best_match(["application/json", streaming.MIMETYPE]) == (
        streaming.MIMETYPE
    ):
        return _streamed(call)
    query, after = call.query, _after(call, call.query.after)
    found = call.services.waiting.until(
        lambda: events_feed.since(call.stores, query.replica, after, query.per_page),
        bool,
        topics=[topics.EVENTS],
        within_s=call.wait_s(call.services.settings.wait_s),
    )
    cursor = _cursor(call, found[-1].seq if found else after)
    return reply({"events": [_told(call, one) for one in found], "cursor": cursor}, 200, NO_STORE)


def _scope(call: Call[FollowEvents, None]) -> tuple[str, ...]:
    return "get_events_feed", call.query.replica


def _cursor(call: Call[FollowEvents, None], seq: int) -> str:
    return call.services.cursors.seal(_scope(call), [str(seq)])


def _after(call: Call[FollowEvents, None], pointer: str | None) -> int:
    """The number that a cursor stands for."""
    if pointer is None:
        return events_feed.newest(call.stores, call.query.replica)
    if not pointer:
        return 0
    return int(call.services.cursors.open(_scope(call), pointer, parameter="after")[0])


def _told(call: Call[FollowEvents, None], numbered: Numbered) -> dict[str, Any]:
    told = events_feed.shown(numbered)
    asked = f"version={told['bundle_version']}&replica={told['replica']}"
    return told | {"bundle_url": f"{call.base}/v1/bundles/{told['bundle_uuid']}?{asked}"}


def _streamed(call: Call[FollowEvents, None]) -> Response:
    query, settings = call.query, call.services.settings
    after = _after(call, call.request.headers.get("Last-Event-ID") or query.after)

    def since(seq: int) -> Iterator[streaming.Message]:
        for one in events_feed.since(call.stores, query.replica, seq, query.per_page):
            yield streaming.Message(one.seq, _cursor(call, one.seq), _told(call, one))

    return call.services.streams.respond(
        since,
        start=streaming.Message(after, _cursor(call, after), None),
        topic=topics.EVENTS,
        life_s=settings.feed_life_s,
        heartbeat_s=settings.feed_heartbeat_s,
    )


@operation(
    "GET",
    "/events/{uuid}",
    tag=TAG,
    query=ReadEventQuery,
    answers={200: Answer("The document.", EventDocument)},
    errors=(404,),
    about="Of a deleted bundle, too, until it is removed for good.",
)
def get_event(call: Call[ReadEvent, None]) -> Response:
    """Read the metadata document of a bundle version."""
    fqid = FQID(call.uuid, call.query.version)
    return reply(events_feed.document(call.stores, call.query.replica, fqid))


@operation(
    "POST",
    "/subscriptions/{uuid}/replay",
    tag="subscriptions",
    query=InReplicaQuery,
    body=ReplayBody,
    answers={202: Answer("It has begun.", ReplayAnswer)},
    errors=(404, 409),
    body_optional=True,
    about="Events of the window that match the subscription are delivered once more, those from"
    " before it was made too. Each is a delivery of its own. A request with the header"
    " `Idempotency-Key` that comes again begins nothing.",
)
def replay_subscription(call: Call[InReplica, ReplayWindow]) -> Response:
    """Have a window of events delivered once more."""
    own, body = _own(call), call.body
    window = _window(body.from_date, body.to_date)
    digest = records.request_digest(["replay", own.uuid, window.from_date, window.to_date])
    one, follow = replay.request(
        call.stores,
        own,
        window,
        ident=formats.new_uuid(),
        repeatable=call.repeatable(digest),
        request_id=call.request_id,
    )
    call.send(follow)
    return reply(_replay(one), 202)


@operation(
    "GET",
    "/subscriptions/{uuid}/replays/{id}",
    tag="subscriptions",
    query=InReplicaQuery,
    answers={200: Answer("The replay.", ReplayAnswer)},
    errors=(404,),
)
def get_replay(call: Call[InReplica, None]) -> Response:
    """See how far a replay is."""
    return reply(_replay(replay.find(call.stores, _own(call), call.path["id"])))


def _own(call: Call[InReplica, Any]) -> Subscription:
    replica = call.query.replica
    return subscriptions.find(call.stores, call.uuid, call.who.email, replica=replica, kind=None)


def _replay(one: Replay) -> dict[str, Any]:
    ended = one.finished_us is not None
    return {
        "replay_id": one.id,
        "state": "SUCCEEDED" if ended else "RUNNING",
        "events_left": 0 if ended else one.end_seq - one.next_seq,
        "deliveries": one.deliveries,
    }


OPERATIONS: tuple[Operation, ...] = (
    get_events,
    get_events_feed,
    get_event,
    replay_subscription,
    get_replay,
)
