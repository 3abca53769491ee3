"""Schemas of event operations."""

from dataclasses import dataclass
from typing import Annotated, get_args

from marshmallow import fields, validate

from api.schemas.fields import (
    JsonObject,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    page_size_field,
    page_token_field,
    replica_field,
    version_field,
)
from pipelines.limits import PAGE_EVENTS, PAGE_EVENTS_MAX, PAGE_FEED
from storage.model import EventType, Replica

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
    bundle_version = fields.String(required=True)
    timestamp = fields.String(required=True)
    offset = fields.Integer(required=True)
    size = fields.Integer(required=True)


class EventStream(ResponseSchema):
    """A journal of event documents, one per line, and its events in the window."""

    journal_id = fields.String(required=True)
    from_date = fields.String(required=True)
    to_date = fields.String(required=True)
    size = fields.Integer(required=True, metadata={"description": "Size of the journal in bytes."})
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
            metadata={
                "description": "The `cursor` of an earlier response. If empty, the feed starts at"
                " the first event; if absent, it starts now."
            },
        ),
    ]
    per_page: Annotated[int, page_size_field(PAGE_FEED)]


class FeedEvent(ResponseSchema):
    """An event of the live feed."""

    event_id = UuidField(required=True)
    event_type = fields.String(required=True, validate=validate.OneOf(EVENT_TYPES))
    timestamp = fields.String(required=True)
    replica = fields.String(required=True)
    bundle_uuid = UuidField(required=True)
    bundle_version = fields.String(required=True)
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
        required=True, metadata={"description": "Events not processed yet."}
    )
    deliveries = fields.Integer(
        required=True, metadata={"description": "Deliveries created so far."}
    )
