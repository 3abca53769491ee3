"""Builders of subscriptions, events and deliveries."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from pipelines.formats import version_from_us
from pipelines.ssrf_guard import parse_callback_url
from storage.catalog import Catalog, deliveries, delivery_log, events, now_us, subscriptions
from storage.catalog.deliveries import NewDelivery, make_delivery_id
from storage.catalog.delivery_log import LoggedDelivery
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, BundleEvent, EventType

BASE_URL = "https://store.example"


def a_subscription(**given: Any) -> Subscription:
    """A jmespath subscription that matches everything."""
    plain = Subscription(
        uuid=str(uuid4()),
        owner="owner@example.org",
        replica="aws",
        type="jmespath",
        query=None,
        callback_url="https://receiver.example/hook",
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
    )
    return replace(plain, **given)


def subscribe(
    catalog: Catalog, callback_url: str, *, limit: int = 10_000, **given: Any
) -> Subscription:
    """A subscription in the catalog."""
    fresh = a_subscription(callback_url=callback_url, **given)
    address = parse_callback_url(callback_url, allow_private=True).endpoint
    with catalog.write() as tx:
        made = subscriptions.insert_subscription(tx, fresh, address=address, limit=limit)
    assert made is not None
    return made


def an_event(
    kind: EventType = "CREATE", *, fqid: FQID | None = None, at_us: int = 0
) -> BundleEvent:
    """An event that is in no catalog."""
    fqid = fqid or FQID(str(uuid4()), version_from_us(1_767_225_600_000_000))
    return BundleEvent(
        events.make_event_id(kind, "aws", fqid), "aws", kind, fqid, 1, at_us or 2**52
    )


def happen(catalog: Catalog, kind: EventType = "CREATE", fqid: FQID | None = None) -> BundleEvent:
    """An event in the catalog."""
    fqid = fqid or FQID(str(uuid4()), version_from_us(1_767_225_600_000_000))
    with catalog.write() as tx:
        made = events.find(tx, events.append(tx, kind, "aws", fqid, 1))
    assert made is not None
    return made


def match(
    catalog: Catalog,
    event: BundleEvent,
    *matching: Subscription,
    failure: str | None = None,
    request_id: str = "",
) -> int:
    """Deliveries of an event to these subscriptions."""
    fresh = [
        NewDelivery(
            make_delivery_id(each.uuid, event.id),
            each.id,
            "" if failure else f'{{"to":"{each.uuid}"}}',
            failure,
        )
        for each in matching
    ]
    with catalog.write() as tx:
        return len(deliveries.insert_matches(tx, fresh, event, request_id=request_id))


def tell(
    catalog: Catalog, matching: Iterable[Subscription], *, times: int = 1
) -> list[BundleEvent]:
    """New bundles that all these subscriptions match."""
    listed = list(matching)
    made = [happen(catalog) for _ in range(times)]
    for event in made:
        match(catalog, event, *listed)
    return made


def backlog(catalog: Catalog, subscription: Subscription, count: int) -> None:
    """Many deliveries in one statement, each of a bundle of its own."""
    with catalog.write() as tx:
        now = now_us(tx)
        made = text(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
            " INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
            " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us)"
            " SELECT :uuid || '/' || i, :id, 'e' || i, :endpoint_id, 'CREATE', 'b' || i, 'v', '{}',"
            " 'pending', :now, :now, :now FROM n"
        )
        which = {"id": subscription.id, "endpoint_id": subscription.endpoint_id}
        tx.execute(made, {**which, "uuid": subscription.uuid, "count": count, "now": now})


def told(catalog: Catalog, subscription: Subscription, limit: int = 1000) -> list[LoggedDelivery]:
    """A subscription's deliveries, the earliest first."""
    with catalog.read() as tx:
        return delivery_log.list_deliveries(tx, subscription.id, limit=limit)[::-1]


def states(catalog: Catalog, subscription: Subscription) -> list[str]:
    """Only how each of them stands."""
    return [delivery.state for delivery in told(catalog, subscription)]
