"""Pages of subscriptions: the caller's list, a new one with its live tester, and what owners do."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from flask import Response

from api.deliveries import send_test_delivery
from api.schemas.fields import (
    NoParameters,
    QueryInteger,
    TextField,
    in_range,
    one_of,
    optional_text,
)
from auth.secret_values import create_secret
from pipelines import events, facets, formats, matching, subscriptions
from pipelines.events import EventWindow
from pipelines.flow import delivery_jobs
from pipelines.limits import DRY_RUN_BUNDLES_MAX
from pipelines.matching import DryRun, DryRunResult
from pipelines.subscriptions import NewSubscription, SubscriptionRef
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError, Invalid, NotAcceptable, Unavailable
from storage.model import REPLICAS
from storage.search.grammar.parser import parse_query
from web.pages import FormErrors, PageContext, page, read_cookie, set_cookie
from web.subscription_forms import (
    ENCODINGS,
    METHODS,
    QUERY_KINDS,
    SIGNING,
    SubscriptionForm,
    build_subscription,
    list_field_errors,
    parse_time,
)

SHOWN_MATCHES, SHOWN_DELIVERIES, SHOWN_REPLAYS = 20, 5, 5
SECRET_COOKIE, SECRET_PURPOSE, SECRET_S = "store-secret", "web subscription secret", 300
"""A new secret is kept for the next page in an encrypted cookie, and nowhere else."""
OVERLAPS = ((0, "not at all"), (3_600, "an hour"), (86_400, "a day"), (604_800, "a week"))
_SAMPLES = Path(__file__).parent / "samples"
VERIFIERS = {
    name: (_SAMPLES / file).read_text()
    for name, file in (("Python", "verify_signature.py"), ("Node", "verify_signature.mjs"))
}


@page("GET", "/subscriptions", access="get_subscriptions", login=True)
def list_subscriptions(context: PageContext[NoParameters]) -> Response:
    """List the caller's subscriptions with their state."""
    return context.render(
        "subscriptions.html",
        "Subscriptions",
        rows=subscriptions.list_statuses(context.stores, context.caller.email),
        limit=context.services.settings.subscriptions_per_user,
        may_create=context.may("put_subscription"),
    )


@dataclass(frozen=True)
class NewParameters:
    """What fills the form of a new subscription beforehand."""

    es_query: Annotated[str, optional_text(8_000)]
    jmespath_query: Annotated[str, optional_text(8_000)]
    replica: Annotated[str, TextField(load_default=REPLICAS[0], validate=one_of(*REPLICAS))]


@page("GET", "/subscriptions/new", access="put_subscription", query=NewParameters)
def show_new_subscription(context: PageContext[NewParameters]) -> Response:
    """Show the form of a new subscription."""
    given = context.query
    kind = "search" if given.es_query else "jmespath" if given.jmespath_query else "all"
    query = format_json(given.es_query) if given.es_query else given.jmespath_query
    return _render_form(context, {"kind": kind, "query": query, "replica": given.replica})


@page("POST", "/subscriptions/try", access="dry_run_subscription", while_read_only=True)
def try_subscription(context: PageContext[NoParameters]) -> Response:
    """Show which of the latest bundles a subscription would match, and the payload of one."""
    given = context.request.form.to_dict()
    try:
        form = context.load_form(SubscriptionForm)
        new = build_subscription(form, secret=form.hmac_secret_key)
        with matching.limit_dry_runs():
            trial = _run_trial(context, new, form.bundle_uuid)
    except Unavailable as error:
        return _render_form(context, given, status=503, problem=error.detail)
    except Invalid as error:
        return _render_form(context, given, status=400, errors=list_field_errors(error))
    shown = trial.matches[:SHOWN_MATCHES]
    return _render_form(
        context, given, trial=trial, matches=shown, wrong=_list_wrong_fields(context, new)
    )


def _list_wrong_fields(context: PageContext[Any], new: NewSubscription) -> list[str]:
    """Return what is wrong with the fields of a search query, with the nearest ones."""
    if new.es_query is None:
        return []
    names = facets.list_query_fields(parse_query(new.es_query))
    wrong = facets.find_wrong_fields(context.stores, new.replica, names)
    return [facets.format_unknown_field(name, nearest) for name, nearest in wrong.items()]


@dataclass(frozen=True)
class Trial:
    """The outcome of a trial: matches, failures, and the bundle whose payload is shown."""

    tried: int
    matches: list[DryRunResult]
    failures: list[DryRunResult]
    shown: DryRunResult | None
    timed_out: bool

    @property
    def payload(self) -> str:
        """The shown payload, formatted."""
        return format_json(self.shown.payload or "") if self.shown else ""


def _run_trial(context: PageContext[Any], new: NewSubscription, chosen: str | None) -> Trial:
    """Try the latest bundles, and before them the chosen one, all within the time of a dry run."""
    end = time.monotonic() + context.services.settings.dry_run_s
    one = _dry_run(context, new, end, limit=1, bundle_uuid=chosen) if chosen else None
    run = _dry_run(context, new, end, payloads=0 if chosen else 1)
    matches = [each for each in run.bundles if each.matches]
    with_payload = [each for each in (one or run).bundles if each.payload is not None]
    return Trial(
        len(run.bundles),
        matches,
        [each for each in run.bundles if each.error is not None],
        next(iter(with_payload), None),
        run.timed_out,
    )


def _dry_run(
    context: PageContext[Any],
    new: NewSubscription,
    end: float,
    *,
    limit: int = DRY_RUN_BUNDLES_MAX,
    payloads: int = 1,
    bundle_uuid: str | None = None,
) -> DryRun:
    return matching.dry_run_subscription(
        context.stores,
        new,
        context.caller.email,
        uuid=formats.new_uuid(),
        limit=limit,
        payloads=payloads,
        bundle_uuid=bundle_uuid,
        time_s=max(0.0, end - time.monotonic()),
        clock=time.monotonic,
        allow_private=context.services.settings.allow_private_callbacks,
    )


@page("POST", "/subscriptions/new", access="put_subscription")
def create_subscription(context: PageContext[NoParameters]) -> Response:
    """Create a subscription, and show its generated secret once."""
    given, settings = context.request.form.to_dict(), context.services.settings
    try:
        form = context.load_form(SubscriptionForm)
        if form.signing == "own" and not form.hmac_secret_key:
            raise FormErrors("", errors={"hmac_secret_key": ["Enter your secret."]})
        secrets = {"generated": create_secret(), "own": form.hmac_secret_key}
        made = subscriptions.create_subscription(
            context.stores,
            build_subscription(form, secrets.get(form.signing)),
            context.caller.email,
            uuid=formats.new_uuid(),
            seal=context.services.seal,
            limit=settings.subscriptions_per_user,
            allow_private=settings.allow_private_callbacks,
        )
    except NotAcceptable as error:
        return _render_form(context, given, status=406, problem=error.detail)
    except Invalid as error:
        return _render_form(context, given, status=400, errors=list_field_errors(error))
    response = context.redirect(f"/subscriptions/{made.uuid}", "The subscription is created.")
    if form.signing == "generated":
        _keep_secret(context, response, made.uuid, secrets["generated"] or "")
    return response


def _render_form(
    context: PageContext[Any], given: dict[str, str], *, status: int = 200, **values: Any
) -> Response:
    return context.render(
        "subscription_new.html",
        "New subscription",
        status=status,
        # A secret is never sent back.
        given={**given, "hmac_secret_key": ""},
        query_kinds=QUERY_KINDS,
        signing=SIGNING,
        methods=METHODS,
        encodings=ENCODINGS,
        replicas=[(replica, replica) for replica in REPLICAS],
        most=DRY_RUN_BUNDLES_MAX,
        **{"errors": {}, "problem": "", "trial": None, "matches": [], "wrong": [], **values},
    )


def _keep_secret(context: PageContext[Any], response: Response, uuid: str, secret: str) -> None:
    site = context.site
    sealed = site.sealer.seal(SECRET_PURPOSE, [uuid, secret], ends=site.clock() + SECRET_S)
    set_cookie(site, response, SECRET_COOKIE, sealed, SECRET_S)


def _read_secret(context: PageContext[Any]) -> str:
    """Return the new secret of this subscription that the next page shows, or ''."""
    site = context.site
    opened = site.sealer.open(
        SECRET_PURPOSE, read_cookie(site, SECRET_COOKIE), now=site.clock()
    ) or ["", ""]
    return str(opened[1]) if opened[0] == context.uuid else ""


@page("GET", "/subscriptions/<uuid>", access="get_subscription")
def show_subscription(context: PageContext[NoParameters]) -> Response:
    """Show a subscription, what its owner may do, and how to verify its deliveries."""
    return _render_subscription(context)


def _render_subscription(
    context: PageContext[Any], *, status: int = 200, errors: dict[str, list[str]] | None = None
) -> Response:
    own, secret = find_own(context), _read_secret(context)
    cap_s = context.services.settings.secret_overlap_cap_s
    response = context.render(
        "subscription.html",
        "Subscription",
        status=status,
        own=own,
        query=format_json(own.query or "") if own.type == "elasticsearch" else own.query,
        secret=secret,
        errors=errors or {},
        given=context.request.form,
        deliveries=subscriptions.list_deliveries(context.stores, own, limit=SHOWN_DELIVERIES),
        replays=events.list_replays(context.stores, own, limit=SHOWN_REPLAYS),
        overlaps=[one for one in OVERLAPS if one[0] <= cap_s],
        verifiers=VERIFIERS,
    )
    if secret and context.request.method != "HEAD":
        set_cookie(context.site, response, SECRET_COOKIE, "", 0)
    return response


def find_own(context: PageContext[Any]) -> Subscription:
    """Return the visitor's subscription in the path."""
    return subscriptions.find_own_subscription(context.stores, context.uuid, context.caller.email)


def _find_ref(context: PageContext[Any]) -> SubscriptionRef:
    own = find_own(context)
    return SubscriptionRef(own.uuid, own.owner, own.replica)


def _redirect_to_own(context: PageContext[Any], flash: str, below: str = "") -> Response:
    return context.redirect(f"/subscriptions/{context.uuid}{below}", flash)


@page("POST", "/subscriptions/<uuid>/test", access="test_subscription")
def send_test(context: PageContext[NoParameters]) -> Response:
    """Send a test delivery, and show what becomes of it."""
    own = find_own(context)
    sent = send_test_delivery(context, own)
    return _redirect_to_own(context, "The test is on its way.", f"/deliveries/{sent.uuid}")


@page("POST", "/subscriptions/<uuid>/pause", access="pause_subscription")
def pause_subscription(context: PageContext[NoParameters]) -> Response:
    """Pause a subscription."""
    subscriptions.pause_subscription(context.stores, _find_ref(context))
    return _redirect_to_own(context, "Paused. Matches are kept, and sent when you resume it.")


@page("POST", "/subscriptions/<uuid>/resume", access="resume_subscription")
def resume_subscription(context: PageContext[NoParameters]) -> Response:
    """Resume a paused or disabled subscription."""
    active = subscriptions.resume_subscription(context.stores, _find_ref(context))
    context.send(delivery_jobs([active.endpoint_id]))
    return _redirect_to_own(context, "Active. What was kept is sent on its schedule.")


@dataclass(frozen=True)
class SecretForm:
    """The new secret of a subscription; without one the store makes it."""

    hmac_secret_key: Annotated[str | None, optional_text(1024, None)] = field(repr=False)
    overlap_s: Annotated[int, QueryInteger(load_default=86_400, validate=in_range(0, 2**31))]


@page("POST", "/subscriptions/<uuid>/secret", access="put_subscription_secret")
def rotate_secret(context: PageContext[NoParameters]) -> Response:
    """Replace the secret, and show a generated one once."""
    whose = _find_ref(context)
    try:
        form = context.load_form(SecretForm)
        secret = form.hmac_secret_key or create_secret()
        subscriptions.rotate_secret(
            context.stores,
            whose,
            secret,
            key_id=None,
            overlap_s=form.overlap_s,
            overlap_cap_s=context.services.settings.secret_overlap_cap_s,
            seal=context.services.seal,
        )
    except Invalid as error:
        return _render_subscription(context, status=400, errors=list_field_errors(error))
    response = _redirect_to_own(context, "The secret is replaced.")
    if not form.hmac_secret_key:
        _keep_secret(context, response, context.uuid, secret)
    return response


@dataclass(frozen=True)
class ReplayParameters:
    """The window of a replay, as browsers send dates and times."""

    from_date: Annotated[str, optional_text(40)]
    to_date: Annotated[str, optional_text(40)]


@page("GET", "/subscriptions/<uuid>/replay", access="replay_subscription", query=ReplayParameters)
def confirm_replay(context: PageContext[ReplayParameters]) -> Response:
    """Say what a replay would send, before it starts."""
    own, given = find_own(context), context.query
    try:
        window = _parse_window(given)
    except FormErrors as error:
        return _render_subscription(context, status=400, errors=list_field_errors(error))
    count = events.count_events(context.stores, own.replica, window)
    return context.render("subscription_replay.html", "Replay", own=own, window=given, count=count)


@page("POST", "/subscriptions/<uuid>/replay", access="replay_subscription")
def start_replay(context: PageContext[NoParameters]) -> Response:
    """Send the events of a window once more."""
    own = find_own(context)
    try:
        replay, jobs = events.request_replay(
            context.stores,
            own,
            _parse_window(context.load_form(ReplayParameters)),
            ident=formats.new_uuid(),
            repeatable=None,
            request_id=context.request_id,
        )
    except Invalid as error:
        return _render_subscription(context, status=400, errors=list_field_errors(error))
    except ConflictError as error:
        taken = {"from_date": [error.detail]}
        return _render_subscription(context, status=409, errors=taken)
    context.send(jobs)
    left = replay.end_seq - replay.next_seq
    return _redirect_to_own(context, f"The replay of {left:,} events has started.")


def _parse_window(given: ReplayParameters) -> EventWindow:
    window = EventWindow(
        parse_time("from_date", given.from_date), parse_time("to_date", given.to_date)
    )
    if window.from_date and window.to_date and window.from_date >= window.to_date:
        raise FormErrors("", errors={"to_date": ["Must be after the beginning."]})
    return window


@page("GET", "/subscriptions/<uuid>/delete", access="delete_subscription")
def confirm_deletion(context: PageContext[NoParameters]) -> Response:
    """Say what the deletion of a subscription ends."""
    return context.render(
        "subscription_delete.html", "Delete this subscription?", own=find_own(context)
    )


@page("POST", "/subscriptions/<uuid>/delete", access="delete_subscription")
def delete_subscription(context: PageContext[NoParameters]) -> Response:
    """Delete a subscription."""
    whose = _find_ref(context)
    subscriptions.delete_subscription(
        context.stores, whose.uuid, whose.owner, replica=whose.replica, kind=None
    )
    return context.redirect("/subscriptions", "The subscription is deleted.")


def format_json(text: str) -> str:
    """Return a JSON text with line breaks; any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
