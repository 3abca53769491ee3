"""The operations of logging in and out; their pages are the other modules here."""

from functools import partial

from flask import Flask, Response, g, request

from api.authservice.frame import add_page, message
from api.authservice.limits import limit_logins
from api.authservice.login.account import ACCOUNT, register_account_pages
from api.authservice.login.choosing import first_page, is_again, register_choice
from api.authservice.login.local import register_local_pages
from api.authservice.login.logins import Logins
from api.authservice.login.upstream import register_upstream_pages
from api.authservice.pages import go
from api.authservice.schemas.logins import Login, LoginQuery, Logout, LogoutQuery
from api.authservice.services import Call
from api.operation import Answer, operation
from auth.login.entering import leave
from auth.login.sessions import COOKIE, Session
from auth.login.targets import with_state
from storage.errors import Invalid

TAG = "login"
LEFT = "/logout/done"
OUT = "You are logged out."
LEAVING_S = 900


@operation(
    "GET",
    "/login",
    tag=TAG,
    query=LoginQuery,
    answers={302: Answer("To a choice of identity providers, or to the only one.")},
    errors=(400, 429),
    identified=False,
    counted=False,
)
def get_login(call: Call[Login, None]) -> Response:
    """Establish who is at the browser, then go to redirect_uri with the same state."""
    logins, query = call.services.logins, call.query
    limit_logins(logins.catalog, logins.settings, call.request, logins.clock())
    target = logins.targets.asked(query.redirect_uri, query.state, now=logins.clock())
    return go(first_page(logins, target, again=is_again(call.request)))


@operation(
    "GET",
    "/logout",
    tag=TAG,
    query=LogoutQuery,
    answers={
        200: Answer("Nobody is logged in any more: a page that says so."),
        302: Answer("To the provider, which ends its own session, or to the application."),
    },
    errors=(400, 429),
    identified=False,
    counted=False,
    acts=True,
)
def get_logout(call: Call[Logout, None]) -> Response:
    """End the browser's session here and, where it offers that, at the identity provider."""
    logins = call.services.logins
    limit_logins(logins.catalog, logins.settings, call.request, logins.clock())
    ended = _end(logins)
    # Who wants to be logged out is, even when the address afterwards is not one to go to.
    onward = _onward(logins, call.query)
    response = _leave(logins, ended, onward)
    logins.cookies.clear(response, COOKIE)
    return response


def register_logins(app: Flask, logins: Logins) -> None:
    """The pages of logging in, of accounts, and of having logged out."""
    register_choice(app, logins)
    register_local_pages(app, logins)
    register_upstream_pages(app, logins)
    register_account_pages(app, logins)
    add_page(app, logins, LEFT, partial(left, logins), "GET")


def left(logins: Logins) -> Response:
    """Back from the provider, which ended its session: on to where the log-out was to lead."""
    opened = logins.seals.open("leaving", request.args.get("state"), now=logins.clock())
    return go(opened[0]) if opened and opened[0] else _out(logins)


def _end(logins: Logins) -> Session | None:
    found = logins.session(request)
    if found is not None:
        leave(logins.catalog, found, logins.cookie(request), g.request_id)
    return found


def _leave(logins: Logins, ended: Session | None, onward: str) -> Response:
    provider = logins.providers.get(ended.provider) if ended else None
    if provider is not None:
        back = logins.settings.auth_url + LEFT
        state = logins.seals.seal("leaving", [onward], ends=logins.clock() + LEAVING_S)
        if url := provider.logout_url(back, state):
            return go(url)
    return go(onward) if onward else _out(logins)


def _out(logins: Logins) -> Response:
    again = logins.settings.auth_url + ACCOUNT
    return message(OUT, title="Logged out", href=again, way="Log in again")


def _onward(logins: Logins, query: Logout) -> str:
    """Where to go afterwards: an address that the application registered, or nowhere."""
    client_id = query.client_id or logins.settings.default_client
    uris = logins.addresses(client_id) if client_id else None
    if query.client_id and uris is None:
        raise Invalid("client_id: No such client.", errors={"client_id": ["No such client."]})
    if not query.post_logout_redirect_uri:
        return ""
    if uris is None or query.post_logout_redirect_uri not in uris:
        told = "The client did not register it."
        errors = {"post_logout_redirect_uri": [told]}
        raise Invalid(f"post_logout_redirect_uri: {told}", errors=errors)
    return with_state(query.post_logout_redirect_uri, query.state)
