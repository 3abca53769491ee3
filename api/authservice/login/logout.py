"""Logging out: OpenID Connect RP-Initiated Logout 1.0, and the page that asks first.

A request with an ID token of the person who is logged in is done at once. One that another site
made without such a token is asked about, since any page could make it.
"""

from functools import partial
from typing import Any, NamedTuple

from flask import Flask, Response, g, request

from api.authservice.frame import add_page, framed, message
from api.authservice.login.account import ACCOUNT
from api.authservice.login.local import STALE
from api.authservice.login.logins import Logins, from_elsewhere
from api.authservice.openid.visiting import is_of
from api.authservice.pages import ANYWHERE, go, page
from api.authservice.schemas.logins import Logout, LogoutQuery
from api.authservice.services import AuthServices, Call
from api.operation import Answer, operation
from api.schemas.loading import load_query
from auth.login.entering import leave
from auth.login.sessions import COOKIE, Session
from auth.login.targets import with_state
from auth.openid.hints import read_hint
from auth.openid.redirects import is_registered
from storage.errors import Invalid

TAG = "login"
PATH, LEFT, CONFIRM = "/logout", "/logout/done", "/logout/confirm"
OUT = "You are logged out."
LEAVING_S = 900
SHOWN = {
    400: Answer("A page that tells the person what is wrong.", page=True),
    429: Answer("A page that tells the person when to try again.", page=True),
}


class Wanted(NamedTuple):
    """A logout request that was checked: whom the hint is about, and where to go afterwards."""

    email: str | None
    onward: str


@operation(
    "GET",
    PATH,
    tag=TAG,
    query=LogoutQuery,
    answers={
        200: Answer("A page: the person is logged out, or is asked first.", page=True),
        302: Answer("To the provider, which ends its own session, or to the application."),
        **SHOWN,
    },
    identified=False,
    counted=False,
    acts=True,
)
def get_logout(call: Call[Logout, None]) -> Response:
    """End the browser's session here and, where it offers that, at the identity provider."""
    return framed(call.services.logins, partial(_get, call.services, call.query))


@operation(
    "POST",
    PATH,
    tag=TAG,
    answers={303: Answer("To the same request as a link."), **SHOWN},
    errors=(413,),
    identified=False,
    counted=False,
    while_read_only=True,
)
def post_logout(call: Call[None, None]) -> Response:
    """The same, with the parameters in a form."""
    return framed(call.services.logins, partial(_post, call.services))


OPERATIONS = (get_logout, post_logout)


def register_logout(app: Flask, logins: Logins) -> None:
    """The pages of logging out."""
    confirm = partial(_confirmed, logins)
    add_page(app, logins, CONFIRM, confirm, "POST", name="post_logout_confirm")
    add_page(app, logins, CONFIRM, partial(go, logins.settings.auth_url + ACCOUNT), "GET")
    add_page(app, logins, LEFT, partial(_left, logins), "GET")


def _get(services: AuthServices, query: Logout) -> Response:
    logins, found = services.logins, services.logins.session(request)
    try:
        wanted = _continued(logins) or _checked(services, query)
    except Invalid as error:
        return _refused(logins, found, error)
    if found is not None and _must_ask(found, wanted):
        return _ask(logins, found, wanted)
    return _leave(logins, found, wanted.onward)


def _post(services: AuthServices) -> Response:
    """A form of another site comes without our cookie: come again as a link of ours."""
    logins = services.logins
    try:
        wanted = _checked(services, load_query(LogoutQuery(), request.form))
    except Invalid as error:
        return _refused(logins, None, error)
    return go(f"{logins.settings.auth_url}{PATH}?continue={_sealed(logins, wanted)}", 303)


def _confirmed(logins: Logins) -> Response:
    """The answer to the page that asks, or the button on the person's own page."""
    found, form = logins.session(request), request.form
    if found is not None and not is_of(found, form):
        return message(STALE, status=403)
    if form.get("decision") == "stay":
        return go(logins.settings.auth_url + ACCOUNT, 303)
    wanted = _opened(logins, form.get("carried"))
    return _leave(logins, found, wanted.onward if wanted else "", 303)


def _left(logins: Logins) -> Response:
    """Back from the provider, which ended its session: on to where the logout was to lead."""
    opened = logins.seals.open("leaving", request.args.get("state"), now=logins.clock())
    return go(opened[0]) if opened and opened[0] else _out(logins)


def _must_ask(found: Session, wanted: Wanted) -> bool:
    """Whether the person may not know of this request: it comes from another site without a hint,
    or the hint is about someone else."""
    return wanted.email != found.email if wanted.email else from_elsewhere(request)


def _leave(logins: Logins, found: Session | None, onward: str, status: int = 302) -> Response:
    if found is not None:
        leave(logins.catalog, found, logins.cookie(request), g.request_id)
    url = _provider_url(logins, found, onward) or onward
    response = go(url, status) if url else _out(logins)
    logins.cookies.clear(response, COOKIE)
    return response


def _provider_url(logins: Logins, found: Session | None, onward: str) -> str | None:
    """Where the provider that the person logged in with ends its own session."""
    provider = logins.providers.get(found.provider) if found else None
    if provider is None:
        return None
    state = logins.seals.seal("leaving", [onward], ends=logins.clock() + LEAVING_S)
    return provider.logout_url(logins.settings.auth_url + LEFT, state)


def _ask(logins: Logins, found: Session, wanted: Wanted) -> Response:
    return page(
        "logout.html",
        "Log out?",
        form_action=ANYWHERE,
        email=found.email,
        leads_to=logins.leads_to(wanted.onward) if wanted.onward else None,
        action=logins.settings.auth_url + CONFIRM,
        csrf=found.csrf,
        carried=_sealed(logins, wanted),
    )


def _out(logins: Logins) -> Response:
    again = logins.settings.auth_url + ACCOUNT
    return message(OUT, title="Logged out", href=again, way="Log in again")


def _refused(logins: Logins, found: Session | None, error: Invalid) -> Response:
    """The browser goes nowhere. A person who came by themselves wanted to log out, and is."""
    way = {"href": logins.settings.auth_url + ACCOUNT, "way": "Show my login"}
    response = message(error.detail, status=400, **way)
    if found is not None and not from_elsewhere(request):
        leave(logins.catalog, found, logins.cookie(request), g.request_id)
        logins.cookies.clear(response, COOKIE)
    return response


def _sealed(logins: Logins, wanted: Wanted) -> str:
    return logins.seals.seal("logout", list(wanted), ends=logins.clock() + LEAVING_S)


def _opened(logins: Logins, sealed: str | None) -> Wanted | None:
    opened: Any = logins.seals.open("logout", sealed, now=logins.clock())
    return Wanted(*opened) if opened else None


def _continued(logins: Logins) -> Wanted | None:
    """A request that came as a form; what its link holds was checked then."""
    sealed = request.args.get("continue")
    if sealed is None:
        return None
    wanted = _opened(logins, sealed)
    if wanted is None:
        raise Invalid("This logout took too long. Go back to the application and begin again.")
    return wanted


def _checked(services: AuthServices, query: Logout) -> Wanted:
    """What a request asks for; Invalid names the parameter that is wrong."""
    hint = read_hint(services.provider, query.id_token_hint) if query.id_token_hint else None
    if hint and query.client_id not in (None, hint.client):
        raise _wrong("client_id", "It is not the client of id_token_hint.")
    named = query.client_id or (hint.client if hint else None)
    client_id = named or services.settings.default_client
    with services.catalog.read() as tx:
        client = services.provider.client(tx, client_id) if client_id else None
    if named and client is None:
        raise _wrong("client_id", "No such client.")
    uri = query.post_logout_redirect_uri
    # No code or token goes there, so confidential clients need not come back to their very port.
    if uri and not (client and is_registered(uri, client.redirect_uris, native=True)):
        raise _wrong("post_logout_redirect_uri", "The client did not register it.")
    onward = with_state(uri, query.state) if uri else ""
    return Wanted(hint.email if hint else None, onward)


def _wrong(name: str, told: str) -> Invalid:
    return Invalid(f"{name}: {told}", errors={name: [told]})
