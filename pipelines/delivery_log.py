"""The delivery log of a subscription: one delivery with its requests, and resending it.

Requests are not stored. They are rebuilt from what is: the payload, the settings of the
subscription, which never change, and the time and number of each attempt.
"""

from collections.abc import Callable, Sequence

from pipelines.deliveries import WebhookRequest, build_request
from pipelines.subscriptions import secret_context
from storage.catalog import deliveries, delivery_log
from storage.catalog.deliveries import DueDelivery
from storage.catalog.delivery_log import LoggedDelivery
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError, NotFoundError, Unavailable
from storage.stores import Stores

Unseal = Callable[[bytes, bytes], bytes]
"""Opens a secret that was sealed into its context, as `SecretBox.open` does."""


def find_delivery(stores: Stores, subscription: Subscription, delivery: str) -> LoggedDelivery:
    """Return a delivery of a subscription with its attempts; raise NotFoundError."""
    with stores.catalog.read() as tx:
        found = delivery_log.find_delivery(tx, subscription.id, delivery)
    if found is None:
        raise NotFoundError("Cannot find delivery!")
    return found


def rebuild_requests(
    stores: Stores, subscription: Subscription, delivery: LoggedDelivery, unseal: Unseal
) -> Sequence[WebhookRequest]:
    """Return the request of each attempt, or of the first one if none was made yet.

    Signatures are by the current secret, as the former ones are not kept. The body is the same in
    each. There is none if the query failed, so that nothing could be sent.
    """
    with stores.catalog.read() as tx:
        due = deliveries.load_request(tx, subscription.id, delivery.uuid)
    if due is None or not due.payload:
        return ()
    keys = _open_secrets(due, unseal)
    times = [(attempt.number, attempt.at_us) for attempt in delivery.attempts]
    return [
        build_request(due, attempt=number, now_us=at_us, keys=keys)
        for number, at_us in times or [(1, delivery.created_us)]
    ]


def _open_secrets(due: DueDelivery, unseal: Unseal) -> list[bytes]:
    """Return the keys that sign, the newest first; none if the store's own key was changed."""
    context = secret_context(due.subscription_uuid)
    try:
        return [
            unseal(secret, context) for secret in (due.hmac_secret, due.hmac_previous) if secret
        ]
    except Unavailable:
        return []


def resend_delivery(stores: Stores, subscription: Subscription, delivery: str) -> LoggedDelivery:
    """Make a delivery due for one attempt, even while its subscription is paused or disabled.

    The attempt does not count for the subscription's failures. ConflictError when there is nothing
    to send.
    """
    found = find_delivery(stores, subscription, delivery)
    with stores.catalog.write() as tx:
        if not delivery_log.resend_delivery(tx, found.id):
            raise ConflictError("The delivery has nothing to send any more.")
        return delivery_log.find_delivery(tx, subscription.id, delivery) or found
