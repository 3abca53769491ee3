"""To a provider and back: what a browser brings is believed once, and only of the browser that was
sent.
"""

import logging
from functools import partial

from flask import Flask, Response, g, request

from api.authservice.frame import add_page, failed, message
from api.authservice.login.choosing import (
    OVER,
    UPSTREAM,
    is_again,
    login_hint,
    once_more,
    target_url,
)
from api.authservice.login.logins import Logins
from api.authservice.pages import go
from api.throttle import address
from auth.login import lockout
from auth.login.entering import Known, enter
from auth.login.recording import Failed, record_failure
from auth.login.upstream import Login, Provider
from storage.errors import Forbidden, Invalid, NotFound, StoreError, Unavailable

log = logging.getLogger(__name__)

CALLBACK = "/login/callback"
REFUSED = "{title} did not log you in. You can try again, or log in another way."
UNUSABLE = "What {title} answered cannot be used here. You can try again."
AWAY = "{title} cannot be reached. You can try again, or log in another way."


def register_upstream_pages(app: Flask, logins: Logins) -> None:
    """The pages of logging in elsewhere."""
    add_page(app, logins, f"{UPSTREAM}/<name>", partial(send_away, logins), "GET", acts=True)
    add_page(app, logins, f"{CALLBACK}/<name>", partial(come_back, logins), "GET", acts=True)


def send_away(logins: Logins, name: str) -> Response:
    """To the provider, with a state that only this browser may bring back, once."""
    provider, target = _provider(logins, name), request.args.get("next", "")
    target_url(logins, target)
    departure, browser = logins.travels.begin(_callback(logins, name)), logins.browser(request)
    try:
        url = provider.url(departure.login, again=is_again(request), hint=login_hint(request))
    except StoreError as error:
        return _told(logins, error, provider, target)
    logins.travels.send(departure, name, browser, target)
    return logins.bind(go(url), browser)


def come_back(logins: Logins, name: str) -> Response:
    """From the provider: the state is taken, the code exchanged, and somebody is known."""
    provider = _provider(logins, name)
    login, target = _taken(logins, name)
    url = target_url(logins, target)
    code = request.args.get("code")
    try:
        provider.check_issuer(request.args.get("iss"))
        if code is None or "error" in request.args:
            refused = REFUSED.format(title=provider.upstream.title)
            return message(refused, status=403, **once_more(logins, target))
        email = provider.email(login, code)
        cookie = _entered(logins, email, name)
    except StoreError as error:
        _record(logins, name)
        return _told(logins, error, provider, target)
    return logins.logged_in(go(url, 303), cookie)


def _taken(logins: Logins, name: str) -> tuple[Login, str]:
    state, browser = request.args.get("state"), logins.browser(request)
    found = logins.travels.take_back(name, state, browser, _callback(logins, name))
    if found is None:
        raise Invalid(OVER)
    return found


def _entered(logins: Logins, email: str, name: str) -> str:
    known = Known(email, name, logins.clock(), g.request_id, logins.cookie(request))
    cookie, _ = enter(logins.catalog, known, logins.lifetimes)
    return cookie


def _record(logins: Logins, name: str) -> None:
    seen = address(request, logins.settings.proxies)
    attempt = Failed("", logins.clock(), g.request_id)
    with logins.catalog.write(durable=False) as tx:
        lockout.forget(tx, attempt.at)
        whose = (lockout.address(seen),)
        record_failure(tx, "login_failed", attempt, of=whose, address=seen, provider=name)


def _told(logins: Logins, error: StoreError, provider: Provider, target: str) -> Response:
    """What the person can do something about; the rest is for the log."""
    log.warning("login by %s: %s", provider.upstream.name, error.detail)
    again = once_more(logins, target)
    if isinstance(error, Forbidden):
        return failed(error, **again)
    text = AWAY if isinstance(error, Unavailable) else UNUSABLE
    return failed(error, text.format(title=provider.upstream.title), **again)


def _callback(logins: Logins, name: str) -> str:
    return f"{logins.settings.auth_url}{CALLBACK}/{name}"


def _provider(logins: Logins, name: str) -> Provider:
    if name not in logins.providers:
        raise NotFound("There is no such provider here.")
    return logins.providers[name]
