"""Checkouts over HTTP: ask for a copy of a bundle, ask how far it is."""

from fnmatch import fnmatchcase
from typing import Any

from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.checkout import (
    NOT_CONFIGURED,
    Checkout,
    CheckoutBody,
    CheckoutStarted,
    CheckoutStatus,
)
from api.schemas.common import InReplica, InReplicaQuery, Versioned, VersionedQuery
from auth.access import CHECKOUT_ELSEWHERE
from pipelines.depositing import checkouts
from pipelines.depositing.checkouts import Wanted
from storage.catalog.checkouts import Job
from storage.errors import Forbidden

TAG = "checkout"

EXPIRED = "The copies were kept for as long as the store keeps them, and are gone."


@operation(
    "POST",
    "/bundles/{uuid}/checkout",
    tag=TAG,
    query=VersionedQuery,
    body=CheckoutBody,
    body_optional=True,
    answers={200: Answer("Begun.", CheckoutStarted)},
    errors=(403, 404),
    about="Copies the bundle, the latest version when none is named. A `destination` of your own"
    " wants a token and must be allowed by the store's settings.",
)
def post_bundles_checkout(call: Call[Versioned, Checkout]) -> Response:
    """Check a bundle out."""
    body = call.body
    version = call.query.version
    if body.destination is not None:
        version = _elsewhere(call, body.destination)
    wanted = Wanted(call.query.replica, call.uuid, version, body.destination, body.email)
    requester = call.principal.email if call.principal else None
    requested = checkouts.request(call.stores, wanted, requester, request_id=call.request_id)
    call.send(requested.todo)
    return reply({"checkout_job_id": requested.job_id})


def _elsewhere(call: Call[Versioned, Checkout], destination: str) -> str | None:
    """The version that was judged: a bucket of one's own wants a token and the operator's
    consent."""
    settings, guard = call.services.settings, call.services.guard
    judged: str | None = guard.require(CHECKOUT_ELSEWHERE, call).query.version
    allowed = any(fnmatchcase(destination, name) for name in settings.checkout_destinations)
    scheme = call.stores.replicas[call.query.replica].direct_url("").partition(":")[0]
    own = call.stores.sources.own(f"{scheme}://{destination}/x")
    if own or not allowed:
        raise Forbidden(f"Checkouts may not go to {destination}.")
    return judged


@operation(
    "GET",
    "/bundles/checkout/{checkout_job_id}",
    tag=TAG,
    query=InReplicaQuery,
    answers={200: Answer("How far it is.", CheckoutStatus)},
    errors=(404,),
)
def get_bundles_checkout(call: Call[InReplica, None]) -> Response:
    """Ask how far a checkout is."""
    job = checkouts.status(call.stores, call.query.replica, call.path["checkout_job_id"])
    shown = _shown(job)
    if job.email and call.stores.mail is None:
        shown["mail"] = NOT_CONFIGURED
    return reply(shown)


def _shown(job: Job) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "status": job.state,
        "progress": {
            "files": job.files,
            "files_total": job.files_total,
            "bytes": job.bytes,
            "bytes_total": job.bytes_total,
        },
    }
    if job.state == "EXPIRED":
        return shown | {"status": "FAILED", "cause": EXPIRED}
    given = {"location": job.location, "cause": job.cause}
    return shown | {name: text for name, text in given.items() if text is not None}


OPERATIONS: tuple[Operation, ...] = (post_bundles_checkout, get_bundles_checkout)
