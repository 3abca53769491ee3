"""Subscriptions over HTTP: be told of bundles that match."""

from typing import Any

import orjson
from flask import Response

from api.operation import Answer, Call, Operation, operation, reply
from api.schemas.common import InReplica, InReplicaQuery
from api.schemas.subscriptions import (
    OfType,
    OfTypeQuery,
    SubscriptionAnswer,
    SubscriptionBody,
    SubscriptionContent,
    SubscriptionDeleted,
    SubscriptionList,
)
from pipelines import formats
from pipelines.notifying import subscriptions
from pipelines.notifying.subscriptions import NewSubscription
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription

TAG = "subscriptions"


@operation(
    "GET",
    "/subscriptions",
    tag=TAG,
    query=OfTypeQuery,
    answers={200: Answer("Yours; none without a token.", SubscriptionList)},
)
def get_subscriptions(call: Call[OfType, None]) -> Response:
    """List your subscriptions."""
    owner = call.principal.email if call.principal else None
    query = call.query
    found = subscriptions.listing(call.stores, owner, query.replica, query.subscription_type)
    return reply({"subscriptions": [shown(one) for one in found]})


@operation(
    "PUT",
    "/subscriptions",
    tag=TAG,
    query=InReplicaQuery,
    body=SubscriptionBody,
    answers={201: Answer("Made.", SubscriptionAnswer)},
    errors=(406,),
    query_from_body=("replica",),
    about="With `es_query` it is of type elasticsearch, else of type jmespath; without a query it"
    " matches every bundle.",
)
def put_subscription(call: Call[InReplica, SubscriptionContent]) -> Response:
    """Subscribe."""
    settings = call.services.settings
    made = subscriptions.create(
        call.stores,
        NewSubscription(replica=call.query.replica, **vars(call.body)),
        call.who.email,
        uuid=formats.new_uuid(),
        seal=call.services.seal,
        limit=settings.subscriptions_per_user,
        allow_private=settings.allow_private_callbacks,
    )
    return reply(shown(made), 201)


@operation(
    "GET",
    "/subscriptions/{uuid}",
    tag=TAG,
    query=OfTypeQuery,
    answers={200: Answer("The subscription.", SubscriptionAnswer)},
    errors=(404,),
)
def get_subscription(call: Call[OfType, None]) -> Response:
    """Read a subscription of yours."""
    query = call.query
    found = subscriptions.find(
        call.stores,
        call.uuid,
        call.who.email,
        replica=query.replica,
        kind=query.subscription_type,
    )
    return reply(shown(found))


@operation(
    "DELETE",
    "/subscriptions/{uuid}",
    tag=TAG,
    query=OfTypeQuery,
    answers={200: Answer("Ended.", SubscriptionDeleted)},
    errors=(404,),
)
def delete_subscription(call: Call[OfType, None]) -> Response:
    """End a subscription of yours."""
    query = call.query
    at = subscriptions.delete(
        call.stores,
        call.uuid,
        call.who.email,
        replica=query.replica,
        kind=query.subscription_type,
    )
    return reply({"timeDeleted": at})


def shown(one: Subscription) -> dict[str, Any]:
    """A subscription as its owner sees it; its secret is never shown."""
    value: dict[str, Any] = {
        "uuid": one.uuid,
        "owner": one.owner,
        "callback_url": one.callback_url,
        "replica": one.replica,
        "subscription_type": one.type,
        "method": one.method,
        "encoding": one.encoding,
        "form_fields": one.form_fields,
        "payload_form_field": one.payload_form_field,
        "state": one.state,
    }
    if one.type == ELASTICSEARCH:
        value["es_query"] = orjson.Fragment(one.query or "{}")
    given = {
        "jmespath_query": one.query if one.type != ELASTICSEARCH else None,
        "hmac_key_id": one.hmac_key_id,
        "attachments": one.attachments,
        "hmac_previous_until": _moment(one.hmac_previous_us),
        "state_since": _moment(one.state_us),
        "state_reason": one.state_reason,
        "failing_since": _moment(one.failing_us),
    }
    return value | {name: item for name, item in given.items() if item is not None}


def _moment(us: int | None) -> str | None:
    return None if us is None else formats.version_at(us)


OPERATIONS: tuple[Operation, ...] = (
    get_subscriptions,
    put_subscription,
    get_subscription,
    delete_subscription,
)
