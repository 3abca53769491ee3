"""Subscriptions and their deliveries: what their operations take and answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from marshmallow import RAISE, Schema, fields, validate

from api.schemas.common import Shown
from api.schemas.fields import (
    JsonObject,
    Text,
    Uuid,
    Version,
    at_most,
    at_version,
    in_replica,
    page_pointer,
    page_size,
)
from api.schemas.loading import Body, Query
from pipelines.notifying.addresses import MAX_URL
from pipelines.queries.jmes import MAX_SOURCE_BYTES
from storage.catalog.deliveries import TEST, State
from storage.catalog.subscriptions import Standing, SubscriptionType
from storage.model import EventType, Replica

TYPES: tuple[SubscriptionType, ...] = get_args(SubscriptionType)
STATES: tuple[State, ...] = get_args(State)
STANDINGS: tuple[Standing, ...] = get_args(Standing)
EVENTS = (*get_args(EventType), TEST)
EXAMPLE_TIME = "2026-01-31T235959.000000Z"
PAGE_DELIVERIES = 100
KEY_ID, FIELD_NAME = 256, 256
"""Characters of the id of a signing key, of a form field's or an attachment's name."""
FIELDS = 100
"""Form fields, and attachments, of one subscription."""
_FEW = validate.Length(max=FIELDS, error=f"At most {FIELDS} members.")


def _kind() -> Text:
    return Text(
        load_default="jmespath",
        validate=validate.OneOf(TYPES, error="Must be one of: elasticsearch, jmespath."),
        metadata={"description": "The type of subscription."},
    )


def secret_key(**given: Any) -> Text:
    """What signs deliveries."""
    return Text(
        validate=validate.Length(1, 1024, error="Must have 1 to 1024 characters."),
        metadata={"description": "Signs deliveries; never answered."},
        **given,
    )


def key_id(about: str = "Names the signing key to receivers.") -> Text:
    """Which key signs deliveries, as it is named in their header."""
    return Text(load_default=None, validate=at_most(KEY_ID), metadata={"description": about})


def moment(about: str, **given: Any) -> Version:
    """A time, spelled as versions are."""
    return at_version(metadata={"description": about, "example": EXAMPLE_TIME}, **given)


@dataclass(frozen=True)
class OfType:
    """Which subscriptions are meant."""

    replica: Replica
    subscription_type: SubscriptionType


class OfTypeQuery(Query):
    """Parameters of subscription operations."""

    model = OfType
    replica = in_replica()
    subscription_type = _kind()


class Attachment(Schema):
    """A value computed from the metadata and sent along."""

    class Meta:
        unknown = RAISE

    type = Text(required=True, validate=validate.OneOf(["jmespath"], error="Must be jmespath."))
    expression = Text(required=True, metadata={"maxLength": MAX_SOURCE_BYTES})


@dataclass(frozen=True)
class SubscriptionContent:
    """The body of put_subscription."""

    callback_url: str
    es_query: Mapping[str, Any] | None
    jmespath_query: str | None
    method: str
    encoding: str
    form_fields: Mapping[str, str]
    payload_form_field: str
    hmac_key_id: str | None
    hmac_secret_key: str | None = field(repr=False)
    attachments: Mapping[str, Mapping[str, str]] | None


class SubscriptionBody(Body):
    """Whom to tell of which bundles, and how."""

    model: ClassVar[type[Any]] = SubscriptionContent
    callback_url = Text(
        required=True,
        metadata={"example": "https://pipeline.example/notify", "maxLength": MAX_URL},
    )
    es_query = JsonObject(
        load_default=None,
        metadata={"description": "Present: of type elasticsearch; an empty one matches all."},
    )
    jmespath_query = Text(
        load_default=None,
        metadata={"example": "event_type == 'CREATE'", "maxLength": MAX_SOURCE_BYTES},
    )
    method = Text(
        load_default="POST", validate=validate.OneOf(["POST", "PUT"], error="Must be POST or PUT.")
    )
    encoding = Text(
        load_default="application/json",
        validate=validate.OneOf(
            ["application/json", "multipart/form-data"],
            error="Must be application/json or multipart/form-data.",
        ),
    )
    form_fields = fields.Dict(
        keys=Text(validate=at_most(FIELD_NAME)), values=Text(), load_default=dict, validate=_FEW
    )
    payload_form_field = Text(
        load_default="payload",
        validate=validate.Length(1, FIELD_NAME, error=f"Must have 1 to {FIELD_NAME} characters."),
    )
    hmac_key_id = key_id()
    hmac_secret_key = secret_key(load_default=None)
    attachments = fields.Dict(
        keys=Text(validate=at_most(FIELD_NAME)),
        values=fields.Nested(Attachment),
        load_default=None,
        validate=_FEW,
        metadata={"description": "Names, which must not start with an underscore, to expressions."},
    )


class SubscriptionAnswer(Shown):
    """A subscription; its secret is never shown."""

    uuid = Uuid(required=True)
    owner = fields.String(required=True)
    callback_url = fields.String(required=True)
    replica = in_replica(required=True)
    subscription_type = fields.String(required=True, validate=validate.OneOf(TYPES))
    method = fields.String(required=True)
    encoding = fields.String(required=True)
    form_fields = JsonObject(required=True)
    payload_form_field = fields.String(required=True)
    es_query = JsonObject()
    jmespath_query = fields.String()
    hmac_key_id = fields.String()
    hmac_previous_until = fields.String(
        metadata={"description": "Until when the former secret signs too."}
    )
    attachments = JsonObject()
    state = fields.String(
        required=True,
        validate=validate.OneOf(STANDINGS),
        metadata={"description": "Only an active one is sent anything but tests."},
    )
    state_since = fields.String(metadata={"description": "Since when it is not active."})
    state_reason = fields.String(metadata={"description": "Why it is disabled."})
    failing_since = fields.String(
        metadata={"description": "The first of its failures since anything was delivered."}
    )


class SubscriptionList(Shown):
    """The caller's subscriptions."""

    subscriptions = fields.List(fields.Nested(SubscriptionAnswer), required=True)


class SubscriptionDeleted(Shown):
    """The answer of delete_subscription."""

    timeDeleted = fields.String(required=True)  # noqa: N815


@dataclass(frozen=True)
class ListDeliveries:
    """Which page of a subscription's deliveries."""

    replica: Replica
    state: State | None
    event_type: str | None
    bundle_uuid: str | None
    since: str | None
    until: str | None
    per_page: int
    search_after: str | None


class ListDeliveriesQuery(Query):
    """Parameters of get_deliveries."""

    model = ListDeliveries
    replica = in_replica()
    state = Text(
        load_default=None,
        validate=validate.OneOf(STATES, error=f"Must be one of: {', '.join(STATES)}."),
        metadata={"description": "Only those that stand so."},
    )
    event_type = Text(
        load_default=None,
        validate=validate.OneOf(EVENTS, error=f"Must be one of: {', '.join(EVENTS)}."),
        metadata={"description": "Only those that tell of such events."},
    )
    bundle_uuid = Uuid(
        load_default=None, metadata={"description": "Only those that tell of this bundle."}
    )
    since = moment("Recorded then or later.", load_default=None)
    until = moment("Recorded before then.", load_default=None)
    per_page = page_size(PAGE_DELIVERIES)
    search_after = page_pointer()


class Attempt(Shown):
    """One request to the receiver and what came of it."""

    number = fields.Integer(required=True)
    at = fields.String(required=True)
    seconds = fields.Float(required=True)
    status = fields.Integer(metadata={"description": "The receiver's status code."})
    error = fields.String()
    body = fields.String(metadata={"description": "The receiver's answer, truncated."})


class DeliveryAnswer(Shown):
    """One event on its way to one subscriber."""

    id = Uuid(required=True)
    transaction_id = Uuid(required=True, metadata={"description": "The same, as receivers see it."})
    event_type = fields.String(required=True)
    bundle_uuid = Uuid(required=True)
    bundle_version = fields.String(required=True)
    state = fields.String(
        required=True,
        validate=validate.OneOf(STATES),
        metadata={"description": "What was given up is failed; what is tried again is pending."},
    )
    recorded = fields.String(
        required=True,
        metadata={"description": "When the event was matched, or the test asked for."},
    )
    attempts = fields.List(fields.Nested(Attempt), required=True)
    next_attempt = fields.String(
        metadata={"description": "Only while it is pending, and not held back by a pause."}
    )
    reason = fields.String(metadata={"description": "Why it stands as it does."})


class DeliveryList(Shown):
    """A page of deliveries, the latest first."""

    deliveries = fields.List(fields.Nested(DeliveryAnswer), required=True)
