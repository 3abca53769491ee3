"""The page where a person enters the code of a device, sees what asks, and decides (RFC 8628, 3.3).

It always asks: somebody else may have sent the person here with a code of theirs.
"""

from functools import partial
from typing import Any

from flask import Flask, Response, g, request

from api.authservice.openid.authorize import at_browser
from api.authservice.openid.visiting import fields, is_of, meanings, to_login, visitor
from api.authservice.pages import page
from api.authservice.services import AuthServices
from auth.login.sessions import Session
from auth.openid import carrying, devices
from auth.openid.devices import Waiting
from auth.openid.errors import Shown
from auth.openid.granting import person_of
from auth.openid.provider import Provider
from storage.errors import Forbidden

PATH = "/device"
CONFIRM = "/device/confirm"
UNKNOWN = "No device waits with this code. Look again, or let the device show a new one."
OVER = "The device does not wait any more. Begin again there."
SHOWN = 16
"""Characters of a code that are shown again."""


def register_device(app: Flask, services: AuthServices) -> None:
    """The three pages."""
    app.add_url_rule(PATH, "device", partial(_form, services), methods=["GET"])
    app.add_url_rule(PATH, "device code", partial(_entered, services), methods=["POST"])
    app.add_url_rule(CONFIRM, "device confirm", partial(_decided, services), methods=["POST"])


@at_browser
def _form(services: AuthServices, _provider: Provider) -> Response:
    g.operation = "get_device"
    code = request.args.get("user_code", "")[:SHOWN]
    session = visitor(services, request)
    return _login(code) if session is None else _page(session, code)


@at_browser
def _entered(services: AuthServices, provider: Provider) -> Response:
    g.operation = "post_device"
    form, session = fields(request), visitor(services, request)
    code = form.get("user_code", "")[:SHOWN]
    if session is None:
        return _login(code)
    if not is_of(session, form):
        return _page(session, code)
    found = devices.entered(provider, code, session.email, services.logins.local.patience)
    if found is None:
        return _page(session, code, error=UNKNOWN)
    return _ask(provider, session, found, code)


@at_browser
def _decided(services: AuthServices, provider: Provider) -> Response:
    g.operation = "post_device_confirm"
    form, session = fields(request), visitor(services, request)
    what = carrying.opened(
        provider.sealer, carrying.DEVICE, form.get("carried", ""), provider.clock()
    )
    if session is None or what is None or not is_of(session, form):
        raise Shown("access_denied", OVER)
    if what["session"] != session.id or not _decide(provider, session, what, form):
        raise Shown("expired_token", OVER)
    if form.get("decision") != "allow":
        return page("message.html", "Not allowed", text="The device was told that you said no.")
    return page("message.html", "Done", text="The device goes on by itself. Close this page.")


def _decide(
    provider: Provider, session: Session, what: dict[str, Any], form: dict[str, str]
) -> bool:
    allow = form.get("decision") == "allow"
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


def _ask(provider: Provider, session: Session, found: Waiting, code: str) -> Response:
    what = {"device": found.id, "session": session.id}
    return page(
        "consent.html",
        "Allow this device?",
        client=found.client.name,
        email=session.email,
        code=devices.as_shown(code),
        meanings=meanings(found.scopes),
        action=CONFIRM,
        csrf=session.csrf,
        carried=carrying.seal(provider.sealer, carrying.DEVICE, what, provider.clock()),
    )
