"""The page where a person enters the code of a device, sees what asks, and decides (RFC 8628, 3.3).

It always asks: somebody else may have sent the person here with a code of theirs.
"""

from functools import partial
from typing import Any

from flask import Flask, Response, request

from api.authservice.frame import add_page, message
from api.authservice.openid.visiting import (
    at_browser,
    carried,
    carry,
    is_of,
    meanings,
    to_login,
    visitor,
)
from api.authservice.pages import go, page
from api.authservice.services import AuthServices
from auth.login.sessions import Session
from auth.openid import devices
from auth.openid.devices import Waiting
from auth.openid.errors import Shown
from auth.openid.granting import person_of
from auth.openid.provider import Provider
from storage.errors import Forbidden

PATH = "/device"
CONFIRM = "/device/confirm"
PURPOSE = "device"
UNKNOWN = "No device waits with this code. Look again, or let the device show a new one."
OVER = "The device does not wait any more. Begin again there."
SHOWN = 16
"""Characters of a code that are shown again."""


def register_device(app: Flask, services: AuthServices) -> None:
    """The pages."""
    for path, view, method, name in (
        (PATH, _form, "GET", "get_device"),
        (PATH, _entered, "POST", "post_device"),
        (CONFIRM, _decided, "POST", "post_device_confirm"),
    ):
        add_page(app, services.logins, path, partial(view, services), method, name=name)
    add_page(app, services.logins, CONFIRM, partial(go, PATH), "GET")


@at_browser
def _form(services: AuthServices) -> Response:
    code = request.args.get("user_code", "")[:SHOWN]
    session = visitor(services, request)
    return _login(code) if session is None else _page(session, code)


@at_browser
def _entered(services: AuthServices) -> Response:
    form, session = request.form, visitor(services, request)
    code = form.get("user_code", "")[:SHOWN]
    if session is None:
        return _login(code)
    if not is_of(session, form):
        return _page(session, code)
    found = devices.entered(services.provider, code, session.email, services.logins.local.patience)
    if found is None:
        return _page(session, code, error=UNKNOWN)
    return _ask(services, session, found, code)


@at_browser
def _decided(services: AuthServices) -> Response:
    form, session = request.form, visitor(services, request)
    what = carried(services, PURPOSE, form.get("carried", ""))
    if session is None or what is None or not is_of(session, form):
        raise Shown("access_denied", OVER)
    allow = form.get("decision") == "allow"
    if what["session"] != session.id or not _decide(services.provider, session, what, allow=allow):
        raise Shown("expired_token", OVER)
    if not allow:
        return message("The device was told that you said no.", title="Not allowed")
    return message("The device goes on by itself. Close this page.")


def _decide(provider: Provider, session: Session, what: dict[str, Any], *, allow: bool) -> bool:
    try:
        with provider.catalog.write() as tx:
            return devices.decide(tx, provider, what["device"], person_of(session), allow=allow)
    except Forbidden as error:
        raise Shown("access_denied", "You may not use this service.") from error


def _login(code: str) -> Response:
    plain = code.isascii() and code.replace("-", "").isalnum()
    return to_login(f"{PATH}?user_code={code}" if plain else PATH)


def _page(session: Session, code: str, error: str = "") -> Response:
    return page(
        "device.html",
        "Connect a device",
        status=400 if error else 200,
        action=PATH,
        email=session.email,
        csrf=session.csrf,
        entered=code,
        error=error,
    )


def _ask(services: AuthServices, session: Session, found: Waiting, code: str) -> Response:
    what = {"device": found.id, "session": session.id}
    return page(
        "consent.html",
        "Allow access for this device?",
        client=found.client.name,
        email=session.email,
        code=devices.as_shown(code),
        meanings=meanings(found.scopes),
        action=CONFIRM,
        csrf=session.csrf,
        carried=carry(services, PURPOSE, what),
    )
