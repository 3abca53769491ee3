"""Pages of a person's own login: sessions, applications with access, and password."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps

from flask import Response, g, request

from api.authz.login.providers import ACCOUNT_DISABLED, STALE_FORM
from api.authz.pages import (
    TOO_MANY_ATTEMPTS,
    AuthPage,
    LoginServices,
    format_retry,
    is_form_of_session,
    redirect_to,
    render_message,
    render_page,
)
from api.http.errors import add_retry_after
from auth.login import passwords
from auth.login.sessions import BrowserSession, record_login_event
from auth.oauth import authorize, clients
from storage.catalog import login
from storage.errors import Forbidden, Invalid, TooManyRequests, Unauthorized

ACCOUNT_PATH, PASSWORD_PATH = "/login/account", "/login/password"
APPLICATIONS_PATH, LOGOUT_EVERYWHERE_PATH = "/login/applications", "/login/everywhere"
PASSWORD_CHANGED = "Your password is changed. All your other logins have ended."
PASSWORDS_DIFFER = "The two new passwords differ."
WRONG_PASSWORD = "The current password is wrong."
GRANT_REVOKED = "Access revoked."
GRANT_ALREADY_REVOKED = "This access was already revoked."
LoginView = Callable[[LoginServices], Response]
LOGGED_OUT_EVERYWHERE = (
    "You are logged out in all browsers, and no application has access to your account."
)


def show_account(logins: LoginServices) -> Response:
    """Show the account page, or redirect to the login page."""
    session = logins.find_session(request)
    return _redirect_to_login(logins, 302) if session is None else _render_account(logins, session)


def _of_session(act: Callable[[LoginServices, BrowserSession], Response]) -> LoginView:
    """Decorate a form's view: it gets the session that the form was rendered for."""

    @wraps(act)
    def handle(logins: LoginServices) -> Response:
        session = logins.find_session(request)
        if session is None:
            return _redirect_to_login(logins, 303)
        if not is_form_of_session(session, request.form):
            return _render_account(logins, session, error=STALE_FORM, status=403)
        return act(logins, session)

    return handle


def redirect_to_account(logins: LoginServices) -> Response:
    """Redirect to the account page."""
    return redirect_to(logins.settings.auth_url + ACCOUNT_PATH)


def _redirect_to_login(logins: LoginServices, status: int) -> Response:
    return redirect_to(f"{logins.settings.auth_url}/login?redirect_uri={ACCOUNT_PATH}", status)


@_of_session
def revoke_application(logins: LoginServices, session: BrowserSession) -> Response:
    """Revoke the access of one application."""
    grant_id, now_us = request.form.get("grant", ""), int(logins.clock() * 1e6)
    with logins.catalog.write() as tx:
        ended = authorize.revoke_grant(tx, session.email, grant_id, now_us, g.request_id)
    return _render_account(logins, session, done=GRANT_REVOKED if ended else GRANT_ALREADY_REVOKED)


@_of_session
def log_out_everywhere(logins: LoginServices, session: BrowserSession) -> Response:
    """End all sessions of the user and all access of applications."""
    with logins.catalog.write() as tx:
        login.end_logins(tx, session.email)
        record_login_event(tx, session.email, "logout_everywhere", session.email, g.request_id)
    again = logins.settings.auth_url + ACCOUNT_PATH
    response = render_message(
        LOGGED_OUT_EVERYWHERE, title="Logged out", href=again, way="Log in again"
    )
    return logins.clear_session_cookie(response)


@_of_session
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
    attempt = logins.build_attempt(request, session.email)
    current, new = request.form.get("password", ""), request.form.get("new", "")
    passwords.change_own_password(logins.local, attempt, current, new)
    cookie, new_session = logins.log_in(request, session.email, session.provider)
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
    own = clients.built_in_clients(logins.settings)
    with logins.catalog.read() as tx:
        grants = authorize.list_application_grants(tx, own, email, int(logins.clock() * 1e6))
    return [
        {
            "id": grant.id,
            "client": grant.client,
            "since": _format_time(grant.since_us / 1e6),
            "used": _format_time(grant.used_us / 1e6) if grant.used_us else "never",
            "scopes": ", ".join(grant.scopes) or "none",
        }
        for grant in grants
    ]


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


PAGES = (
    AuthPage("GET", ACCOUNT_PATH, show_account),
    AuthPage("POST", PASSWORD_PATH, change_password),
    AuthPage("POST", APPLICATIONS_PATH, revoke_application),
    AuthPage("POST", LOGOUT_EVERYWHERE_PATH, log_out_everywhere),
    # The browser shows these addresses after a form was sent, so a reload may GET them.
    AuthPage("GET", PASSWORD_PATH, redirect_to_account),
    AuthPage("GET", APPLICATIONS_PATH, redirect_to_account),
    AuthPage("GET", LOGOUT_EVERYWHERE_PATH, redirect_to_account),
)
