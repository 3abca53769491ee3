"""Pages of the delivery log: what was sent to a receiver, its answers, and sending again."""

from dataclasses import astuple, dataclass
from typing import Annotated, Any

from flask import Response

from api.deliveries import DELIVERY_EVENT_TYPES, DELIVERY_STATES
from api.schemas.fields import NoParameters, TextField, one_of, optional_text, page_token_field
from pipelines import delivery_log, subscriptions
from pipelines.flow import delivery_jobs
from pipelines.formats import version_to_us
from pipelines.subscriptions import SubscriptionRef
from storage.catalog.delivery_log import DeliveryFilter, LoggedDelivery
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError
from web.live import LivePage
from web.pages import PageContext, page
from web.subscription_forms import parse_time
from web.subscriptions import find_own, format_json

PAGE_DELIVERIES = 50
MAX_SHOWN_BODY = 200_000
"""Characters of a request's body on a page."""


@dataclass(frozen=True)
class LogParameters:
    """Which deliveries the log shows; an empty choice means any."""

    state: Annotated[str, TextField(load_default="", validate=one_of("", *DELIVERY_STATES))]
    event_type: Annotated[
        str, TextField(load_default="", validate=one_of("", *DELIVERY_EVENT_TYPES))
    ]
    bundle_uuid: Annotated[str, optional_text(36)]
    search_after: Annotated[str | None, page_token_field()]


@page("GET", "/subscriptions/<uuid>/deliveries", access="get_deliveries", query=LogParameters)
def list_deliveries(context: PageContext[LogParameters]) -> LivePage:
    """List the deliveries of a subscription, the latest first."""
    query, own = context.query, find_own(context)
    state: Any = query.state or None
    bundle_uuid = query.bundle_uuid.strip().lower() or None
    criteria = DeliveryFilter(state, query.event_type or None, bundle_uuid)
    parts = (str(part or "") for part in astuple(criteria))
    scope = ("deliveries page", own.uuid, *parts)
    position = context.open_cursor(scope, query.search_after)
    rows = subscriptions.list_deliveries(
        context.stores,
        own,
        only=criteria,
        after=(int(position[0]), int(position[1])) if position else None,
        limit=PAGE_DELIVERIES + 1,
    )
    shown, token = context.cut_page(
        rows, PAGE_DELIVERIES, scope, lambda last: [str(part) for part in last.position]
    )
    values = {
        "own": own,
        "rows": shown,
        "following": context.url(search_after=token) if token else None,
        "states": DELIVERY_STATES,
        "event_types": DELIVERY_EVENT_TYPES,
        "query": query,
        "errors": {},
    }
    return LivePage(
        "deliveries.html",
        "Deliveries",
        part="delivery_list.html",
        version=(own.state, shown),
        read=lambda: values,
        is_over=bool(query.search_after),
    )


@page("GET", "/subscriptions/<uuid>/deliveries/<id>", access="get_delivery")
def show_delivery(context: PageContext[NoParameters]) -> LivePage:
    """Show a delivery with its requests and their results."""
    own = find_own(context)
    delivery = delivery_log.find_delivery(context.stores, own, context.path["id"])
    return LivePage(
        "delivery.html",
        "Delivery",
        part="delivery_attempts.html",
        version=(own.state, delivery),
        read=lambda: _read_requests(context, own, delivery),
        is_over=delivery.state != "pending",
    )


def _read_requests(
    context: PageContext[Any], own: Subscription, delivery: LoggedDelivery
) -> dict[str, Any]:
    requests = delivery_log.rebuild_requests(context.stores, own, delivery, context.services.unseal)
    body = requests[0].body.decode(errors="replace") if requests else ""
    return {
        "own": own,
        "delivery": delivery,
        "body": format_json(body),
        "most": MAX_SHOWN_BODY,
        "request_sent": requests[0] if requests else None,
        "attempts": [
            (attempt, requests[number].headers if requests else {})
            for number, attempt in enumerate(delivery.attempts)
        ][::-1],
    }


@page("POST", "/subscriptions/<uuid>/deliveries/<id>/resend", access="resend_delivery")
def resend_delivery(context: PageContext[NoParameters]) -> Response:
    """Send a delivery once more, whatever the state of its subscription."""
    own, ident = find_own(context), context.path["id"]
    try:
        delivery_log.resend_delivery(context.stores, own, ident)
    except ConflictError as error:
        delivery = delivery_log.find_delivery(context.stores, own, ident)
        values = {"problem": error.detail, **_read_requests(context, own, delivery)}
        return context.render("delivery.html", "Delivery", status=409, **values)
    context.send(delivery_jobs([own.endpoint_id]))
    return context.redirect(f"/subscriptions/{own.uuid}/deliveries/{ident}", "It is sent again.")


@dataclass(frozen=True)
class RetryForm:
    """Since when deliveries failed that are to be retried."""

    since: Annotated[str, optional_text(40)]


@page("POST", "/subscriptions/<uuid>/deliveries/retry", access="retry_deliveries")
def retry_deliveries(context: PageContext[NoParameters]) -> Response:
    """Retry the failed deliveries of a subscription."""
    own, form = find_own(context), context.load_form(RetryForm)
    since = parse_time("since", form.since)
    result = subscriptions.retry_failed_deliveries(
        context.stores,
        SubscriptionRef(own.uuid, own.owner, own.replica),
        since_us=0 if since is None else version_to_us(since),
    )
    context.send(delivery_jobs([own.endpoint_id]))
    more = " There are more: repeat it." if result.more else ""
    return context.redirect(
        f"/subscriptions/{own.uuid}/deliveries", f"{result.count:,} deliveries are due now.{more}"
    )
