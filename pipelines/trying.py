"""Dry runs: what a subscription would be told of the latest bundles. Nothing is stored.

What it says is what matching would record: the same queries, attachments and payload, but for the
ids of a subscription that does not exist.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines import attachments, jmes, loading, subscriptions
from pipelines.addresses import parse_callback
from pipelines.payloads import payload
from pipelines.subscriptions import NewSubscription
from storage.catalog import recent
from storage.catalog.deliveries import delivery_id
from storage.catalog.subscriptions import ELASTICSEARCH, Subscription
from storage.errors import Invalid, StoreError, TimedOut
from storage.model import FQID, Event
from storage.query.analysis import flatten
from storage.query.evaluate import compile_query
from storage.query.grammar import parse_request
from storage.stores import Stores

Asked = Callable[[Mapping[str, Any]], bool]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Tried:
    """One bundle: the payload when it matches, or why that cannot be told."""

    fqid: FQID
    payload: Mapping[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The bundles that were asked about, the latest first, and whether time ran out on others."""

    bundles: tuple[Tried, ...]
    timed_out: bool


def dry_run(
    stores: Stores,
    new: NewSubscription,
    owner: str,
    *,
    uuid: str,
    limit: int,
    time_s: float,
    clock: Clock,
    allow_private: bool,
) -> DryRun:
    """Ask a subscription that is not made about the latest bundles; Invalid as `create` has it."""
    parse_callback(new.callback_url, allow_private=allow_private)
    subscriptions.check(new)
    asking = subscriptions.as_row(new, owner, uuid)
    with stores.catalog.read() as tx:
        latest = recent.created(tx, new.replica, limit=limit)
    asked, end = _question(asking, stores.query_steps), clock() + time_s

    def beat(_moved: int) -> None:
        if clock() > end:
            raise TimedOut("The dry run took too long.")

    tried: list[Tried] = []
    for event in latest:
        try:
            beat(0)
            tried.append(_try(stores, asking, asked, event, beat))
        except TimedOut:
            return DryRun(tuple(tried), timed_out=True)
    return DryRun(tuple(tried), timed_out=False)


def _question(asking: Subscription, steps: int) -> Asked:
    """The query of a subscription that was checked."""
    if asking.type == ELASTICSEARCH:
        fits = compile_query(parse_request(json.loads(asking.query or "{}")))
        return lambda document: fits(flatten(document))
    if asking.query is None:
        return lambda document: True
    expression = jmes.compiled(asking.query)
    return lambda document: expression.matches(document, jmes.Budget(steps))


def _try(
    stores: Stores, asking: Subscription, asked: Asked, event: Event, beat: Callable[[int], None]
) -> Tried:
    try:
        made = loading.document(stores, event.replica, event.bundle_id, beat)
        document = {**made, "event_type": event.type}
        if not asked(document):
            return Tried(event.fqid)
        return Tried(event.fqid, payload=_told(stores, asking, event, document))
    except TimedOut:
        raise
    except jmes.Failed as error:
        return Tried(event.fqid, error=f"The query failed: {error}")
    except (Invalid, StoreError) as error:
        return Tried(event.fqid, error=error.detail)


def _told(
    stores: Stores, asking: Subscription, event: Event, document: Mapping[str, Any]
) -> Mapping[str, Any]:
    values = None
    if asking.attachments is not None:
        values = attachments.evaluate(asking.attachments, document, steps=stores.query_steps)
    ident = delivery_id(asking.uuid, event.id)
    return payload(asking, event, delivery=ident, base_url=stores.base_url, attachments=values)
