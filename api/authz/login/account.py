"""Pages of a person's own login: sessions, applications with access, and password."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from flask import Flask, Response, g, request

from api.authz.login.providers import ACCOUNT_DISABLED, STALE_FORM
from api.authz.oauth.browser import is_form_of_session
from api.authz.pages import (
    TOO_MANY_ATTEMPTS,
    LoginServices,
    add_page,
    format_retry,
    redirect_to,
    render_message,
    render_page,
)
from api.http.errors import add_retry_after
from api.http.limits import address_key
from auth.login import passwords
from auth.login.sessions import (
    SESSION_COOKIE,
    AuthenticatedUser,
    BrowserSession,
    log_in_user,
    record_login_event,
)
from auth.oauth import clients, consents
from storage.catalog import login
from storage.errors import Forbidden, Invalid, TooManyRequests, Unauthorized

ACCOUNT_PATH, PASSWORD_PATH = "/login/account", "/login/password"
APPLICATIONS_PATH, LOGOUT_EVERYWHERE_PATH = "/login/applications", "/login/everywhere"
PASSWORD_CHANGED = "Your password is changed. All your other logins have ended."
PASSWORDS_DIFFER = "The two new passwords differ."
WRONG_PASSWORD = "The current password is wrong."
GRANT_REVOKED = "Access revoked."
GRANT_ALREADY_REVOKED = "This access was already revoked."
LOGGED_OUT_EVERYWHERE = (
    "You are logged out in all browsers, and no application has access to your account."
)


def register_account_pages(app: Flask, logins: LoginServices) -> None:
    """Register the pages of the logged-in user."""
    add_page(app, logins, ACCOUNT_PATH, partial(show_account, logins), "GET")
    for path, act in (
        (PASSWORD_PATH, change_password),
        (APPLICATIONS_PATH, revoke_application),
        (LOGOUT_EVERYWHERE_PATH, log_out_everywhere),
    ):
        add_page(app, logins, path, partial(_handle_form, act, logins), "POST")
        # The browser shows this address after a form was sent, so a reload may GET it.
        add_page(app, logins, path, partial(_redirect_to_account, logins), "GET")


def show_account(logins: LoginServices) -> Response:
    """Show the account page, or redirect to the login page."""
    session = logins.find_session(request)
    return _redirect_to_login(logins, 302) if session is None else _render_account(logins, session)


def _handle_form(
    act: Callable[[LoginServices, BrowserSession], Response], logins: LoginServices
) -> Response:
    """Handle a form if it was rendered for this session."""
    session = logins.find_session(request)
    if session is None:
        return _redirect_to_login(logins, 303)
    if not is_form_of_session(session, request.form):
        return _render_account(logins, session, error=STALE_FORM, status=403)
    return act(logins, session)


def _redirect_to_account(logins: LoginServices) -> Response:
    return redirect_to(logins.settings.auth_url + ACCOUNT_PATH)


def _redirect_to_login(logins: LoginServices, status: int) -> Response:
    return redirect_to(f"{logins.settings.auth_url}/login?redirect_uri={ACCOUNT_PATH}", status)


def revoke_application(logins: LoginServices, session: BrowserSession) -> Response:
    """Revoke the access of one application."""
    grant_id, now_us = request.form.get("grant", ""), int(logins.clock() * 1e6)
    with logins.catalog.write() as tx:
        ended = consents.revoke_grant(tx, session.email, grant_id, now_us, g.request_id)
    return _render_account(logins, session, done=GRANT_REVOKED if ended else GRANT_ALREADY_REVOKED)


def log_out_everywhere(logins: LoginServices, session: BrowserSession) -> Response:
    """End all sessions of the user and all access of applications."""
    with logins.catalog.write() as tx:
        login.end_logins(tx, session.email)
        record_login_event(tx, session.email, "logout_everywhere", session.email, g.request_id)
    again = logins.settings.auth_url + ACCOUNT_PATH
    response = render_message(
        LOGGED_OUT_EVERYWHERE, title="Logged out", href=again, way="Log in again"
    )
    logins.cookies.clear(response, SESSION_COOKIE)
    return response


def change_password(logins: LoginServices, session: BrowserSession) -> Response:
    """Change the password of a user who enters the current password."""
    if request.form.get("new") != request.form.get("again"):
        return _render_account(logins, session, error=PASSWORDS_DIFFER, fault="again", status=400)
    try:
        return _set_password(logins, session)
    except TooManyRequests as error:
        text = format_retry(TOO_MANY_ATTEMPTS, error.retry_after_s)
        page = _render_account(logins, session, error=text, status=429)
        return add_retry_after(page, error.code, error.retry_after_s)
    except Unauthorized:
        return _render_account(logins, session, error=WRONG_PASSWORD, fault="password", status=403)
    except Invalid as error:
        return _render_account(logins, session, error=error.detail, fault="new", status=400)
    except Forbidden:
        return _render_account(logins, session, error=ACCOUNT_DISABLED, status=403)


def _set_password(logins: LoginServices, session: BrowserSession) -> Response:
    attempt = passwords.LoginAttempt(
        email=session.email,
        address=address_key(request, logins.settings.proxies),
        browser=logins.known_browser(request, session.email),
        at=logins.clock(),
        request_id=g.request_id,
    )
    current, new = request.form.get("password", ""), request.form.get("new", "")
    passwords.change_own_password(logins.local, attempt, current, new)
    user = AuthenticatedUser(session.email, session.provider, logins.clock(), g.request_id)
    cookie, new_session = log_in_user(logins.catalog, user, logins.lifetimes)
    page = _render_account(logins, new_session, done=PASSWORD_CHANGED)
    return logins.set_session_cookie(page, cookie)


def _render_account(
    logins: LoginServices,
    session: BrowserSession,
    *,
    done: str = "",
    error: str = "",
    fault: str = "",
    status: int = 200,
) -> Response:
    """Render the account page; `fault` names the field that an error is about."""
    is_local = session.provider == passwords.PASSWORD_PROVIDER
    provider = logins.providers.get(session.provider)
    return render_page(
        "account.html",
        "Your account",
        status=status,
        email=session.email,
        provider=provider.upstream.title if provider else "e-mail address and password",
        since=_format_time(session.at_s),
        applications=_list_applications(logins, session.email),
        end_action=logins.settings.auth_url + APPLICATIONS_PATH,
        everywhere=logins.settings.auth_url + LOGOUT_EVERYWHERE_PATH,
        local=is_local and logins.settings.local_logins,
        least=logins.settings.password_min,
        action=logins.settings.auth_url + PASSWORD_PATH,
        logout=f"{logins.settings.auth_url}/logout/confirm",
        csrf=session.csrf,
        done=done,
        error=error,
        fault=fault,
    )


def _list_applications(logins: LoginServices, email: str) -> list[dict[str, str]]:
    """Return the grants of the user's applications, formatted for the page."""
    own = clients.built_in_clients(logins.settings.web_redirect_uris)
    with logins.catalog.read() as tx:
        grants = consents.list_application_grants(tx, own, email, int(logins.clock() * 1e6))
    return [
        {
            "id": grant.id,
            "client": grant.client,
            "since": _format_time(grant.since_us / 1e6),
            "used": _format_time(grant.used_us / 1e6),
            "scopes": ", ".join(grant.scopes) or "none",
        }
        for grant in grants
    ]


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
