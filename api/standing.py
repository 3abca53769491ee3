"""How a subscription stands over HTTP: its secret, paused or not, and what it would be told."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.common import InReplica, InReplicaQuery
from api.schemas.standing import DryRunAnswer, DryRunBody, DryRunContent, NewSecret, NewSecretBody
from api.schemas.subscriptions import SubscriptionAnswer
from api.subscriptions import TAG, shown
from pipelines import formats
from pipelines.flow import deliver_to
from pipelines.notifying import standing, trying
from pipelines.notifying.standing import Whose
from pipelines.notifying.subscriptions import NewSubscription
from pipelines.notifying.trying import Tried
from storage.errors import Unavailable

AT_ONCE = 4
"""Dry runs of one process at the same time: each is the work of a step."""
_running = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def running() -> Iterator[None]:
    """Limit the dry runs of this process; Unavailable when there are too many."""
    if not _running.acquire(blocking=False):
        raise Unavailable("Too many dry runs at the moment.", retry_after_s=1)
    try:
        yield
    finally:
        _running.release()


def whose(call: Call[InReplica, Any]) -> Whose:
    """The subscription in the path, as the caller's."""
    return Whose(call.uuid, call.who.email, call.query.replica)


@operation(
    "PUT",
    "/subscriptions/{uuid}/secret",
    tag=TAG,
    query=InReplicaQuery,
    body=NewSecretBody,
    answers={200: Answer("Deliveries are signed by it from now on.", SubscriptionAnswer)},
    errors=(404,),
    about="For `overlap_s` seconds `webhook-signature` carries a signature by the former secret"
    " too, after that by the new one; `Authorization` is by the new one alone.",
)
def put_subscription_secret(call: Call[InReplica, NewSecret]) -> Response:
    """Change the secret that signs a subscription's deliveries."""
    made = standing.rotate(
        call.stores,
        whose(call),
        call.body.hmac_secret_key,
        key_id=call.body.hmac_key_id,
        overlap_s=call.body.overlap_s,
        overlap_cap_s=call.services.settings.secret_overlap_cap_s,
        seal=call.services.seal,
    )
    return reply(shown(made))


@operation(
    "POST",
    "/subscriptions/{uuid}/pause",
    tag=TAG,
    query=InReplicaQuery,
    answers={200: Answer("Nothing is sent until it is resumed.", SubscriptionAnswer)},
    errors=(404,),
    about="What matches meanwhile is recorded, and sent once the subscription is resumed.",
)
def pause_subscription(call: Call[InReplica, None]) -> Response:
    """Have nothing sent for a while."""
    return reply(shown(standing.pause(call.stores, whose(call))))


@operation(
    "POST",
    "/subscriptions/{uuid}/resume",
    tag=TAG,
    query=InReplicaQuery,
    answers={200: Answer("What is due is sent.", SubscriptionAnswer)},
    errors=(404,),
    about="Whether it was paused, or disabled because nothing but failures came back.",
)
def resume_subscription(call: Call[InReplica, None]) -> Response:
    """Have deliveries sent again."""
    resumed = standing.resume(call.stores, whose(call))
    call.send(deliver_to([resumed.endpoint_id]))
    return reply(shown(resumed))


@operation(
    "POST",
    "/subscriptions/dry-run",
    tag=TAG,
    query=InReplicaQuery,
    body=DryRunBody,
    while_read_only=True,
    answers={200: Answer("What it would have been told.", DryRunAnswer)},
    errors=(503,),
    query_from_body=("replica",),
    about="Nothing is made or sent. Payloads are those of deliveries, but for the ids of a"
    " subscription that does not exist.",
)
def dry_run_subscription(call: Call[InReplica, DryRunContent]) -> Response:
    """See which of the latest bundles a subscription would match, and what it would be told."""
    asked = {name: value for name, value in vars(call.body).items() if name != "bundles"}
    settings = call.services.settings
    with running():
        made = trying.dry_run(
            call.stores,
            NewSubscription(replica=call.query.replica, **asked),
            call.who.email,
            uuid=formats.new_uuid(),
            limit=call.body.bundles,
            time_s=settings.dry_run_s,
            clock=time.monotonic,
            allow_private=settings.allow_private_callbacks,
        )
    bundles = [_tried(one) for one in made.bundles]
    return reply({"bundles": bundles, "timed_out": made.timed_out})


def _tried(one: Tried) -> dict[str, Any]:
    value: dict[str, Any] = {
        "bundle_uuid": one.fqid.uuid,
        "bundle_version": one.fqid.version,
        "matches": one.payload is not None,
    }
    payload = None if one.payload is None else orjson.Fragment(one.payload)
    given = {"payload": payload, "error": one.error}
    return value | {name: item for name, item in given.items() if item is not None}


OPERATIONS: tuple[Operation, ...] = (
    put_subscription_secret,
    pause_subscription,
    resume_subscription,
    dry_run_subscription,
)
