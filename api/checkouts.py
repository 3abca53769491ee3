"""Checkout operations over HTTP, with their schemas."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any

from flask import Response
from marshmallow import fields, validate

from api.http.operation import ResponseDoc, StoreContext, json_response, omit_none, operation
from api.schemas.fields import (
    FullMatch,
    ReplicaParameters,
    ResponseSchema,
    TextField,
    UuidField,
    VersionParameters,
    describe_field,
)
from auth.authorization import CHECKOUT_ELSEWHERE
from pipelines import checkouts
from pipelines.checkouts import CheckoutRequest
from storage.catalog.checkouts import Checkout
from storage.errors import Forbidden

MAIL_NOT_CONFIGURED = "not_configured"
_EMAIL = r'^[^@\s<>,;:"]{1,128}@[^@\s<>,;:"]{1,255}$'


@dataclass(frozen=True)
class CheckoutBody:
    """Where a copy of the bundle goes; by default, the store's checkout area."""

    destination: Annotated[
        str | None,
        TextField(
            load_default=None,
            validate=FullMatch(
                r"^[a-z0-9.-]{3,63}$", error="Must be a bucket name of a-z, 0-9, dot and dash."
            ),
            metadata=describe_field("A bucket of yours in the replica's cloud."),
        ),
    ]
    email: Annotated[
        str | None,
        TextField(
            load_default=None,
            validate=FullMatch(_EMAIL, error="Not an e-mail address."),
            metadata=describe_field("Gets an e-mail when the checkout ends."),
        ),
    ]


class CheckoutStarted(ResponseSchema):
    """The response of post_bundles_checkout."""

    checkout_job_id = UuidField(required=True)


class CheckoutProgressAnswer(ResponseSchema):
    """How much of a checkout is copied."""

    files = fields.Integer(required=True)
    files_total = fields.Integer(required=True)
    bytes = fields.Integer(required=True)
    bytes_total = fields.Integer(required=True)


class CheckoutStatus(ResponseSchema):
    """The response of get_bundles_checkout."""

    status = fields.String(
        required=True, validate=validate.OneOf(["RUNNING", "SUCCEEDED", "FAILED"])
    )
    location = fields.String(metadata=describe_field("URL of the copy, with success."))
    cause = fields.String(metadata=describe_field("Why it failed."))
    progress = fields.Nested(CheckoutProgressAnswer, required=True)
    mail = fields.String(
        validate=validate.OneOf([MAIL_NOT_CONFIGURED]),
        metadata=describe_field("The store has no mail server: nothing is sent to `email`."),
    )


TAG = "checkout"

EXPIRED_CAUSE = "The copies were kept for as long as the store keeps them, and are gone."


@operation(
    "POST",
    "/bundles/{uuid}/checkout",
    tag=TAG,
    query=VersionParameters,
    body=CheckoutBody,
    body_optional=True,
    responses={200: ResponseDoc("Started.", CheckoutStarted)},
    errors=(403, 404),
    description="Copies the bundle, the latest version when none is named. A `destination` of your"
    " own wants a token and must be allowed by the store's settings.",
)
def post_bundles_checkout(context: StoreContext[VersionParameters, CheckoutBody]) -> Response:
    """Check a bundle out."""
    body = context.body
    version = context.query.version
    if body.destination is not None:
        version = _check_destination(context, body.destination)
    checkout_request = CheckoutRequest(
        context.query.replica, context.uuid, version, body.destination, body.email
    )
    requester = context.principal.email if context.principal else None
    checkout = checkouts.create(
        context.stores, checkout_request, requester, request_id=context.request_id
    )
    context.send(checkout.jobs)
    return json_response({"checkout_job_id": checkout.job_id})


def _check_destination(
    context: StoreContext[VersionParameters, CheckoutBody], destination: str
) -> str | None:
    """Return the authorized version; a caller's bucket needs a token and the operator's consent."""
    settings, guard = context.services.settings, context.services.guard
    authorized_version: str | None = guard.require(CHECKOUT_ELSEWHERE, context).query.version
    is_allowed = any(fnmatchcase(destination, name) for name in settings.checkout_destinations)
    scheme = context.stores.replicas[context.query.replica].direct_url("").partition(":")[0]
    is_own = context.stores.sources.is_own_bucket(f"{scheme}://{destination}/x")
    if is_own or not is_allowed:
        raise Forbidden(f"Checkouts may not go to {destination}.")
    return authorized_version


@operation(
    "GET",
    "/bundles/checkout/{checkout_job_id}",
    tag=TAG,
    query=ReplicaParameters,
    responses={200: ResponseDoc("The progress.", CheckoutStatus)},
    errors=(404,),
)
def get_bundles_checkout(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Show a checkout's status."""
    job = checkouts.get_status(
        context.stores, context.query.replica, context.path["checkout_job_id"]
    )
    answer = _format_checkout(job)
    if job.email and context.stores.send_mail is None:
        answer["mail"] = MAIL_NOT_CONFIGURED
    return json_response(answer)


def _format_checkout(job: Checkout) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": job.state,
        "progress": {
            "files": job.files,
            "files_total": job.files_total,
            "bytes": job.bytes,
            "bytes_total": job.bytes_total,
        },
    }
    if job.state == "EXPIRED":
        return answer | {"status": "FAILED", "cause": EXPIRED_CAUSE}
    return answer | omit_none({"location": job.location, "cause": job.cause})
