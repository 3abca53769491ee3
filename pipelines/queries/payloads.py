"""What a callback is told: the payload of one delivery, fixed when the event is matched."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pipelines.formats import version_at
from storage.catalog.subscriptions import JMESPATH, Subscription
from storage.model import FQID, Event

NOTHING = "00000000-0000-0000-0000-000000000000"
"""The bundle of a test delivery where none matches."""


def dump(value: Any) -> str:
    """JSON as it is sent: compact, UTF-8; ValueError for what JSON cannot say."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()  # a lone surrogate is a ValueError
    return text


def payload(
    subscription: Subscription,
    event: Event,
    *,
    delivery: str,
    base_url: str,
    attachments: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The payload of a matching event; `attachments` only where the subscription asks for some."""
    told = _told(subscription, event.fqid, delivery=delivery, event_type=event.type)
    asked = urlencode({"version": event.fqid.version, "replica": event.replica})
    told["bundle_url"] = f"{base_url}/v1/bundles/{event.fqid.uuid}?{asked}"
    told["event_timestamp"] = version_at(event.at_us)
    if attachments is not None:
        told["attachments"] = attachments
    return told


def trial(subscription: Subscription, *, delivery: str, now_us: int) -> dict[str, Any]:
    """The payload of a test about no bundle."""
    fqid = FQID(NOTHING, version_at(now_us))
    told = _told(subscription, fqid, delivery=delivery, event_type="CREATE")
    return told | {"event_timestamp": fqid.version}


def trial_members(delivery: str) -> dict[str, Any]:
    """The members in which a test's payload differs from that of an event."""
    return {"transaction_id": delivery, "test": True}


def _told(
    subscription: Subscription, fqid: FQID, *, delivery: str, event_type: str
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "transaction_id": delivery,
        "subscription_id": subscription.uuid,
        "match": {"bundle_uuid": fqid.uuid, "bundle_version": fqid.version},
    }
    if subscription.type == JMESPATH:
        told["event_type"] = event_type
        # A subscription without a query has no string to show.
        told |= {} if subscription.query is None else {"jmespath_query": subscription.query}
    else:
        told["es_query"] = json.loads(subscription.query or "{}")
    return told
