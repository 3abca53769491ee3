"""Create, list, pause, resume and delete subscriptions, and retry or expire deliveries.

Each statement is bounded, however many deliveries a subscription has. The scheduler releases paused
deliveries and expires old ones.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipelines.deliveries import ATTEMPT_START_S
from pipelines.formats import version_from_us
from pipelines.queries import bounded_jmespath, payloads
from pipelines.queries.payloads import (
    NO_BUNDLE_UUID,
    Attachments,
    build_test_members,
    build_test_payload,
    dump_json,
)
from pipelines.ssrf_guard import parse_callback_url
from storage.catalog import Tx, deliveries, delivery_log, endpoints, now_us, subscriptions
from storage.catalog.deliveries import NewDelivery
from storage.catalog.delivery_log import (
    ALL_DELIVERIES,
    DeliveryFilter,
    DeliveryPosition,
    LoggedDelivery,
)
from storage.catalog.subscriptions import (
    ELASTICSEARCH,
    JMESPATH,
    Subscription,
    SubscriptionStatus,
    SubscriptionType,
)
from storage.errors import ConflictError, Invalid, NotAcceptable, NotFoundError, prefix_pointers
from storage.model import FQID, Replica
from storage.search.grammar.parser import parse_query
from storage.stores import Stores

SECRET_PURPOSE: Final = b"subscription secrets"
"""Purpose of the key that seals signing keys at rest."""

ATTEMPTS_WAIT_S: Final = ATTEMPT_START_S + 0.05
"""Wait after a change, longer than attempts may begin on what was read before it."""

Seal = Callable[[bytes, bytes], bytes]
"""Seals a secret into its context, as `Sealer.seal` does."""


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to create; with an `es_query`, even an empty one, it is elasticsearch."""

    callback_url: str
    replica: Replica
    es_query: Mapping[str, Any] | None = None
    jmespath_query: str | None = None
    method: str = "POST"
    encoding: str = "application/json"
    form_fields: Mapping[str, str] = field(default_factory=dict)
    payload_form_field: str = "payload"
    hmac_key_id: str | None = None
    hmac_secret_key: str | None = field(default=None, repr=False)
    attachments: Attachments | None = None


@dataclass(frozen=True, slots=True)
class MatchingBundle:
    """A bundle that a subscription matches, and the payload that would be delivered."""

    fqid: FQID
    payload: Mapping[str, Any]


def create_subscription(
    stores: Stores,
    new: NewSubscription,
    owner: str,
    *,
    uuid: str,
    seal: Seal,
    limit: int,
    allow_private: bool,
) -> Subscription:
    """Record a subscription; raise Invalid, or NotAcceptable beyond the quota."""
    callback = parse_callback_url(new.callback_url, allow_private=allow_private)
    check_subscription(new)
    fresh = build_row(new, owner, uuid)
    if new.hmac_secret_key is not None:
        secret = seal(new.hmac_secret_key.encode(), secret_context(uuid))
        fresh = replace(fresh, hmac_secret=secret)
    with stores.catalog.write() as tx:
        made = subscriptions.insert_subscription(tx, fresh, address=callback.endpoint, limit=limit)
    if made is None:
        raise NotAcceptable(f"There are {limit} subscriptions of yours already.")
    return made


def secret_context(uuid: str) -> bytes:
    """Return the context that binds a sealed signing key to its subscription."""
    return f"subscription/{uuid}".encode()


def check_subscription(new: NewSubscription) -> None:
    """Raise Invalid for settings that cannot work."""
    if new.es_query is not None and new.jmespath_query is not None:
        raise _invalid_field("jmespath_query", "A subscription has one query, of either type.")
    if new.es_query is not None:
        with prefix_pointers("/es_query"):
            parse_query(new.es_query)
    if new.jmespath_query is not None:
        with prefix_pointers("/jmespath_query"):
            bounded_jmespath.validate_expression(new.jmespath_query)
    payloads.check_attachments(new.attachments or {})
    if new.payload_form_field in new.form_fields:
        raise _invalid_field("form_fields", "The payload's own field cannot be a static one too.")
    check_signing_key(new.hmac_key_id, new.hmac_secret_key)
    _check_text_fields("jmespath_query", new.jmespath_query or "")
    _check_text_fields("payload_form_field", new.payload_form_field)
    _check_text_fields("form_fields", *new.form_fields, *new.form_fields.values())
    for name, attachment in (new.attachments or {}).items():
        _check_text_fields("attachments", name, *attachment.values())


def check_signing_key(key_id: str | None, secret: str | None) -> None:
    """Raise Invalid for an id that no header can hold, or a secret that is not valid text."""
    if key_id is not None and (not key_id.isascii() or not key_id.isprintable() or '"' in key_id):
        raise _invalid_field("hmac_key_id", "It must be printable ASCII without quotation marks.")
    _check_text_fields("hmac_secret_key", secret or "")


def _check_text_fields(name: str, *texts: str) -> None:
    """Raise Invalid for texts that neither a catalog nor a payload can hold."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise _invalid_field(name, "It holds half a character.") from error
    if any("\x00" in text for text in texts):
        raise _invalid_field(name, "It holds a NUL.")


def _invalid_field(name: str, detail: str) -> Invalid:
    return Invalid(detail, errors={f"/{name}": [detail]})


def build_row(new: NewSubscription, owner: str, uuid: str) -> Subscription:
    """Return the row of a new subscription, without its secret."""
    stored = new.es_query is not None
    return Subscription(
        uuid=uuid,
        owner=owner,
        replica=new.replica,
        type=ELASTICSEARCH if stored else JMESPATH,
        query=json.dumps(new.es_query) if stored else new.jmespath_query,
        callback_url=new.callback_url,
        method=new.method,
        encoding=new.encoding,
        form_fields=new.form_fields,
        payload_form_field=new.payload_form_field,
        hmac_key_id=new.hmac_key_id,
        attachments=new.attachments,
    )


def list_subscriptions(
    stores: Stores, owner: str | None, replica: Replica, kind: SubscriptionType = JMESPATH
) -> list[Subscription]:
    """The caller's subscriptions; none for an anonymous caller."""
    if owner is None:
        return []
    with stores.catalog.read() as tx:
        return subscriptions.list_by_owner(tx, owner, replica, kind)


def list_statuses(stores: Stores, owner: str) -> list[SubscriptionStatus]:
    """List all subscriptions of an owner, the latest first, with the times of last deliveries."""
    with stores.catalog.read() as tx:
        return subscriptions.list_statuses(tx, owner)


def find_subscription(
    stores: Stores,
    uuid: str,
    owner: str,
    *,
    replica: Replica,
    kind: SubscriptionType | None = JMESPATH,
) -> Subscription:
    """Return the caller's subscription, of any type if `kind` is None; raise NotFoundError."""
    with stores.catalog.read() as tx:
        return load_own_subscription(tx, uuid, owner, replica, kind)


def find_own_subscription(stores: Stores, uuid: str, owner: str) -> Subscription:
    """Return the caller's subscription of any type and replica; raise NotFoundError."""
    with stores.catalog.read() as tx:
        return load_own_subscription(tx, uuid, owner, None, None)


def load_own_subscription(
    tx: Tx, uuid: str, owner: str, replica: Replica | None, kind: SubscriptionType | None
) -> Subscription:
    """Return the caller's subscription within a transaction; raise NotFoundError.

    None means any replica or type.
    """
    found = subscriptions.find(tx, uuid)
    if (
        found is None
        or found.owner != owner
        or replica not in (None, found.replica)
        or kind not in (None, found.type)
    ):
        raise NotFoundError("Cannot find subscription!")
    return found


def delete_subscription(
    stores: Stores,
    uuid: str,
    owner: str,
    *,
    replica: Replica,
    kind: SubscriptionType | None = JMESPATH,
) -> str:
    """Delete a subscription and its deliveries, and return the time; no attempt begins later."""
    with stores.catalog.write() as tx:
        gone = load_own_subscription(tx, uuid, owner, replica, kind)
        at = subscriptions.mark_deleted(tx, gone)
        if at is None:
            raise NotFoundError("Cannot find subscription!")
        # A bounded number; `deliver` cancels the others when it fetches them.
        deliveries.cancel_pending(tx, gone.id, gone.endpoint_id)
    wait_for_attempts(stores, gone.endpoint_id)
    return version_from_us(at)


def wait_for_attempts(stores: Stores, endpoint_id: int) -> None:
    """Wait until no attempt begins that read the subscription before this call.

    Call it after the change is committed: later leases of the endpoint read the change.
    """
    # A writing transaction, so that it waits for a lease that is not committed yet.
    with stores.catalog.write(durable=False) as tx:
        in_use = endpoints.is_leased(tx, endpoint_id)
    if in_use:
        time.sleep(ATTEMPTS_WAIT_S)


def list_deliveries(
    stores: Stores,
    subscription: Subscription,
    *,
    only: DeliveryFilter = ALL_DELIVERIES,
    after: DeliveryPosition | None = None,
    limit: int,
) -> list[LoggedDelivery]:
    """Return a page of a subscription's deliveries after a position, the latest first."""
    with stores.catalog.read() as tx:
        return delivery_log.list_deliveries(
            tx, subscription.id, only=only, after=after, limit=limit
        )


def retry_delivery(stores: Stores, subscription: Subscription, delivery: str) -> LoggedDelivery:
    """Make a delivery due now; ConflictError when there is nothing to send."""
    with stores.catalog.write() as tx:
        found = delivery_log.find_delivery(tx, subscription.id, delivery)
        if found is None:
            raise NotFoundError("Cannot find delivery!")
        if not delivery_log.retry_delivery(tx, found.id):
            raise ConflictError("The delivery has nothing to send any more.")
        return delivery_log.find_delivery(tx, subscription.id, delivery) or found


def ping_subscription(
    stores: Stores,
    subscription: Subscription,
    *,
    uuid: str,
    match: MatchingBundle | None = None,
    request_id: str = "",
) -> LoggedDelivery:
    """Record a test delivery, about a matching bundle if there is one; retried like any other."""
    with stores.catalog.write() as tx:
        now = now_us(tx)
        fqid = match.fqid if match else FQID(NO_BUNDLE_UUID, version_from_us(now))
        payload = (
            dict(match.payload)
            if match
            else build_test_payload(subscription, delivery=uuid, now_us=now)
        )
        fresh = NewDelivery(uuid, subscription.id, dump_json(payload | build_test_members(uuid)))
        deliveries.insert_test(
            tx, fresh, bundle_uuid=fqid.uuid, version=fqid.version, request_id=request_id
        )
        # A test delivery is sent now, even if the endpoint is backing off.
        endpoints.wake(tx, subscription.endpoint_id)
        made = delivery_log.find_delivery(tx, subscription.id, uuid)
    if made is None:
        raise NotFoundError("Cannot find subscription!")
    return made


MAX_STATEMENTS = 20
"""Bounded statements of a kind in one request, or one run of the scheduler."""
ROWS_PER_STATEMENT = 500
"""Rows of one statement."""


@dataclass(frozen=True, slots=True)
class SubscriptionRef:
    """A reference to a subscription of its owner, of either type."""

    uuid: str
    owner: str
    replica: Replica

    def load(self, tx: Tx) -> Subscription:
        """Return the subscription; raise NotFoundError."""
        return load_own_subscription(tx, self.uuid, self.owner, self.replica, None)


def pause_subscription(stores: Stores, whose: SubscriptionRef) -> Subscription:
    """Send only tests from now on; matching events are recorded for the time after.

    No attempt begins once this has returned.
    """
    with stores.catalog.write() as tx:
        subscriptions.pause(tx, whose.load(tx).id)
        paused = whose.load(tx)
    wait_for_attempts(stores, paused.endpoint_id)
    return paused


def resume_subscription(stores: Stores, whose: SubscriptionRef) -> Subscription:
    """Resume a paused or disabled subscription; its deliveries keep their schedule."""
    with stores.catalog.write() as tx:
        halted = whose.load(tx)
        subscriptions.resume(tx, halted.id)
        # A bounded number; the scheduler releases the others.
        deliveries.release_paused(tx, halted.id)
        endpoints.wake(tx, halted.endpoint_id)
        return whose.load(tx)


def rotate_secret(
    stores: Stores,
    whose: SubscriptionRef,
    secret: str,
    *,
    key_id: str | None,
    overlap_s: float,
    overlap_cap_s: float,
    seal: Seal,
) -> Subscription:
    """Sign by a new secret, and for `overlap_s` seconds by the previous one, too."""
    check_signing_key(key_id, secret)
    if not 0 <= overlap_s <= overlap_cap_s:
        detail = f"Must be from 0 to {overlap_cap_s:g}."
        raise Invalid(detail, errors={"/overlap_s": [detail]})
    sealed = seal(secret.encode(), secret_context(whose.uuid))
    with stores.catalog.write() as tx:
        until_us = now_us(tx) + int(overlap_s * 1e6)
        subscriptions.rotate_secret(
            tx, whose.load(tx), secret=sealed, key_id=key_id, until_us=until_us
        )
        return whose.load(tx)


@dataclass(frozen=True, slots=True)
class RetryCount:
    """How many deliveries are due again, and whether more are left for another request."""

    count: int
    more: bool


def retry_failed_deliveries(
    stores: Stores,
    whose: SubscriptionRef,
    *,
    since_us: int,
    until_us: int | None = None,
    event_type: str | None = None,
) -> RetryCount:
    """Make failed and postponed deliveries due, the oldest first, a bounded number at once."""
    with stores.catalog.read() as tx:
        span = delivery_log.RetryWindow(
            since_us, now_us(tx) if until_us is None else until_us, event_type
        )
    count = 0
    failed = iter((delivery_log.retry_failed, delivery_log.retry_postponed))
    some = next(failed, None)
    for _ in range(MAX_STATEMENTS):
        if some is None:
            break
        with stores.catalog.write() as tx:
            seen, made = some(tx, whose.load(tx), span, limit=ROWS_PER_STATEMENT)
        count += made
        if seen < ROWS_PER_STATEMENT:
            some = next(failed, None)
    return RetryCount(count, more=some is not None)


def release_paused_deliveries(stores: Stores) -> int:
    """Release paused deliveries of active subscriptions, and cancel those of deleted ones."""
    with stores.catalog.read() as tx:
        loose = deliveries.list_releasable(tx, limit=MAX_STATEMENTS)
    settled = 0
    for one in loose:
        with stores.catalog.write() as tx:
            settled += (deliveries.cancel_paused if one.deleted else deliveries.release_paused)(
                tx, one.id
            )
    return settled


@dataclass(frozen=True, slots=True)
class DeliveryRetention:
    """How long ended and undelivered deliveries are kept; 0 keeps undelivered ones for ever."""

    ended_s: float
    undelivered_s: float


def expire_deliveries(stores: Stores, keep: DeliveryRetention) -> int:
    """Delete old deliveries, deleted subscriptions, unused endpoints and expired secrets.

    Return the number of deleted deliveries.
    """
    with stores.catalog.write() as tx:
        subscriptions.expire_previous_secrets(tx)
        now = now_us(tx)
    ended_us = now - int(keep.ended_s * 1e6)
    gone = _run_in_batches(
        stores, lambda tx: delivery_log.expire_deliveries(tx, ended_us, limit=ROWS_PER_STATEMENT)
    )
    if keep.undelivered_s > 0:
        gone += _expire_undelivered_deliveries(stores, now - int(keep.undelivered_s * 1e6))
    with stores.catalog.read() as tx:
        deleted = subscriptions.list_deleted_before(tx, ended_us, limit=MAX_STATEMENTS)
    gone += sum(_delete_subscription_log(stores, ident) for ident in deleted)
    if deleted:
        # What a lease or a crash keeps from it is deleted by the daily sweep.
        delete_unreferenced_endpoints(stores)
    return gone


def delete_unreferenced_endpoints(stores: Stores) -> None:
    """Delete endpoints without a subscription or a lease; reads all of them, in batches."""
    after: int | None = 0
    while after is not None:
        with stores.catalog.read() as tx:
            unreferenced, after = endpoints.list_unreferenced(
                tx, after=after, limit=ROWS_PER_STATEMENT
            )
        if unreferenced:
            with stores.catalog.write() as tx:
                endpoints.delete_unreferenced(tx, unreferenced)


def _expire_undelivered_deliveries(stores: Stores, before_us: int) -> int:
    with stores.catalog.read() as tx:
        aged = deliveries.list_paused_before(tx, before_us, limit=MAX_STATEMENTS)
    for ident in aged:
        with stores.catalog.write() as tx:
            deliveries.cancel_paused_before(tx, ident, before_us)
    return _run_in_batches(
        stores,
        lambda tx: delivery_log.expire_deliveries(
            tx, before_us, failed=True, limit=ROWS_PER_STATEMENT
        ),
    )


def _run_in_batches(stores: Stores, some: Callable[[Tx], int]) -> int:
    """Run a bounded statement until it finds less than its bound, at most MAX_STATEMENTS times."""
    done = 0
    for _ in range(MAX_STATEMENTS):
        with stores.catalog.write() as tx:
            found = some(tx)
        done += found
        if found < ROWS_PER_STATEMENT:
            break
    return done


def _delete_subscription_log(stores: Stores, ident: int) -> int:
    """Delete a subscription's row and its deliveries."""
    gone = _run_in_batches(
        stores, lambda tx: delivery_log.delete_deliveries(tx, ident, limit=ROWS_PER_STATEMENT)
    )
    with stores.catalog.write() as tx:
        subscriptions.delete(tx, ident)
    return gone
