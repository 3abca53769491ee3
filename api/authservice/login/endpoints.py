"""The operation of logging in; logging out and the pages are the other modules here."""

from flask import Flask, Response

from api.authservice.limits import limit_logins
from api.authservice.login.account import register_account_pages
from api.authservice.login.choosing import Way, first_page, is_again, register_choice
from api.authservice.login.local import register_local_pages
from api.authservice.login.logins import Logins
from api.authservice.login.logout import register_logout
from api.authservice.login.upstream import register_upstream_pages
from api.authservice.pages import go
from api.authservice.schemas.logins import Login, LoginQuery
from api.authservice.services import Call
from api.operation import Answer, operation

TAG = "login"


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
    way = Way(target, again=is_again(call.request), hint=query.login_hint or "")
    return go(first_page(logins, way))


def register_logins(app: Flask, logins: Logins) -> None:
    """The pages of logging in, of accounts, and of having logged out."""
    register_choice(app, logins)
    register_local_pages(app, logins)
    register_upstream_pages(app, logins)
    register_account_pages(app, logins)
    register_logout(app, logins)
