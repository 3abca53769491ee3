"""What somebody sees of their own login: who they are here, what applications have of them, another
password, and the way out of all of it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from flask import Flask, Response, g, request

from api.authservice.frame import TOO_MANY, add_page, message
from api.authservice.login.local import DISABLED, STALE
from api.authservice.login.logins import Logins
from api.authservice.openid.visiting import is_of
from api.authservice.pages import again_in, go, page
from api.errors import with_retry_after
from api.throttle import address
from auth.login import local
from auth.login.entering import Known, enter
from auth.login.recording import record_login
from auth.login.sessions import COOKIE, Session
from auth.openid import clients, holding
from storage.catalog import logins as rows
from storage.errors import Forbidden, Invalid, TooMany, Unauthorized

ACCOUNT, PASSWORD = "/login/account", "/login/password"
APPLICATIONS, EVERYWHERE = "/login/applications", "/login/everywhere"
CHANGED = "Your password is changed, and every other login of yours has ended."
UNLIKE = "The new password was not the same both times."
WRONG = "The password so far is not right."
OVER = "It is over: that application can do nothing for you any more."
WAS_OVER = "That is over already."
OUT = "You are logged out in every browser, and no application acts for you any more."


def register_account_pages(app: Flask, logins: Logins) -> None:
    """The pages of who is logged in."""
    add_page(app, logins, ACCOUNT, partial(account, logins), "GET")
    for path, act in (
        (PASSWORD, change_password),
        (APPLICATIONS, end_application),
        (EVERYWHERE, end_everywhere),
    ):
        add_page(app, logins, path, partial(_of_session, act, logins), "POST")
        # A browser still shows the address of a form that was sent: it may be gone to again.
        add_page(app, logins, path, partial(_to_account, logins), "GET")


def account(logins: Logins) -> Response:
    """Who is logged in; who is not is sent to log in first."""
    found = logins.session(request)
    return _to_login(logins, 302) if found is None else _shown(logins, found)


def _of_session(act: Callable[[Logins, Session], Response], logins: Logins) -> Response:
    """Do what a form asks for, if this very session was shown it."""
    found = logins.session(request)
    if found is None:
        return _to_login(logins, 303)
    if not is_of(found, request.form):
        return _shown(logins, found, error=STALE, status=403)
    return act(logins, found)


def _to_account(logins: Logins) -> Response:
    return go(logins.settings.auth_url + ACCOUNT)


def _to_login(logins: Logins, status: int) -> Response:
    return go(f"{logins.settings.auth_url}/login?redirect_uri={ACCOUNT}", status)


def end_application(logins: Logins, found: Session) -> Response:
    """One application acts for this person no more."""
    grant_id, now_us = request.form.get("grant", ""), int(logins.clock() * 1e6)
    with logins.catalog.write() as tx:
        ended = holding.end(tx, found.email, grant_id, now_us, g.request_id)
    return _shown(logins, found, done=OVER if ended else WAS_OVER)


def end_everywhere(logins: Logins, found: Session) -> Response:
    """All that this person's logins gave is over, this one with it."""
    with logins.catalog.write() as tx:
        rows.end_all(tx, found.email)
        record_login(tx, found.email, "logout_everywhere", found.email, g.request_id)
    again = logins.settings.auth_url + ACCOUNT
    response = message(OUT, title="Logged out", href=again, way="Log in again")
    logins.cookies.clear(response, COOKIE)
    return response


def change_password(logins: Logins, found: Session) -> Response:
    """Another password, for who knows the one so far."""
    if request.form.get("new") != request.form.get("again"):
        return _shown(logins, found, error=UNLIKE, fault="again", status=400)
    try:
        return _changed(logins, found)
    except TooMany as error:
        told = again_in(TOO_MANY, error.retry_after_s)
        shown = _shown(logins, found, error=told, status=429)
        return with_retry_after(shown, error.code, error.retry_after_s)
    except Unauthorized:
        return _shown(logins, found, error=WRONG, fault="password", status=403)
    except Invalid as error:
        return _shown(logins, found, error=error.detail, fault="new", status=400)
    except Forbidden:
        return _shown(logins, found, error=DISABLED, status=403)


def _changed(logins: Logins, found: Session) -> Response:
    tried = local.Try(
        email=found.email,
        address=address(request, logins.settings.proxies),
        browser=logins.before(request, found.email),
        at=logins.clock(),
        request_id=g.request_id,
    )
    given = request.form.get("password", ""), request.form.get("new", "")
    local.change(logins.local, tried, *given)
    known = Known(found.email, found.provider, logins.clock(), g.request_id)
    cookie, made = enter(logins.catalog, known, logins.lifetimes)
    shown = _shown(logins, made, done=CHANGED)
    return logins.logged_in(shown, cookie)


def _shown(
    logins: Logins,
    found: Session,
    *,
    done: str = "",
    error: str = "",
    fault: str = "",
    status: int = 200,
) -> Response:
    """The page; `fault` names the field that an error is about."""
    is_local = found.provider == local.NAME
    provider = logins.providers.get(found.provider)
    return page(
        "account.html",
        "Your login",
        status=status,
        email=found.email,
        provider=provider.upstream.title if provider else "e-mail address and password",
        since=_when(found.at_s),
        applications=_applications(logins, found.email),
        end_action=logins.settings.auth_url + APPLICATIONS,
        everywhere=logins.settings.auth_url + EVERYWHERE,
        local=is_local and logins.settings.local_logins,
        least=logins.settings.password_min,
        action=logins.settings.auth_url + PASSWORD,
        logout=f"{logins.settings.auth_url}/logout/confirm",
        csrf=found.csrf,
        done=done,
        error=error,
        fault=fault,
    )


def _applications(logins: Logins, email: str) -> list[dict[str, str]]:
    """What applications have of this person, as the page shows it."""
    own = clients.built_in(logins.settings.web_redirect_uris)
    with logins.catalog.read() as tx:
        held = holding.of(tx, own, email, int(logins.clock() * 1e6))
    return [
        {
            "id": one.id,
            "client": one.client,
            "since": _when(one.since_us / 1e6),
            "used": _when(one.used_us / 1e6),
            "scopes": ", ".join(one.scopes) or "nothing but being you",
        }
        for one in held
    ]


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
