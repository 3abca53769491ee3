"""Subscriptions: validated, counted against their owner's quota, and seen by their owner only."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipelines.formats import version_at
from pipelines.notifying.addresses import parse_callback
from pipelines.notifying.pacing import BEGIN_S
from pipelines.queries import attachments, jmes
from pipelines.queries.attachments import Attachments
from pipelines.queries.payloads import NOTHING, dump, trial, trial_members
from storage.catalog import Tx, deliveries, delivery_log, endpoints, now_us, retrying
from storage.catalog import subscriptions as rows
from storage.catalog.deliveries import NewDelivery
from storage.catalog.delivery_log import ALL, Delivery, Only, Place
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, Subscription, SubscriptionType
from storage.errors import Conflict, Invalid, NotAcceptable, NotFound, within
from storage.model import FQID, Replica
from storage.query.grammar import parse_request
from storage.stores import Stores

SEALING: Final = b"subscription secrets"
"""Purpose of the key that seals signing keys at rest."""

ATTEMPTS_WAIT_S: Final = BEGIN_S + 0.05
"""How long a stopped subscription is waited for: longer than a look lets attempts begin."""

Seal = Callable[[bytes, bytes], bytes]
"""Seals a secret into its context, as `Sealer.seal` does."""


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """What its owner asks for; an `es_query`, the empty one too, makes it elasticsearch."""

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
class Match:
    """A bundle that a subscription matches, and the payload that would be delivered."""

    fqid: FQID
    payload: Mapping[str, Any]


def create(
    stores: Stores,
    new: NewSubscription,
    owner: str,
    *,
    uuid: str,
    seal: Seal,
    limit: int,
    allow_private: bool,
) -> Subscription:
    """Record a subscription; Invalid for what cannot work, NotAcceptable beyond the quota."""
    callback = parse_callback(new.callback_url, allow_private=allow_private)
    check(new)
    fresh = as_row(new, owner, uuid)
    if new.hmac_secret_key is not None:
        secret = seal(new.hmac_secret_key.encode(), secret_context(uuid))
        fresh = replace(fresh, hmac_secret=secret)
    with stores.catalog.write() as tx:
        made = rows.add(tx, fresh, address=callback.endpoint, limit=limit)
    if made is None:
        raise NotAcceptable(f"There are {limit} subscriptions of yours already.")
    return made


def secret_context(uuid: str) -> bytes:
    """Binds a sealed signing key to its subscription."""
    return f"subscription/{uuid}".encode()


def check(new: NewSubscription) -> None:
    """Invalid for what cannot work, whoever asks for it."""
    if new.es_query is not None and new.jmespath_query is not None:
        raise _invalid("jmespath_query", "A subscription has one query, of either type.")
    if new.es_query is not None:
        with within("/es_query"):
            parse_request(new.es_query)
    if new.jmespath_query is not None:
        with within("/jmespath_query"):
            jmes.validate(new.jmespath_query)
    attachments.check(new.attachments or {})
    if new.payload_form_field in new.form_fields:
        raise _invalid("form_fields", "The payload's own field cannot be a static one too.")
    check_key(new.hmac_key_id, new.hmac_secret_key)
    _check_texts("jmespath_query", new.jmespath_query or "")
    _check_texts("payload_form_field", new.payload_form_field)
    _check_texts("form_fields", *new.form_fields, *new.form_fields.values())
    for name, attachment in (new.attachments or {}).items():
        _check_texts("attachments", name, *attachment.values())


def check_key(key_id: str | None, secret: str | None) -> None:
    """Invalid for an id that no header can say, or a secret without bytes of its own."""
    if key_id is not None and (not key_id.isascii() or not key_id.isprintable() or '"' in key_id):
        raise _invalid("hmac_key_id", "It must be printable ASCII without quotation marks.")
    _check_texts("hmac_secret_key", secret or "")


def _check_texts(name: str, *texts: str) -> None:
    """Refuse what no catalog keeps and no payload says."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise _invalid(name, "It holds half a character.") from error
    if any("\x00" in text for text in texts):
        raise _invalid(name, "It holds a NUL.")


def _invalid(name: str, detail: str) -> Invalid:
    return Invalid(detail, errors={f"/{name}": [detail]})


def as_row(new: NewSubscription, owner: str, uuid: str) -> Subscription:
    """What is to be recorded, without its secret."""
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


def listing(
    stores: Stores, owner: str | None, replica: Replica, kind: SubscriptionType = JMESPATH
) -> list[Subscription]:
    """The caller's subscriptions; nobody has none."""
    if owner is None:
        return []
    with stores.catalog.read() as tx:
        return rows.of_owner(tx, owner, replica, kind)


def find(
    stores: Stores,
    uuid: str,
    owner: str,
    *,
    replica: Replica,
    kind: SubscriptionType | None = JMESPATH,
) -> Subscription:
    """The caller's subscription, of any type when `kind` is None; NotFound, another's too."""
    with stores.catalog.read() as tx:
        return own(tx, uuid, owner, replica, kind)


def own(
    tx: Tx, uuid: str, owner: str, replica: Replica, kind: SubscriptionType | None
) -> Subscription:
    """The same within a unit of work."""
    found = rows.find(tx, uuid)
    known = found is not None and (found.owner, found.replica) == (owner, replica)
    if found is None or not known or kind not in (None, found.type):
        raise NotFound("Cannot find subscription!")
    return found


def delete(
    stores: Stores,
    uuid: str,
    owner: str,
    *,
    replica: Replica,
    kind: SubscriptionType | None = JMESPATH,
) -> str:
    """End a subscription and cancel its deliveries; returns when. No attempt begins afterwards."""
    with stores.catalog.write() as tx:
        gone = own(tx, uuid, owner, replica, kind)
        at = rows.remove(tx, gone)
        if at is None:
            raise NotFound("Cannot find subscription!")
        # The first of them only: `deliver` cancels the others when it fetches them.
        deliveries.cancel(tx, gone.id, gone.endpoint_id)
    wait_for_attempts(stores, gone.endpoint_id)
    return version_at(at)


def wait_for_attempts(stores: Stores, endpoint_id: int) -> None:
    """Return when no attempt begins any more on what was read before this call.

    Call it after the change is committed: who leases the endpoint later reads the change.
    """
    # A writing transaction, so that it waits for a lease that is not committed yet.
    with stores.catalog.write(durable=False) as tx:
        in_use = endpoints.in_use(tx, endpoint_id)
    if in_use:
        time.sleep(ATTEMPTS_WAIT_S)


def told(
    stores: Stores,
    subscription: Subscription,
    *,
    only: Only = ALL,
    after: Place | None = None,
    limit: int,
) -> list[Delivery]:
    """A page of a subscription's deliveries, the latest first, beyond the place of the last."""
    with stores.catalog.read() as tx:
        return delivery_log.page(tx, subscription.id, only=only, after=after, limit=limit)


def retry(stores: Stores, subscription: Subscription, delivery: str) -> Delivery:
    """Make a delivery due now; Conflict when there is nothing to send."""
    with stores.catalog.write() as tx:
        found = delivery_log.find(tx, subscription.id, delivery)
        if found is None:
            raise NotFound("Cannot find delivery!")
        if not retrying.one(tx, found.id):
            raise Conflict("The delivery has nothing to send any more.")
        return delivery_log.find(tx, subscription.id, delivery) or found


def ping(
    stores: Stores,
    subscription: Subscription,
    *,
    uuid: str,
    match: Match | None = None,
    request_id: str = "",
) -> Delivery:
    """Record a test delivery, sent and tried again like any other; about a bundle that matches, if
    there is one."""
    with stores.catalog.write() as tx:
        now = now_us(tx)
        fqid = match.fqid if match else FQID(NOTHING, version_at(now))
        told = dict(match.payload) if match else trial(subscription, delivery=uuid, now_us=now)
        fresh = NewDelivery(uuid, subscription.id, dump(told | trial_members(uuid)))
        deliveries.add_test(
            tx, fresh, bundle_uuid=fqid.uuid, version=fqid.version, request_id=request_id
        )
        # Whoever asks wants to know now, however long its receiver has been left alone.
        endpoints.wake(tx, subscription.endpoint_id)
        made = delivery_log.find(tx, subscription.id, uuid)
    if made is None:
        raise NotFound("Cannot find subscription!")
    return made
