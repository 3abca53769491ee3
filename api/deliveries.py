"""Delivery operations over HTTP: list deliveries, retry them, send a test; with their schemas."""

import time
from dataclasses import astuple, dataclass
from typing import Annotated, Any, get_args

from flask import Response
from marshmallow import fields, validate

from api.http.operation import (
    ResponseDoc,
    StoreContext,
    json_response,
    omit_none,
    operation,
    page_responses,
)
from api.schemas.fields import (
    JsonObject,
    ReplicaParameters,
    ResponseSchema,
    TextField,
    UuidField,
    VersionField,
    describe_field,
    one_of,
    page_size_field,
    page_token_field,
    replica_field,
    version_field,
)
from api.subscriptions import find_own_subscription, format_time, subscription_ref
from pipelines import delivery_log, formats, matching, subscriptions
from pipelines.flow import delivery_jobs
from pipelines.formats import version_from_us, version_to_us
from storage.catalog.deliveries import TEST_EVENT, DeliveryState
from storage.catalog.delivery_log import DeliveryAttempt, DeliveryFilter, LoggedDelivery
from storage.catalog.subscriptions import Subscription
from storage.model import EventType, Replica

DELIVERY_STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)
DELIVERY_EVENT_TYPES = (*get_args(EventType), TEST_EVENT)
EXAMPLE_TIME = "2026-01-31T235959.000000Z"
PAGE_DELIVERIES = 100


def _event_type_field() -> TextField:
    return TextField(
        load_default=None,
        validate=one_of(*DELIVERY_EVENT_TYPES),
        metadata=describe_field("Only deliveries of this event type."),
    )


def time_field(about: str, **options: Any) -> VersionField:
    """Return the field of a time in the format of versions."""
    return version_field(metadata=describe_field(about, example=EXAMPLE_TIME), **options)


@dataclass(frozen=True)
class ListDeliveries:
    """Parameters of get_deliveries."""

    replica: Annotated[Replica, replica_field()]
    state: Annotated[
        DeliveryState | None,
        TextField(
            load_default=None,
            validate=one_of(*DELIVERY_STATES),
            metadata=describe_field("Only deliveries in this state."),
        ),
    ]
    event_type: Annotated[str | None, _event_type_field()]
    bundle_uuid: Annotated[
        str | None,
        UuidField(load_default=None, metadata=describe_field("Only deliveries about this bundle.")),
    ]
    since: Annotated[
        str | None, time_field("Only deliveries recorded at or after this time.", load_default=None)
    ]
    until: Annotated[
        str | None, time_field("Only deliveries recorded before this time.", load_default=None)
    ]
    per_page: Annotated[int, page_size_field(PAGE_DELIVERIES)]
    search_after: Annotated[str | None, page_token_field()]


class AttemptAnswer(ResponseSchema):
    """One request to the receiver, with its result."""

    number = fields.Integer(required=True)
    at = fields.String(required=True)
    seconds = fields.Float(required=True)
    status = fields.Integer(metadata=describe_field("The receiver's status code."))
    error = fields.String()
    body = fields.String(metadata=describe_field("The receiver's response body, truncated."))


class DeliveryAnswer(ResponseSchema):
    """The delivery of one event to one subscriber."""

    id = UuidField(required=True)
    transaction_id = UuidField(
        required=True, metadata=describe_field("The same id, as receivers see it.")
    )
    event_type = fields.String(required=True)
    bundle_uuid = UuidField(required=True)
    bundle_version = VersionField(required=True)
    state = fields.String(
        required=True,
        validate=validate.OneOf(DELIVERY_STATES),
        metadata=describe_field("`pending` until it is delivered or has failed."),
    )
    recorded = fields.String(
        required=True, metadata=describe_field("When the event matched, or the test was requested.")
    )
    attempts = fields.List(fields.Nested(AttemptAnswer), required=True)
    next_attempt = fields.String(
        metadata=describe_field("Only while it is pending and not paused.")
    )
    reason = fields.String(metadata=describe_field("The reason of its state."))


class AttemptDetail(AttemptAnswer):
    """One request to the receiver with its headers, and its result."""

    headers = JsonObject(
        metadata=describe_field("Headers of the request; signatures are by the current secret.")
    )


class WebhookRequestAnswer(ResponseSchema):
    """What is the same in each request of a delivery."""

    method = fields.String(required=True)
    url = fields.String(required=True)
    body = fields.String(required=True)


class DeliveryDetail(DeliveryAnswer):
    """A delivery with its requests, which are rebuilt from what is stored."""

    attempts = fields.List(fields.Nested(AttemptDetail), required=True)
    request = fields.Nested(WebhookRequestAnswer)


class DeliveryList(ResponseSchema):
    """A page of deliveries, the latest first."""

    deliveries = fields.List(fields.Nested(DeliveryAnswer), required=True)


@dataclass(frozen=True)
class RetrySpanBody:
    """The failed deliveries to retry."""

    since: Annotated[
        str, time_field("Only if the last attempt failed at or after this time.", required=True)
    ]
    until: Annotated[
        str | None,
        time_field("Only if the last attempt failed before this time.", load_default=None),
    ]
    event_type: Annotated[str | None, _event_type_field()]


class RetriedAnswer(ResponseSchema):
    """The response of retry_deliveries."""

    retried = fields.Integer(
        required=True, metadata=describe_field("The number of deliveries that are due now.")
    )
    more = fields.Boolean(
        required=True, metadata=describe_field("Whether to repeat the request for the rest.")
    )


TAG = "subscriptions"
MAX_TEST_BUNDLES = 100
"""How many of the latest bundles are searched for one that a test delivery can use."""


@operation(
    "GET",
    "/subscriptions/{uuid}/deliveries",
    tag=TAG,
    query=ListDeliveries,
    responses=page_responses(DeliveryList),
    errors=(404,),
    paged="deliveries",
    description="Lists the deliveries with their attempts, the latest first.",
)
def get_deliveries(context: StoreContext[ListDeliveries, None]) -> Response:
    """List the deliveries of a subscription."""
    query, subscription = context.query, find_own_subscription(context)
    criteria = DeliveryFilter(
        state=query.state,
        event_type=query.event_type,
        bundle_uuid=query.bundle_uuid,
        since_us=None if query.since is None else version_to_us(query.since),
        until_us=None if query.until is None else version_to_us(query.until),
    )
    parts = (str(part or "") for part in astuple(criteria))
    scope = ("get_deliveries", "by time", subscription.uuid, *parts)
    position = context.open_cursor(scope, query.search_after)
    rows = subscriptions.list_deliveries(
        context.stores,
        subscription,
        only=criteria,
        after=(int(position[0]), int(position[1])) if position else None,
        limit=query.per_page + 1,
    )
    page = rows[: query.per_page]
    content = {"deliveries": [format_delivery(row, subscription) for row in page]}
    last = [str(part) for part in page[-1].position] if len(rows) > query.per_page else None
    return context.page_response(content, "deliveries", scope=scope, last=last)


@operation(
    "GET",
    "/subscriptions/{uuid}/deliveries/{id}",
    tag=TAG,
    query=ReplicaParameters,
    responses={200: ResponseDoc("The delivery.", DeliveryDetail)},
    errors=(404,),
    description="Requests are rebuilt from what is stored. Their signatures are by the current"
    " secret, also where an earlier one signed.",
)
def get_delivery(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Show a delivery with its requests and their results."""
    subscription = find_own_subscription(context)
    delivery = delivery_log.find_delivery(context.stores, subscription, context.path["id"])
    requests = delivery_log.rebuild_requests(
        context.stores, subscription, delivery, context.services.unseal
    )
    content = format_delivery(delivery, subscription)
    for attempt, request in zip(content["attempts"], requests, strict=False):
        attempt["headers"] = dict(request.headers)
    if requests:
        first = requests[0]
        body = first.body.decode(errors="replace")
        content["request"] = {"method": first.method, "url": first.url, "body": body}
    return json_response(content)


@operation(
    "POST",
    "/subscriptions/{uuid}/deliveries/{id}/resend",
    tag=TAG,
    query=ReplicaParameters,
    responses={202: ResponseDoc("Due now.", DeliveryAnswer)},
    errors=(404, 409),
    description="Makes one attempt, even while the subscription is paused or disabled, out of the"
    " order of its bundle's events. If it fails, the delivery keeps its former state and the"
    " subscription's failures are not counted.",
)
def resend_delivery(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Send a delivery once more, whatever the state of its subscription."""
    subscription = find_own_subscription(context)
    delivery = delivery_log.resend_delivery(context.stores, subscription, context.path["id"])
    return _deliver_now(context, delivery, subscription)


@operation(
    "POST",
    "/subscriptions/{uuid}/deliveries/{id}/retry",
    tag=TAG,
    query=ReplicaParameters,
    responses={202: ResponseDoc("Due now, or once the subscription is resumed.", DeliveryAnswer)},
    errors=(404, 409),
)
def retry_delivery(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Retry a delivery now."""
    subscription = find_own_subscription(context)
    delivery = subscriptions.retry_delivery(context.stores, subscription, context.path["id"])
    return _deliver_now(context, delivery, subscription)


@operation(
    "POST",
    "/subscriptions/{uuid}/deliveries/retry",
    tag=TAG,
    query=ReplicaParameters,
    body=RetrySpanBody,
    responses={202: ResponseDoc("The deliveries are due now.", RetriedAnswer)},
    errors=(404,),
    description="Retries failed deliveries, and pending ones before their time. Each request"
    " retries a limited number: repeat it while the response says `more`. Deliveries about deleted"
    " bundles are not sent.",
)
def retry_deliveries(context: StoreContext[ReplicaParameters, RetrySpanBody]) -> Response:
    """Retry the deliveries that failed since a time."""
    body, subscription = context.body, find_own_subscription(context)
    result = subscriptions.retry_failed_deliveries(
        context.stores,
        subscription_ref(context),
        since_us=version_to_us(body.since),
        until_us=None if body.until is None else version_to_us(body.until),
        event_type=body.event_type,
    )
    context.send(delivery_jobs([subscription.endpoint_id]))
    return json_response({"retried": result.count, "more": result.more}, 202)


@operation(
    "POST",
    "/subscriptions/{uuid}/test",
    tag=TAG,
    query=ReplicaParameters,
    responses={202: ResponseDoc("The test is due now.", DeliveryAnswer)},
    errors=(404, 503),
    description="The test is sent, signed and retried like any other delivery. It uses the latest"
    f" bundle that matches, if one of the last {MAX_TEST_BUNDLES} does."
    " `X-STORE-NOTIFY-TEST: true` and the payload's `test` mark it.",
)
def test_subscription(context: StoreContext[ReplicaParameters, None]) -> Response:
    """Send a test delivery."""
    subscription = find_own_subscription(context)
    delivery = send_test_delivery(context, subscription)
    return json_response(format_delivery(delivery, subscription), 202)


def send_test_delivery(
    context: StoreContext[Any, None], subscription: Subscription
) -> LoggedDelivery:
    """Send a test delivery of the latest bundle that matches, if one of the last does."""
    with matching.limit_dry_runs():
        match = matching.find_latest_match(
            context.stores,
            subscription,
            limit=MAX_TEST_BUNDLES,
            time_s=context.services.settings.dry_run_s,
            clock=time.monotonic,
        )
    delivery = subscriptions.ping_subscription(
        context.stores,
        subscription,
        uuid=formats.new_uuid(),
        match=match,
        request_id=context.request_id,
    )
    context.send(delivery_jobs([subscription.endpoint_id]))
    return delivery


def _deliver_now(
    context: StoreContext[ReplicaParameters, None],
    delivery: LoggedDelivery,
    subscription: Subscription,
) -> Response:
    context.send(delivery_jobs([subscription.endpoint_id]))
    return json_response(format_delivery(delivery, subscription), 202)


def format_delivery(delivery: LoggedDelivery, subscription: Subscription) -> dict[str, Any]:
    """Return a delivery as its subscription's owner sees it."""
    # `deliver` holds back what is due while the subscription is paused, so no time is shown.
    sending = subscription.state == "active" or delivery.ignores_pause
    next_us = delivery.next_us if sending else None
    return {
        "id": delivery.uuid,
        "transaction_id": delivery.uuid,
        "event_type": delivery.event_type,
        "bundle_uuid": delivery.bundle_uuid,
        "bundle_version": delivery.bundle_version,
        "state": delivery.state,
        "recorded": version_from_us(delivery.created_us),
        "attempts": [_format_attempt(attempt) for attempt in delivery.attempts],
        **omit_none({"next_attempt": format_time(next_us), "reason": delivery.reason}),
    }


def _format_attempt(attempt: DeliveryAttempt) -> dict[str, Any]:
    optional = {"status": attempt.status, "error": attempt.error, "body": attempt.body}
    return {
        "number": attempt.number,
        "at": version_from_us(attempt.at_us),
        "seconds": attempt.seconds,
        **omit_none(optional),
    }
