"""Subscription operations over HTTP, with secrets, pause, resume and dry runs."""

import time
from typing import Any

import orjson
from flask import Response

from api.http.operation import ResponseDoc, StoreContext, json_response, omit_none, operation
from api.schemas.fields import ReplicaParameters
from api.schemas.subscriptions import (
    DryRunAnswer,
    DryRunBody,
    NewSecretBody,
    SubscriptionAnswer,
    SubscriptionBody,
    SubscriptionDeleted,
    SubscriptionFilter,
    SubscriptionList,
)
from pipelines import formats, matching, subscriptions
from pipelines.flow import delivery_jobs
from pipelines.matching import DryRunResult
from pipelines.subscriptions import NewSubscription, SubscriptionRef
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription
from storage.errors import Invalid

TAG = "subscriptions"


@operation(
    "GET",
    "/subscriptions",
    tag=TAG,
    query=SubscriptionFilter,
    responses={200: ResponseDoc("Your subscriptions; none without a token.", SubscriptionList)},
)
def get_subscriptions(context: StoreContext[SubscriptionFilter, None]) -> Response:
    """List your subscriptions."""
    owner = context.principal.email if context.principal else None
    query = context.query
    rows = subscriptions.list_subscriptions(
        context.stores, owner, query.replica, query.subscription_type
    )
    return json_response({"subscriptions": [format_subscription(row) for row in rows]})


@operation(
    "PUT",
    "/subscriptions",
    tag=TAG,
    query=ReplicaParameters,
    body=SubscriptionBody,
    responses={201: ResponseDoc("Created.", SubscriptionAnswer)},
    errors=(406,),
    query_from_body=("replica",),
    description="With `es_query` the type is elasticsearch, otherwise jmespath. Without a query it"
    " matches every bundle.",
)
def put_subscription(context: StoreContext[ReplicaParameters, SubscriptionBody]) -> Response:
    """Create a subscription."""
    settings = context.services.settings
    subscription = subscriptions.create_subscription(
        context.stores,
        NewSubscription(replica=context.query.replica, **vars(context.body)),
        context.caller.email,
        uuid=formats.new_uuid(),
        seal=context.services.seal,
        limit=settings.subscriptions_per_user,
        allow_private=settings.allow_private_callbacks,
    )
    return json_response(format_subscription(subscription), 201)


@operation(
    "GET",
    "/subscriptions/{uuid}",
    tag=TAG,
    query=SubscriptionFilter,
    responses={200: ResponseDoc("The subscription.", SubscriptionAnswer)},
    errors=(404,),
)
def get_subscription(context: StoreContext[SubscriptionFilter, None]) -> Response:
    """Read one of your subscriptions."""
    query = context.query
    subscription = subscriptions.find_subscription(
        context.stores,
        context.uuid,
        context.caller.email,
        replica=query.replica,
        kind=query.subscription_type,
    )
    return json_response(format_subscription(subscription))


@operation(
    "DELETE",
    "/subscriptions/{uuid}",
    tag=TAG,
    query=SubscriptionFilter,
    responses={200: ResponseDoc("Deleted.", SubscriptionDeleted)},
    errors=(404,),
)
def delete_subscription(context: StoreContext[SubscriptionFilter, None]) -> Response:
    """Delete one of your subscriptions."""
    query = context.query
    deleted = subscriptions.delete_subscription(
        context.stores,
        context.uuid,
        context.caller.email,
        replica=query.replica,
        kind=query.subscription_type,
    )
    return json_response({"timeDeleted": deleted})


def format_subscription(subscription: Subscription) -> dict[str, Any]:
    """Return a subscription as its owner sees it, without its secret."""
    is_elasticsearch = subscription.type == ELASTICSEARCH
    value: dict[str, Any] = {
        "uuid": subscription.uuid,
        "owner": subscription.owner,
        "callback_url": subscription.callback_url,
        "replica": subscription.replica,
        "subscription_type": subscription.type,
        "method": subscription.method,
        "encoding": subscription.encoding,
        "form_fields": subscription.form_fields,
        "payload_form_field": subscription.payload_form_field,
        "state": subscription.state,
    }
    if is_elasticsearch:
        value["es_query"] = orjson.Fragment(subscription.query or "{}")
    optional = {
        "jmespath_query": None if is_elasticsearch else subscription.query,
        "hmac_key_id": subscription.hmac_key_id,
        "attachments": subscription.attachments,
        "hmac_previous_until": format_time(subscription.hmac_previous_us),
        "state_since": format_time(subscription.state_us),
        "state_reason": subscription.state_reason,
        "failures": subscription.failures or None,
        "failing_since": format_time(subscription.failing_us),
    }
    return value | omit_none(optional)


def format_time(us: int | None) -> str | None:
    """Format microseconds since 1970 as a version; None stays None."""
    return None if us is None else formats.version_from_us(us)


def subscription_ref(context: StoreContext[Any, Any]) -> SubscriptionRef:
    """Return the reference of the caller's subscription in the path."""
    return SubscriptionRef(context.uuid, context.caller.email, context.query.replica)


def find_own_subscription(context: StoreContext[Any, Any]) -> Subscription:
    """Return the caller's subscription in the path, of either type."""
    return subscriptions.find_subscription(
        context.stores, context.uuid, context.caller.email, replica=context.query.replica, kind=None
    )


@operation(
    "PUT",
    "/subscriptions/{uuid}/secret",
    tag=TAG,
    query=ReplicaParameters,
    body=NewSecretBody,
    responses={
        200: ResponseDoc(
            "Deliveries are signed with the new secret from now on.", SubscriptionAnswer
        )
    },
    errors=(404,),
    description="For `overlap_s` seconds, `webhook-signature` also carries a signature with the"
    " former secret. `Authorization` uses only the new secret.",
)
def put_subscription_secret(context: StoreContext[ReplicaParameters, NewSecretBody]) -> Response:
    """Change the secret that signs a subscription's deliveries."""
    subscription = subscriptions.rotate_secret(
        context.stores,
        subscription_ref(context),
        context.body.hmac_secret_key,
        key_id=context.body.hmac_key_id,
        overlap_s=context.body.overlap_s,
        overlap_cap_s=context.services.settings.secret_overlap_cap_s,
        seal=context.services.seal,
    )
    return json_response(format_subscription(subscription))


@operation(
    "POST",
    "/subscriptions/{uuid}/pause",
    tag=TAG,
    query=ReplicaParameters,
    responses={200: ResponseDoc("Nothing is sent until it is resumed.", SubscriptionAnswer)},
    errors=(404,),
    description="Events that match meanwhile are recorded, and sent on resume.",
)
def pause_subscription(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Pause the deliveries of a subscription."""
    subscription = subscriptions.pause_subscription(context.stores, subscription_ref(context))
    return json_response(format_subscription(subscription))


@operation(
    "POST",
    "/subscriptions/{uuid}/resume",
    tag=TAG,
    query=ReplicaParameters,
    responses={200: ResponseDoc("Deliveries that are due are sent.", SubscriptionAnswer)},
    errors=(404,),
    description="Resumes a subscription that was paused, or disabled after too many failures.",
)
def resume_subscription(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Resume the deliveries of a subscription."""
    subscription = subscriptions.resume_subscription(context.stores, subscription_ref(context))
    context.send(delivery_jobs([subscription.endpoint_id]))
    return json_response(format_subscription(subscription))


@operation(
    "POST",
    "/subscriptions/dry-run",
    tag=TAG,
    query=ReplicaParameters,
    body=DryRunBody,
    while_read_only=True,
    responses={200: ResponseDoc("The bundles and payloads.", DryRunAnswer)},
    errors=(503,),
    query_from_body=("replica",),
    description="Creates and sends nothing. Payloads are those of deliveries, except for the ids of"
    " a subscription that does not exist. Of a purged bundle only its DELETE event matches, without"
    " the document.",
)
def dry_run_subscription(context: StoreContext[ReplicaParameters, DryRunBody]) -> Response:
    """Show which of the latest bundles a subscription would match, and the payloads."""
    body = context.body
    if body.bundle_uuid is not None and body.event_ids is not None:
        message = "event_ids: cannot be given with bundle_uuid"
        raise Invalid(message, errors={"/event_ids": [message]})
    scope = ("bundles", "payloads", "bundle_uuid", "event_ids", "subscription_id")
    content = {name: value for name, value in vars(body).items() if name not in scope}
    settings = context.services.settings
    with matching.limit_dry_runs():
        outcome = matching.dry_run_subscription(
            context.stores,
            NewSubscription(replica=context.query.replica, **content),
            context.caller.email,
            uuid=body.subscription_id or formats.new_uuid(),
            limit=body.bundles,
            payloads=body.payloads,
            bundle_uuid=body.bundle_uuid,
            event_ids=body.event_ids,
            time_s=settings.dry_run_s,
            clock=time.monotonic,
            allow_private=settings.allow_private_callbacks,
        )
    bundles = [_format_dry_run(result) for result in outcome.bundles]
    return json_response({"bundles": bundles, "timed_out": outcome.timed_out})


def _format_dry_run(result: DryRunResult) -> dict[str, Any]:
    payload = None if result.payload is None else orjson.Fragment(result.payload)
    return {
        "bundle_uuid": result.fqid.uuid,
        "bundle_version": result.fqid.version,
        "matches": result.matches,
        **omit_none({"payload": payload, "error": result.error}),
    }
