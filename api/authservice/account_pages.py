"""What somebody sees of their own login: who they are here, and another password."""

from datetime import UTC, datetime

from flask import Flask, Response, g, request

from api.authservice.login_pages import DISABLED, STALE, add_page
from api.authservice.logins import Logins
from api.authservice.pages import go, lasting, page
from api.authservice.visiting import is_of
from api.throttle import address
from auth.login import local
from auth.login.entering import Known, enter
from auth.login.sessions import Session
from storage.errors import Forbidden, Invalid, TooMany, Unauthorized

ACCOUNT, PASSWORD = "/login/account", "/login/password"
CHANGED = "Your password is changed, and every other login of yours has ended."
UNLIKE = "The new password was not the same both times."
WRONG = "The password so far is not right."


def register_account_pages(app: Flask, logins: Logins) -> None:
    """The pages of who is logged in."""
    add_page(app, logins, ACCOUNT, account, "GET")
    add_page(app, logins, PASSWORD, change_password, "POST")


def account(logins: Logins) -> Response:
    """Who is logged in; who is not is sent to log in first."""
    found = logins.session(request)
    if found is None:
        return go(f"{logins.settings.auth_url}/login?redirect_uri={ACCOUNT}")
    return _shown(logins, found)


def change_password(logins: Logins) -> Response:
    """Another password, for who knows the one so far."""
    found = logins.session(request)
    if found is None:
        return go(f"{logins.settings.auth_url}/login?redirect_uri={ACCOUNT}", 303)
    if not is_of(found, request.form):
        return _shown(logins, found, error=STALE, status=403)
    if request.form.get("new") != request.form.get("again"):
        return _shown(logins, found, error=UNLIKE, fault="again", status=400)
    try:
        return _changed(logins, found)
    except TooMany as error:
        told = f"Too many tries have failed. Try again in {lasting(error.retry_after_s)}."
        shown = _shown(logins, found, error=told, status=429)
        shown.headers["Retry-After"] = str(error.retry_after_s)
        return shown
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
        since=datetime.fromtimestamp(found.at_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        local=is_local and logins.settings.local_logins,
        least=logins.settings.password_min,
        action=logins.settings.auth_url + PASSWORD,
        logout=f"{logins.settings.auth_url}/logout",
        csrf=found.csrf,
        done=done,
        error=error,
        fault=fault,
    )
