"""Pages where a user enters and confirms a device code (RFC 8628, section 3.3).

Consent is always asked for, because an attacker may have sent the user here with a code.
"""

from typing import Any

from flask import Response, request

from api.authz.context import AuthServices
from api.authz.oauth.authorize import (
    describe_scopes,
    handle_browser_errors,
    open_from_browser,
    redirect_to_login,
    seal_for_browser,
)
from api.authz.pages import AuthPage, is_form_of_session, redirect_to, render_message, render_page
from auth.login.sessions import BrowserSession
from auth.oauth import device
from auth.oauth.device import PendingDevice
from auth.oauth.provider import OAuthProvider, UserFacingError
from storage.errors import Forbidden

DEVICE_PATH = "/device"
CONFIRM_PATH = "/device/confirm"
PURPOSE = "device"
UNKNOWN_CODE = "Unknown code. Check it, or request a new one on the device."
DEVICE_EXPIRED = "This request has expired. Start again on the device."
MAX_SHOWN_CODE = 16
"""Characters of an entered code that the form shows again."""


@handle_browser_errors
def _show_form(services: AuthServices) -> Response:
    code = request.args.get("user_code", "")[:MAX_SHOWN_CODE]
    session = services.logins.find_session(request)
    return _redirect_to_login(code) if session is None else _render_form(session, code)


@handle_browser_errors
def _submit_code(services: AuthServices) -> Response:
    form, session = request.form, services.logins.find_session(request)
    code = form.get("user_code", "")[:MAX_SHOWN_CODE]
    if session is None:
        return _redirect_to_login(code)
    if not is_form_of_session(session, form):
        return _render_form(session, code)
    pending = device.enter_user_code(
        services.provider, code, session.email, services.logins.local.patience
    )
    if pending is None:
        return _render_form(session, code, error=UNKNOWN_CODE)
    return _render_consent(services, session, pending, code)


@handle_browser_errors
def _handle_decision(services: AuthServices) -> Response:
    form, session = request.form, services.logins.find_session(request)
    state = open_from_browser(services, PURPOSE, form.get("carried", ""))
    if session is None or state is None or not is_form_of_session(session, form):
        raise UserFacingError("access_denied", DEVICE_EXPIRED)
    allow = form.get("decision") == "allow"
    if state["session"] != session.id or not _record_decision(
        services.provider, session, state, allow=allow
    ):
        raise UserFacingError("expired_token", DEVICE_EXPIRED)
    if not allow:
        return render_message("You denied access. You can close this page.", title="Access denied")
    return render_message("The device is connected. You can close this page.")


def _record_decision(
    provider: OAuthProvider, session: BrowserSession, state: dict[str, Any], *, allow: bool
) -> bool:
    try:
        with provider.catalog.write() as tx:
            return device.decide_device(tx, provider, state["device"], session, allow=allow)
    except Forbidden as error:
        raise UserFacingError("access_denied", "Your account is disabled.") from error


def _redirect_to_login(code: str) -> Response:
    plain = code.isascii() and code.replace("-", "").isalnum()
    return redirect_to_login(f"{DEVICE_PATH}?user_code={code}" if plain else DEVICE_PATH)


def _render_form(session: BrowserSession, code: str, error: str = "") -> Response:
    return render_page(
        "device.html",
        "Connect a device",
        status=400 if error else 200,
        action=DEVICE_PATH,
        email=session.email,
        csrf=session.csrf,
        entered=code,
        error=error,
    )


def _render_consent(
    services: AuthServices, session: BrowserSession, pending: PendingDevice, code: str
) -> Response:
    state = {"device": pending.id, "session": session.id}
    return render_page(
        "consent.html",
        "Allow access for this device?",
        client=pending.client.name,
        email=session.email,
        code=device.format_user_code(code),
        meanings=describe_scopes(pending.scopes),
        action=CONFIRM_PATH,
        csrf=session.csrf,
        carried=seal_for_browser(services, PURPOSE, state),
    )


def _redirect_to_form(_services: AuthServices) -> Response:
    return redirect_to(DEVICE_PATH)


PAGES = (
    AuthPage("GET", DEVICE_PATH, _show_form, "get_device"),
    AuthPage("POST", DEVICE_PATH, _submit_code, "post_device"),
    AuthPage("POST", CONFIRM_PATH, _handle_decision, "post_device_confirm"),
    AuthPage("GET", CONFIRM_PATH, _redirect_to_form),
)
