"""Events over HTTP: windows of journals, the live feed, one event's document, replays."""

from typing import Any

import orjson
from flask import Response

from api.bundles import absolute
from api.errors import answer
from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.replication import SERVED, served_by
from api.schemas.common import InReplica, InReplicaQuery
from api.schemas.events import (
    EventDocument,
    EventList,
    ListEvents,
    ListEventsQuery,
    ReadEvent,
    ReadEventQuery,
    ReplayAnswer,
    ReplayBody,
    ReplayWindow,
)
from pipelines import formats
from pipelines.formats import version_at
from pipelines.keeping import records
from pipelines.notifying import events_feed, replay, subscriptions
from pipelines.notifying.events_feed import Place, Renumbered, Stream, Window
from storage.catalog.feeds import Numbered
from storage.catalog.replays import Replay
from storage.catalog.subscriptions import Subscription
from storage.errors import Invalid
from storage.model import FQID, Replica

TAG = "events"


@operation(
    "GET",
    "/events",
    tag=TAG,
    query=ListEventsQuery,
    answers={
        200: Answer("The last page.", EventList, SERVED),
        206: Answer("A page.", EventList, SERVED),
    },
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
    place = _place(call, scope)
    try:
        found, further = events_feed.streams(
            call.stores, query.replica, window, place, query.per_page
        )
    except Renumbered as error:
        said = f"{error.detail} Begin again, without a token."
        return answer(400, error.code, said, {"token": [said]})
    served = [events_feed.serving(call.stores, one.journal) for one in found]
    shown = [_stream(call, *each) for each in zip(served, found, strict=True)]
    instead = next((name for name in served if name != query.replica), query.replica)
    response = reply({"event_streams": shown}, 200, served_by(query.replica, instead))
    return paged(response, "event_streams", _next(call, scope, further) if further else None)


def _window(from_date: str | None, to_date: str | None) -> Window:
    if from_date is not None and to_date is not None and from_date > to_date:
        said = "from_date is later than to_date"
        raise Invalid(said, code="illegal_version", errors={"from_date": [said]})
    return Window(from_date, to_date)


def _place(call: Call[ListEvents, None], scope: tuple[str, ...]) -> Place | None:
    if call.query.token is None:
        return None
    position = call.services.cursors.open(scope, call.query.token, parameter="token")
    numbering, first, until = position
    return Place(numbering, int(first), int(until))


def _next(call: Call[ListEvents, None], scope: tuple[str, ...], place: Place) -> str:
    position = [place.numbering, str(place.first), str(place.until)]
    pointer = call.services.cursors.seal(scope, position)
    return next_url(call.request, call.base, {"token": pointer})


def _stream(call: Call[ListEvents, None], bucket: Replica, one: Stream) -> dict[str, Any]:
    expires_s = call.services.settings.signed_url_s
    url = events_feed.stream_url(call.stores, bucket, one.journal, expires_s=expires_s)
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
        "bundle_uuid": numbered.event.fqid.uuid,
        "bundle_version": numbered.event.fqid.version,
        "timestamp": version_at(numbered.seq_us),
        "offset": numbered.offset,
        "size": numbered.size,
    }


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
    text = events_feed.document(call.stores, call.query.replica, fqid)
    return reply(orjson.Fragment(text))


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
    get_event,
    replay_subscription,
    get_replay,
)
