"""Deliveries over HTTP: what became of each, try one again, ask for a test."""

import time
from dataclasses import astuple
from typing import Any

from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.paging import next_url, paged
from api.schemas.common import InReplica, InReplicaQuery
from api.schemas.standing import RetriedAnswer, RetrySpan, RetrySpanBody
from api.schemas.subscriptions import (
    DeliveryAnswer,
    DeliveryList,
    ListDeliveries,
    ListDeliveriesQuery,
)
from api.standing import running, whose
from pipelines import formats
from pipelines.flow import deliver_to
from pipelines.formats import us_of, version_at
from pipelines.notifying import standing, subscriptions, trying
from storage.catalog.deliveries import TEST
from storage.catalog.delivery_log import Attempt, Delivery, Only, Place
from storage.catalog.subscriptions import Subscription
from storage.model import Replica

TAG = "subscriptions"
TEST_BUNDLES = 100
"""Bundles that are looked at for one that a test can be about."""


@operation(
    "GET",
    "/subscriptions/{uuid}/deliveries",
    tag=TAG,
    query=ListDeliveriesQuery,
    answers={200: Answer("The last page.", DeliveryList), 206: Answer("A page.", DeliveryList)},
    errors=(404,),
    paged="deliveries",
    about="The latest first, each with its attempts.",
)
def get_deliveries(call: Call[ListDeliveries, None]) -> Response:
    """See what became of a subscription's deliveries."""
    query, own = call.query, _own(call, call.query.replica)
    only = _only(query)
    scope = ("get_deliveries", "by time", own.uuid, *(str(part or "") for part in astuple(only)))
    found = subscriptions.told(
        call.stores,
        own,
        only=only,
        after=_after(call, scope),
        limit=query.per_page + 1,
    )
    page, more = found[: query.per_page], len(found) > query.per_page
    response = reply({"deliveries": [shown(one, own) for one in page]})
    return paged(response, "deliveries", _next(call, scope, page[-1]) if more else None)


def _only(query: ListDeliveries) -> Only:
    return Only(
        state=query.state,
        event_type=query.event_type,
        bundle_uuid=query.bundle_uuid,
        since_us=None if query.since is None else us_of(query.since),
        until_us=None if query.until is None else us_of(query.until),
    )


def _after(call: Call[ListDeliveries, None], scope: tuple[str, ...]) -> Place | None:
    pointer = call.query.search_after
    if pointer is None:
        return None
    at_us, ident = call.services.cursors.open(scope, pointer)
    return int(at_us), int(ident)


def _next(call: Call[ListDeliveries, None], scope: tuple[str, ...], last: Delivery) -> str:
    pointer = call.services.cursors.seal(scope, [str(part) for part in last.place])
    return next_url(call.request, call.base, {"search_after": pointer})


@operation(
    "POST",
    "/subscriptions/{uuid}/deliveries/{id}/retry",
    tag=TAG,
    query=InReplicaQuery,
    answers={202: Answer("It is due now, or once its subscription is resumed.", DeliveryAnswer)},
    errors=(404, 409),
)
def retry_delivery(call: Call[InReplica, None]) -> Response:
    """Try a delivery again now."""
    own = _own(call, call.query.replica)
    delivery = subscriptions.retry(call.stores, own, call.path["id"])
    return _due_now(call, delivery, own)


@operation(
    "POST",
    "/subscriptions/{uuid}/deliveries/retry",
    tag=TAG,
    query=InReplicaQuery,
    body=RetrySpanBody,
    answers={202: Answer("They are due now.", RetriedAnswer)},
    errors=(404,),
    about="What was given up, and what would be tried again later. So many at once: ask again while"
    " the answer says `more`. What tells of a bundle that is gone meanwhile is not sent.",
)
def retry_deliveries(call: Call[InReplica, RetrySpan]) -> Response:
    """Try again what failed since a time."""
    asked, own = call.body, _own(call, call.query.replica)
    made = standing.retry_failed(
        call.stores,
        whose(call),
        since_us=us_of(asked.since),
        until_us=None if asked.until is None else us_of(asked.until),
        event_type=asked.event_type,
    )
    call.send(deliver_to([own.endpoint_id]))
    return reply({"retried": made.count, "more": made.more}, 202)


@operation(
    "POST",
    "/subscriptions/{uuid}/test",
    tag=TAG,
    query=InReplicaQuery,
    answers={202: Answer("It is due now.", DeliveryAnswer)},
    errors=(404, 503),
    about="Sent, signed and tried again like any other delivery. It is about the latest bundle that"
    " matches, if one of the last 100 does. `X-STORE-NOTIFY-TEST: true` and the payload's `test`"
    " mark it.",
)
def test_subscription(call: Call[InReplica, None]) -> Response:
    """Have a test delivered."""
    own = _own(call, call.query.replica)
    with running():
        match = trying.first_match(
            call.stores,
            own,
            limit=TEST_BUNDLES,
            time_s=call.services.settings.dry_run_s,
            clock=time.monotonic,
        )
    delivery = subscriptions.ping(
        call.stores, own, uuid=formats.new_uuid(), match=match, request_id=call.request_id
    )
    return _due_now(call, delivery, own)


def _due_now(call: Call[InReplica, None], delivery: Delivery, own: Subscription) -> Response:
    call.send(deliver_to([own.endpoint_id]))
    return reply(shown(delivery, own), 202)


def _own(call: Call[Any, Any], replica: Replica) -> Subscription:
    """The caller's subscription, of either type."""
    return subscriptions.find(call.stores, call.uuid, call.who.email, replica=replica, kind=None)


def shown(one: Delivery, own: Subscription) -> dict[str, Any]:
    """A delivery as its subscription's owner sees it."""
    # What is due is held back when `deliver` fetches it; it is not sent before that either.
    sent = own.state == "active" or one.event_type == TEST
    value: dict[str, Any] = {
        "id": one.uuid,
        "transaction_id": one.uuid,
        "event_type": one.event_type,
        "bundle_uuid": one.bundle_uuid,
        "bundle_version": one.bundle_version,
        "state": one.state,
        "recorded": version_at(one.created_us),
        "attempts": [_attempt(made) for made in one.attempts],
    }
    at = None if one.next_us is None or not sent else version_at(one.next_us)
    given = {"next_attempt": at, "reason": one.reason}
    return value | {name: item for name, item in given.items() if item is not None}


def _attempt(made: Attempt) -> dict[str, Any]:
    value: dict[str, Any] = {
        "number": made.number,
        "at": version_at(made.at_us),
        "seconds": made.seconds,
    }
    given = {"status": made.status, "error": made.error, "body": made.body}
    return value | {name: item for name, item in given.items() if item is not None}


OPERATIONS: tuple[Operation, ...] = (
    get_deliveries,
    retry_delivery,
    retry_deliveries,
    test_subscription,
)
