"""Schemas of subscriptions and dry runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

from marshmallow import fields, validate

from api.schemas.fields import (
    IntegerField,
    JsonObject,
    RequestSchema,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    describe_field,
    in_range,
    max_length,
    one_of,
    replica_field,
    text_length,
)
from pipelines.limits import DRY_RUN_BUNDLES_MAX, DRY_RUN_PAYLOADS_MAX
from pipelines.queries.bounded_jmespath import MAX_SOURCE_BYTES
from pipelines.ssrf_guard import MAX_URL_BYTES
from storage.catalog.subscriptions import SubscriptionState, SubscriptionType
from storage.model import Replica

SUBSCRIPTION_TYPES: tuple[SubscriptionType, ...] = get_args(SubscriptionType)
SUBSCRIPTION_STATES: tuple[SubscriptionState, ...] = get_args(SubscriptionState)
MAX_KEY_ID, MAX_FIELD_NAME = 256, 256
"""Maximum characters of a signing key's id, and of the name of a form field or an attachment."""
MAX_FIELDS = 100
"""Maximum form fields, and maximum attachments, of one subscription."""
_FIELDS_LENGTH = validate.Length(max=MAX_FIELDS, error=f"Must have at most {MAX_FIELDS} members.")


def _type_field() -> TextField:
    return TextField(
        load_default="jmespath",
        validate=one_of(*SUBSCRIPTION_TYPES),
        metadata=describe_field("The type of subscription."),
    )


def secret_key_field(**options: Any) -> TextField:
    """Return the field of the secret that signs deliveries."""
    return TextField(
        validate=text_length(1024),
        metadata=describe_field("Signs deliveries; never included in responses."),
        **options,
    )


def key_id_field(about: str = "Identifies the signing key to receivers.") -> TextField:
    """Return the field of the signing key's id, which a header of deliveries carries."""
    return TextField(
        load_default=None, validate=max_length(MAX_KEY_ID), metadata=describe_field(about)
    )


@dataclass(frozen=True)
class SubscriptionFilter:
    """Parameters of subscription operations."""

    replica: Annotated[Replica, replica_field()]
    subscription_type: Annotated[SubscriptionType, _type_field()]


class Attachment(RequestSchema):
    """A value that is computed from the metadata and delivered with the event."""

    model = dict
    type = TextField(
        required=True, validate=validate.OneOf(["jmespath"], error="Must be jmespath.")
    )
    expression = TextField(required=True, metadata={"maxLength": MAX_SOURCE_BYTES})


@dataclass(frozen=True)
class SubscriptionBody:
    """The endpoint of a subscription, its query, and the format of deliveries."""

    callback_url: Annotated[
        str,
        TextField(
            required=True,
            metadata={"example": "https://pipeline.example/notify", "maxLength": MAX_URL_BYTES},
        ),
    ]
    es_query: Annotated[
        Mapping[str, Any] | None,
        JsonObject(
            load_default=None,
            metadata=describe_field("If present, the type is elasticsearch; `{}` matches all."),
        ),
    ]
    jmespath_query: Annotated[
        str | None,
        TextField(
            load_default=None,
            metadata={"example": "event_type == 'CREATE'", "maxLength": MAX_SOURCE_BYTES},
        ),
    ]
    method: Annotated[
        str,
        TextField(
            load_default="POST",
            validate=validate.OneOf(["POST", "PUT"], error="Must be POST or PUT."),
        ),
    ]
    encoding: Annotated[
        str,
        TextField(
            load_default="application/json",
            validate=validate.OneOf(
                ["application/json", "multipart/form-data"],
                error="Must be application/json or multipart/form-data.",
            ),
        ),
    ]
    form_fields: Annotated[
        Mapping[str, str],
        fields.Dict(
            keys=TextField(validate=max_length(MAX_FIELD_NAME)),
            values=TextField(),
            load_default=dict,
            validate=_FIELDS_LENGTH,
        ),
    ]
    payload_form_field: Annotated[
        str, TextField(load_default="payload", validate=text_length(MAX_FIELD_NAME))
    ]
    hmac_key_id: Annotated[str | None, key_id_field()]
    hmac_secret_key: Annotated[str | None, secret_key_field(load_default=None)] = field(repr=False)
    attachments: Annotated[
        Mapping[str, Mapping[str, str]] | None,
        fields.Dict(
            keys=TextField(validate=max_length(MAX_FIELD_NAME)),
            values=fields.Nested(Attachment),
            load_default=None,
            validate=_FIELDS_LENGTH,
            metadata=describe_field("Expressions by name; names must not start with `_`."),
        ),
    ]


class MatchedBundle(ResponseSchema):
    """The bundle version that a delivery is about."""

    bundle_uuid = UuidField(required=True)
    bundle_version = VersionField(required=True)


class Notification(ResponseSchema):
    """The payload of a delivery."""

    transaction_id = UuidField(
        required=True, metadata=describe_field("The delivery; the same in each attempt.")
    )
    subscription_id = UuidField(required=True)
    match = fields.Nested(MatchedBundle, required=True)
    event_type = fields.String(
        metadata=describe_field("Of jmespath subscriptions: CREATE, TOMBSTONE or DELETE.")
    )
    jmespath_query = fields.String()
    es_query = JsonObject()
    bundle_url = fields.String()
    event_timestamp = VersionField(required=True)
    attachments = JsonObject()
    test = fields.Boolean(metadata=describe_field("Whether it is a test delivery."))


class SubscriptionAnswer(ResponseSchema):
    """A subscription without its secret."""

    uuid = UuidField(required=True)
    owner = fields.String(required=True)
    callback_url = fields.String(required=True)
    replica = replica_field()
    subscription_type = fields.String(required=True, validate=validate.OneOf(SUBSCRIPTION_TYPES))
    method = fields.String(required=True)
    encoding = fields.String(required=True)
    form_fields = JsonObject(required=True)
    payload_form_field = fields.String(required=True)
    es_query = JsonObject()
    jmespath_query = fields.String()
    hmac_key_id = fields.String()
    hmac_previous_until = fields.String(
        metadata=describe_field("When the former secret stops signing.")
    )
    attachments = JsonObject()
    state = fields.String(
        required=True,
        validate=validate.OneOf(SUBSCRIPTION_STATES),
        metadata=describe_field("Only active ones get deliveries other than tests."),
    )
    state_since = fields.String(metadata=describe_field("When it became inactive."))
    state_reason = fields.String(metadata=describe_field("Why it is disabled."))
    failures = fields.Integer(
        metadata=describe_field("Failed attempts since the last successful one, if there are any.")
    )
    failing_since = fields.String(
        metadata=describe_field("First failure since the last successful delivery.")
    )


class SubscriptionList(ResponseSchema):
    """The caller's subscriptions."""

    subscriptions = fields.List(fields.Nested(SubscriptionAnswer), required=True)


class SubscriptionDeleted(ResponseSchema):
    """The response of delete_subscription."""

    timeDeleted = fields.String(required=True)  # noqa: N815


DEFAULT_OVERLAP_S = 86_400
DEFAULT_DRY_RUN_BUNDLES = 10


@dataclass(frozen=True)
class NewSecretBody:
    """The new secret that signs deliveries."""

    hmac_secret_key: Annotated[str, secret_key_field(required=True)] = field(repr=False)
    hmac_key_id: Annotated[str | None, key_id_field("The new key's id; by default the former id.")]
    overlap_s: Annotated[
        int,
        IntegerField(
            load_default=DEFAULT_OVERLAP_S,
            validate=in_range(0, 2**31),
            metadata=describe_field("How long the former secret also signs, seconds."),
        ),
    ]


@dataclass(frozen=True)
class DryRunBody(SubscriptionBody):
    """A subscription, and the bundles to try."""

    bundles: Annotated[
        int,
        IntegerField(
            load_default=DEFAULT_DRY_RUN_BUNDLES,
            validate=in_range(1, DRY_RUN_BUNDLES_MAX),
            metadata=describe_field("How many of the latest bundles to try."),
        ),
    ]
    payloads: Annotated[
        int,
        IntegerField(
            load_default=DRY_RUN_PAYLOADS_MAX,
            validate=in_range(0, DRY_RUN_PAYLOADS_MAX),
            metadata=describe_field("How many of the latest matches to show with their payload."),
        ),
    ]
    bundle_uuid: Annotated[
        str | None,
        UuidField(
            load_default=None,
            metadata=describe_field("Try only versions of this bundle, the latest first."),
        ),
    ]
    event_ids: Annotated[
        Sequence[str] | None,
        fields.List(
            UuidField(),
            load_default=None,
            validate=validate.Length(
                min=1,
                max=DRY_RUN_PAYLOADS_MAX,
                error=f"Must have 1 to {DRY_RUN_PAYLOADS_MAX} items.",
            ),
            metadata=describe_field(
                "Try these events of the feed, in this order, instead of the latest bundles."
            ),
        ),
    ]
    subscription_id: Annotated[
        str | None,
        UuidField(
            load_default=None,
            metadata=describe_field(
                "The subscription's id in payloads, of which `transaction_id` is derived, too;"
                " by default a new one."
            ),
        ),
    ]


class DryRunBundle(ResponseSchema):
    """One bundle, or event: whether it matches, and the payload that would be sent."""

    bundle_uuid = UuidField(required=True)
    bundle_version = VersionField(required=True)
    matches = fields.Boolean(required=True)
    payload = JsonObject(
        metadata=describe_field("What would be sent; only in the latest `payloads` matches.")
    )
    error = fields.String(metadata=describe_field("Why the payload cannot be built."))


class DryRunAnswer(ResponseSchema):
    """The response of dry_run_subscription: the latest bundle first, or events as in the body."""

    bundles = fields.List(fields.Nested(DryRunBundle), required=True)
    timed_out = fields.Boolean(
        required=True, metadata=describe_field("Whether time ran out before the last bundle.")
    )
