"""Events: what their operations take and answer."""

from dataclasses import dataclass
from typing import get_args

from marshmallow import fields, validate

from api.schemas.common import Shown
from api.schemas.fields import (
    JsonObject,
    Text,
    Uuid,
    Version,
    at_version,
    in_replica,
    page_pointer,
    page_size,
)
from api.schemas.loading import Body, Query
from pipelines.limits import PAGE_EVENTS, PAGE_EVENTS_MAX, PAGE_FEED
from storage.model import EventType, Replica

TYPES: tuple[EventType, ...] = get_args(EventType)


def _from_date() -> Version:
    about = "The earliest time that is meant; the beginning when it is absent."
    told = {"description": about, "example": "2026-01-01T000000.000000Z"}
    return at_version(load_default=None, metadata=told)


def _to_date() -> Version:
    about = "The time before which all is meant; now when it is absent."
    told = {"description": about, "example": "2026-02-01T000000.000000Z"}
    return at_version(load_default=None, metadata=told)


@dataclass(frozen=True)
class ListEvents:
    """Which page of which window."""

    replica: Replica
    from_date: str | None
    to_date: str | None
    per_page: int
    token: str | None


class ListEventsQuery(Query):
    """Parameters of get_events."""

    model = ListEvents
    replica = in_replica()
    from_date = _from_date()
    to_date = _to_date()
    per_page = page_size(PAGE_EVENTS, most=PAGE_EVENTS_MAX)
    token = page_pointer()


class JournalledEvent(Shown):
    """An event, and where its document lies in the bytes behind the journal's `stream_url`."""

    event_id = Uuid(required=True)
    event_type = fields.String(required=True, validate=validate.OneOf(TYPES))
    bundle_uuid = Uuid(required=True)
    bundle_version = fields.String(required=True)
    timestamp = fields.String(required=True)
    offset = fields.Integer(required=True)
    size = fields.Integer(required=True)


class EventStream(Shown):
    """A journal: documents of events, one a line, and which of them are in the window."""

    journal_id = fields.String(required=True)
    from_date = fields.String(required=True)
    to_date = fields.String(required=True)
    size = fields.Integer(required=True, metadata={"description": "Bytes behind `stream_url`."})
    stream_url = fields.String(required=True)
    events = fields.List(fields.Nested(JournalledEvent), required=True)


class EventList(Shown):
    """A page of journals, in order."""

    event_streams = fields.List(fields.Nested(EventStream), required=True)


@dataclass(frozen=True)
class ReadEvent:
    """Which version's document is wanted."""

    replica: Replica
    version: str


class ReadEventQuery(Query):
    """Parameters of get_event."""

    model = ReadEvent
    replica = in_replica()
    version = at_version(required=True)


class EventDocument(Shown):
    """The metadata document of a bundle version."""

    event_type = fields.String(required=True)
    bundle_info = JsonObject(required=True)
    uuid = Uuid(required=True)
    manifest = JsonObject(required=True)
    files = JsonObject(required=True)
    shape_descriptor = fields.String(required=True)


@dataclass(frozen=True)
class FollowEvents:
    """Where a reader of the live feed stands: None is now, empty the beginning."""

    replica: Replica
    after: str | None
    per_page: int


class FollowEventsQuery(Query):
    """Parameters of get_events_feed."""

    model = FollowEvents
    replica = in_replica()
    after = Text(
        load_default=None,
        metadata={
            "description": "The `cursor` of an earlier answer; empty: from the first event on;"
            " absent: from now on."
        },
    )
    per_page = page_size(PAGE_FEED)


class FeedEvent(Shown):
    """An event as the live feed tells it."""

    event_id = Uuid(required=True)
    event_type = fields.String(required=True, validate=validate.OneOf(TYPES))
    timestamp = fields.String(required=True)
    replica = fields.String(required=True)
    bundle_uuid = Uuid(required=True)
    bundle_version = fields.String(required=True)
    bundle_url = fields.String(required=True)


class Feed(Shown):
    """What is new, and what to ask for next."""

    events = fields.List(fields.Nested(FeedEvent), required=True)
    cursor = fields.String(required=True)


@dataclass(frozen=True)
class ReplayWindow:
    """The events that are to be told once more."""

    from_date: str | None
    to_date: str | None


class ReplayBody(Body):
    """A window of time: `from_date` is in it, `to_date` is not."""

    model = ReplayWindow
    from_date = _from_date()
    to_date = _to_date()


class ReplayAnswer(Shown):
    """A replay, and how far it is."""

    replay_id = Uuid(required=True)
    state = fields.String(required=True, validate=validate.OneOf(["RUNNING", "SUCCEEDED"]))
    events_left = fields.Integer(
        required=True, metadata={"description": "Events that were not looked at yet."}
    )
    deliveries = fields.Integer(required=True, metadata={"description": "Deliveries made so far."})
