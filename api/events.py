"""Event operations over HTTP: journals, live feed, event documents, replays; with their schemas."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

import orjson
from flask import Response
from marshmallow import fields, validate

from api.bundles import absolute_url
from api.http import waiting
from api.http.errors import error_response
from api.http.operation import ResponseDoc, StoreContext, json_response, operation, page_responses
from api.http.paging import next_page_url
from api.replication import SERVED_BY_DOC, served_by_header
from api.schemas.fields import (
    JsonObject,
    ReplicaParameters,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    describe_field,
    page_size_field,
    page_token_field,
    replica_field,
    version_field,
)
from api.subscriptions import find_own_subscription
from pipelines import events, flow, formats, records
from pipelines.events import (
    EventWindow,
    FeedPosition,
    JournalExcerpt,
    JournalPosition,
    SequenceReset,
)
from pipelines.formats import version_from_us
from pipelines.limits import PAGE_EVENTS, PAGE_EVENTS_MAX, PAGE_FEED
from storage.catalog.events import Replay, SequencedEvent
from storage.errors import Invalid
from storage.model import FQID, EventType, Replica

EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)


def _from_date_field() -> VersionField:
    about = "The earliest time, inclusive; by default the beginning."
    metadata = {"description": about, "example": "2026-01-01T000000.000000Z"}
    return version_field(load_default=None, metadata=metadata)


def _to_date_field() -> VersionField:
    about = "The latest time, exclusive; by default now."
    metadata = {"description": about, "example": "2026-02-01T000000.000000Z"}
    return version_field(load_default=None, metadata=metadata)


@dataclass(frozen=True)
class ListEvents:
    """Parameters of get_events."""

    replica: Annotated[Replica, replica_field()]
    from_date: Annotated[str | None, _from_date_field()]
    to_date: Annotated[str | None, _to_date_field()]
    per_page: Annotated[int, page_size_field(PAGE_EVENTS, most=PAGE_EVENTS_MAX)]
    token: Annotated[str | None, page_token_field()]


class JournalledEvent(ResponseSchema):
    """An event, with offset and size of its document in the journal at `stream_url`."""

    event_id = UuidField(required=True)
    event_type = fields.String(required=True, validate=validate.OneOf(EVENT_TYPES))
    bundle_uuid = UuidField(required=True)
    bundle_version = VersionField(required=True)
    timestamp = fields.String(required=True)
    offset = fields.Integer(required=True)
    size = fields.Integer(required=True)


class EventStream(ResponseSchema):
    """A journal of event documents, one per line, and its events in the window."""

    journal_id = fields.String(required=True)
    from_date = fields.String(required=True)
    to_date = fields.String(required=True)
    size = fields.Integer(required=True, metadata=describe_field("Size of the journal in bytes."))
    stream_url = fields.String(required=True)
    events = fields.List(fields.Nested(JournalledEvent), required=True)


class EventList(ResponseSchema):
    """A page of journals, in order."""

    event_streams = fields.List(fields.Nested(EventStream), required=True)


@dataclass(frozen=True)
class ReadEvent:
    """Parameters of get_event."""

    replica: Annotated[Replica, replica_field()]
    version: Annotated[str, version_field(required=True)]


class EventDocument(ResponseSchema):
    """The metadata document of a bundle version."""

    event_type = fields.String(required=True)
    bundle_info = JsonObject(required=True)
    uuid = UuidField(required=True)
    manifest = JsonObject(required=True)
    files = JsonObject(required=True)
    shape_descriptor = fields.String(required=True)


@dataclass(frozen=True)
class FollowEvents:
    """Parameters of get_events_feed."""

    replica: Annotated[Replica, replica_field()]
    after: Annotated[
        str | None,
        TextField(
            load_default=None,
            metadata=describe_field(
                "The `cursor` of an earlier response. If empty, the feed starts at"
                " the first event; if absent, it starts now."
            ),
        ),
    ]
    per_page: Annotated[int, page_size_field(PAGE_FEED)]
    from_date: Annotated[
        str | None,
        version_field(
            load_default=None,
            metadata=describe_field(
                "Without `after`, the feed starts at the first event at this time or later."
            ),
        ),
    ]


class FeedEvent(ResponseSchema):
    """An event of the live feed."""

    event_id = UuidField(required=True)
    event_type = fields.String(required=True, validate=validate.OneOf(EVENT_TYPES))
    timestamp = fields.String(required=True)
    replica = replica_field()
    bundle_uuid = UuidField(required=True)
    bundle_version = VersionField(required=True)
    bundle_url = fields.String(required=True)


class Feed(ResponseSchema):
    """New events, and the cursor after them."""

    events = fields.List(fields.Nested(FeedEvent), required=True)
    cursor = fields.String(required=True)


@dataclass(frozen=True)
class ReplayBody:
    """A time window from `from_date`, inclusive, to `to_date`, exclusive."""

    from_date: Annotated[str | None, _from_date_field()]
    to_date: Annotated[str | None, _to_date_field()]


class ReplayAnswer(ResponseSchema):
    """A replay and its progress."""

    replay_id = UuidField(required=True)
    state = fields.String(required=True, validate=validate.OneOf(["RUNNING", "SUCCEEDED"]))
    events_left = fields.Integer(
        required=True, metadata=describe_field("Events not processed yet.")
    )
    deliveries = fields.Integer(
        required=True, metadata=describe_field("Deliveries created so far.")
    )


TAG = "events"


@operation(
    "GET",
    "/events",
    may_lag=True,
    tag=TAG,
    query=ListEvents,
    responses=page_responses(EventList, SERVED_BY_DOC),
    paged="event_streams",
    description="Lists journals with events of the window, in commit order. The URL `stream_url`,"
    " which supports `Range`, holds the document of each event, one per line. `events` lists those"
    " of the window with their offsets. New events are listed within seconds.",
)
def get_events(context: StoreContext[ListEvents, None]) -> Response:
    """List journals of events."""
    query = context.query
    window = _check_window(query.from_date, query.to_date)
    scope = ("get_events", query.replica, query.from_date or "", query.to_date or "")
    position = context.open_cursor(scope, query.token, "token")
    start = None
    if position:
        start = JournalPosition(position[0], int(position[1]), int(position[2]))
    try:
        excerpts, following = events.list_journal_excerpts(
            context.stores, query.replica, window, start, query.per_page
        )
    except SequenceReset as error:
        message = f"{error.detail} Start again without a token."
        return error_response(400, error.code, message, {"token": [message]})
    served = [events.choose_bucket(context.stores, excerpt.journal) for excerpt in excerpts]
    other = next((name for name in served if name != query.replica), query.replica)
    streams = [_format_stream(context, *pair) for pair in zip(served, excerpts, strict=True)]
    last = [following.sequence, str(following.first), str(following.until)] if following else None
    return context.page_response(
        {"event_streams": streams},
        "event_streams",
        scope=scope,
        last=last,
        parameter="token",
        headers=served_by_header(query.replica, other),
    )


def _check_window(from_date: str | None, to_date: str | None) -> EventWindow:
    if from_date is not None and to_date is not None and from_date > to_date:
        message = f"from_date: must not be later than to_date ({to_date})"
        raise Invalid(message, code="illegal_version", errors={"from_date": [message]})
    return EventWindow(from_date, to_date)


def _format_stream(
    context: StoreContext[ListEvents, None], bucket: Replica, excerpt: JournalExcerpt
) -> dict[str, Any]:
    journal, first, last = excerpt.journal, excerpt.events[0], excerpt.events[-1]
    expires_s = context.services.settings.signed_url_s
    url = events.sign_journal_url(context.stores, bucket, journal, expires_s=expires_s)
    return {
        "journal_id": journal.key.name,
        "from_date": version_from_us(first.seq_us),
        # Exclusive, as the end of a window is.
        "to_date": version_from_us(last.seq_us + 1),
        "size": journal.size,
        "stream_url": absolute_url(context, url),
        "events": [_format_event(event) for event in excerpt.events],
    }


def _format_event(row: SequencedEvent) -> dict[str, Any]:
    return {
        "event_id": row.event.id,
        "event_type": row.event.type,
        "bundle_uuid": row.event.fqid.uuid,
        "bundle_version": row.event.fqid.version,
        "timestamp": version_from_us(row.seq_us),
        "offset": row.offset,
        "size": row.size,
    }


@operation(
    "GET",
    "/events/{uuid}",
    tag=TAG,
    query=ReadEvent,
    responses={200: ResponseDoc("The document.", EventDocument)},
    errors=(404,),
    description="A deleted bundle keeps its document until it is purged.",
)
def get_event(context: StoreContext[ReadEvent, None]) -> Response:
    """Read the metadata document of a bundle version."""
    fqid = FQID(context.uuid, context.query.version)
    text = events.load_event_document(context.stores, context.query.replica, fqid)
    return json_response(orjson.Fragment(text))


@operation(
    "POST",
    "/subscriptions/{uuid}/replay",
    tag="subscriptions",
    query=ReplicaParameters,
    body=ReplayBody,
    responses={202: ResponseDoc("The replay has started.", ReplayAnswer)},
    errors=(404, 409),
    body_optional=True,
    description="Delivers the events of the window that match the subscription again, including"
    " those from before it was created, each as a new delivery. With an `Idempotency-Key`, a"
    " repeated request starts nothing new.",
)
def replay_subscription(context: StoreContext[ReplicaParameters, ReplayBody]) -> Response:
    """Deliver the events of a time window again."""
    subscription, body = find_own_subscription(context), context.body
    window = _check_window(body.from_date, body.to_date)
    digest = records.request_digest(["replay", subscription.uuid, window.from_date, window.to_date])
    replay, jobs = events.request_replay(
        context.stores,
        subscription,
        window,
        ident=formats.new_uuid(),
        repeatable=context.parse_idempotency_key(digest),
        request_id=context.request_id,
    )
    context.send(jobs)
    return json_response(_format_replay(replay), 202)


@operation(
    "GET",
    "/subscriptions/{uuid}/replays/{id}",
    tag="subscriptions",
    query=ReplicaParameters,
    responses={200: ResponseDoc("The replay.", ReplayAnswer)},
    errors=(404,),
)
def get_replay(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Show the progress of a replay."""
    subscription = find_own_subscription(context)
    return json_response(
        _format_replay(events.find_replay(context.stores, subscription, context.path["id"]))
    )


def _format_replay(replay: Replay) -> dict[str, Any]:
    ended = replay.finished_us is not None
    return {
        "replay_id": replay.id,
        "state": "SUCCEEDED" if ended else "RUNNING",
        "events_left": 0 if ended else replay.end_seq - replay.next_seq,
        "deliveries": replay.deliveries,
    }


NO_STORE = {"Cache-Control": "no-store"}
FEED_TYPES = ["application/json", waiting.EVENT_STREAM_TYPE]


@operation(
    "GET",
    "/events/feed",
    tag=TAG,
    query=FollowEvents,
    responses={200: ResponseDoc("New events; none if the wait timed out.", Feed)},
    errors=(503,),
    description="Waits for new events, as long as `Prefer: wait=<seconds>` says. With"
    " `Accept: text/event-stream` it answers with Server-Sent Events. The id of each is the cursor"
    " after it; the header `Last-Event-ID` takes precedence over `after`. A stream ends after a"
    " while, and the client reconnects. Every event comes once, in order, across restarts.",
)
def get_events_feed(context: StoreContext[FollowEvents, None]) -> Response:
    """Follow new events."""
    streamed = context.request.accept_mimetypes.best_match(FEED_TYPES) == waiting.EVENT_STREAM_TYPE
    try:
        return (_stream_events if streamed else _poll_events)(context)
    except SequenceReset as error:
        return _restart_response(context, error)


def _poll_events(context: StoreContext[FollowEvents, None]) -> Response:
    """Return the events after the cursor; a GET waits for the first of them."""
    query, position = context.query, _decode_cursor(context, context.query.after)
    rows = context.services.waiting.wait_until(
        lambda: events.list_events_since(context.stores, query.replica, position, query.per_page),
        bool,
        client=context.client,
        topics=[flow.EVENTS_TOPIC],
        within_s=0 if context.is_head else context.wait_s(context.services.settings.wait_s),
        polling=True,
    )
    content = {
        "events": [_format_feed_event(context, row) for row in rows],
        "cursor": _encode_cursor(context, _advance(position, rows[-1]) if rows else position),
    }
    return json_response(content, 200, NO_STORE)


def _feed_scope(context: StoreContext[FollowEvents, None]) -> tuple[str, ...]:
    return "get_events_feed", context.query.replica


def _encode_cursor(context: StoreContext[FollowEvents, None], position: FeedPosition) -> str:
    parts = [position.sequence, str(position.seq), str(position.us)]
    return context.services.cursors.seal(_feed_scope(context), parts)


def _decode_cursor(
    context: StoreContext[FollowEvents, None], cursor: str | None, parameter: str = "after"
) -> FeedPosition:
    """Return the position of a cursor: an empty one is the beginning of the feed.

    None is the position of `from_date`, or else the end.
    """
    if cursor is None and context.query.from_date is not None:
        return events.position_at(context.stores, context.query.replica, context.query.from_date)
    if cursor is None:
        return events.latest_position(context.stores, context.query.replica)
    if not cursor:
        return events.first_position(context.stores)
    sequence, seq, us = context.services.cursors.open(
        _feed_scope(context), cursor, parameter=parameter
    )
    return FeedPosition(sequence, int(seq), int(us))


def _advance(position: FeedPosition, row: SequencedEvent) -> FeedPosition:
    return FeedPosition(position.sequence, row.seq, row.seq_us)


def _format_feed_event(
    context: StoreContext[FollowEvents, None], row: SequencedEvent
) -> dict[str, Any]:
    event = events.format_event(row)
    query = f"version={event['bundle_version']}&replica={event['replica']}"
    return event | {"bundle_url": f"{context.base}/v1/bundles/{event['bundle_uuid']}?{query}"}


def _restart_response(context: StoreContext[FollowEvents, None], error: SequenceReset) -> Response:
    """Refuse an old cursor, and link to the restart: the client must know that events repeat."""
    message = (
        f"{error.detail} Continue with the URL of the Link header: no event is missed, and repeated"
        " events keep their event_id."
    )
    response = error_response(400, error.code, message, {"after": [message]})
    if error.safe_position is not None:
        cursor = _encode_cursor(context, error.safe_position)
        url = next_page_url(context.request, context.base, {"after": cursor})
        response.headers["Link"] = f'<{url}>; rel="next"'
    return response


def _stream_events(context: StoreContext[FollowEvents, None]) -> Response:
    query = context.query
    last_id = context.request.headers.get("Last-Event-ID")
    if last_id:
        start = _decode_cursor(context, last_id, "Last-Event-ID")
    else:
        start = _decode_cursor(context, query.after)
    # Raises before the stream has sent its status.
    events.list_events_since(context.stores, query.replica, start, 1)
    if context.is_head:
        return Response(mimetype=waiting.EVENT_STREAM_TYPE, headers=NO_STORE)

    def read_since(seq: int) -> Iterator[waiting.StreamMessage]:
        position = replace(start, seq=seq)
        rows = events.list_events_since(context.stores, query.replica, position, query.per_page)
        for row in rows:
            cursor = _encode_cursor(context, _advance(start, row))
            yield waiting.StreamMessage(row.seq, cursor, _format_feed_event(context, row))

    return context.services.streams.respond(
        read_since,
        client=context.client,
        start=waiting.StreamMessage(start.seq, _encode_cursor(context, start), None),
        topics=[flow.EVENTS_TOPIC],
        environ=context.request.environ,
    )
