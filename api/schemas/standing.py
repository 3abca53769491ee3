"""How subscriptions stand: what changing a secret, retrying and dry runs take and answer."""

from dataclasses import dataclass, field

from marshmallow import fields, validate

from api.schemas.common import Shown
from api.schemas.fields import JsonObject, Text, Uuid, Whole
from api.schemas.loading import Body
from api.schemas.subscriptions import (
    EVENTS,
    SubscriptionBody,
    SubscriptionContent,
    key_id,
    moment,
    secret_key,
)
from pipelines.limits import DRY_RUN_BUNDLES

OVERLAP_S = 86_400
DRY_RUN = 10


@dataclass(frozen=True)
class NewSecret:
    """The body of put_subscription_secret."""

    hmac_secret_key: str = field(repr=False)
    hmac_key_id: str | None
    overlap_s: int


class NewSecretBody(Body):
    """What signs deliveries from now on."""

    model = NewSecret
    hmac_secret_key = secret_key(required=True)
    hmac_key_id = key_id("Its id; the former one when absent.")
    overlap_s = Whole(
        load_default=OVERLAP_S,
        validate=validate.Range(min=0, max=2**31, error="Must not be negative."),
        metadata={"description": "How long the former secret signs too, seconds."},
    )


@dataclass(frozen=True)
class DryRunContent(SubscriptionContent):
    """The body of dry_run_subscription."""

    bundles: int


class DryRunBody(SubscriptionBody):
    """A subscription, and how many bundles it is asked about."""

    model = DryRunContent
    bundles = Whole(
        load_default=DRY_RUN,
        validate=validate.Range(
            min=1, max=DRY_RUN_BUNDLES, error=f"Must be from 1 to {DRY_RUN_BUNDLES}."
        ),
        metadata={"description": "How many of the latest bundles are asked about."},
    )


class TriedBundle(Shown):
    """One bundle: whether it matches, and what would be told of it."""

    bundle_uuid = Uuid(required=True)
    bundle_version = fields.String(required=True)
    matches = fields.Boolean(required=True)
    payload = JsonObject(metadata={"description": "What would be sent; only where it matches."})
    error = fields.String(metadata={"description": "Why it cannot be told."})


class DryRunAnswer(Shown):
    """The answer of dry_run_subscription, the latest bundle first."""

    bundles = fields.List(fields.Nested(TriedBundle), required=True)
    timed_out = fields.Boolean(
        required=True, metadata={"description": "Whether there was no time for further bundles."}
    )


@dataclass(frozen=True)
class RetrySpan:
    """The body of retry_deliveries."""

    since: str
    until: str | None
    event_type: str | None


class RetrySpanBody(Body):
    """Which of the failed deliveries are tried again."""

    model = RetrySpan
    since = moment("The latest attempt failed then or later.", required=True)
    until = moment("It failed before then.", load_default=None)
    event_type = Text(
        load_default=None,
        validate=validate.OneOf(EVENTS, error=f"Must be one of: {', '.join(EVENTS)}."),
        metadata={"description": "Only those that tell of such events."},
    )


class RetriedAnswer(Shown):
    """The answer of retry_deliveries."""

    retried = fields.Integer(required=True, metadata={"description": "How many are due now."})
    more = fields.Boolean(
        required=True, metadata={"description": "Whether to ask again, for those that are left."}
    )
