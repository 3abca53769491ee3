"""Checkouts: what their operations take and answer."""

from dataclasses import dataclass

from marshmallow import fields, validate

from api.schemas.common import Shown
from api.schemas.fields import Spelled, Text, Uuid
from api.schemas.loading import Body

NOT_CONFIGURED = "not_configured"
_MAIL = r'^[^@\s<>,;:"]{1,128}@[^@\s<>,;:"]{1,255}$'


@dataclass(frozen=True)
class Checkout:
    """The body of post_bundles_checkout."""

    destination: str | None
    email: str | None


class CheckoutBody(Body):
    """Where a copy of the bundle goes; the store's checkout area when nothing is said."""

    model = Checkout
    destination = Text(
        load_default=None,
        validate=Spelled(
            r"^[a-z0-9.-]{3,63}$", error="Must be a bucket name of a-z, 0-9, dot and dash."
        ),
        metadata={"description": "A bucket of yours in the replica's cloud."},
    )
    email = Text(
        load_default=None,
        validate=Spelled(_MAIL, error="Not an e-mail address."),
        metadata={"description": "Who is told how it ended."},
    )


class CheckoutStarted(Shown):
    """The answer of post_bundles_checkout."""

    checkout_job_id = Uuid(required=True)


class Progress(Shown):
    """How much of a checkout is copied."""

    files = fields.Integer(required=True)
    files_total = fields.Integer(required=True)
    bytes = fields.Integer(required=True)
    bytes_total = fields.Integer(required=True)


class CheckoutStatus(Shown):
    """The answer of get_bundles_checkout."""

    status = fields.String(
        required=True, validate=validate.OneOf(["RUNNING", "SUCCEEDED", "FAILED"])
    )
    location = fields.String(metadata={"description": "URL of the copy, with success."})
    cause = fields.String(metadata={"description": "Why it failed."})
    progress = fields.Nested(Progress, required=True)
    mail = fields.String(
        validate=validate.OneOf([NOT_CONFIGURED]),
        metadata={"description": "The store has no mail server: nothing is sent to `email`."},
    )
