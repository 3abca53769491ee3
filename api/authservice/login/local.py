"""The local provider's form: plain pages that work without scripts."""

from functools import partial

from flask import Flask, Response, g, request

from api.authservice.frame import add_page
from api.authservice.login.choosing import LOCAL, Way, login_hint, select_page, target_url
from api.authservice.login.logins import Logins
from api.authservice.pages import ANYWHERE, again_in, go, page
from api.errors import with_retry_after
from api.throttle import address
from auth.login import local
from auth.login.entering import Known, enter
from auth.login.identity import identity
from auth.login.targets import AUTHORIZE, origin
from storage.errors import Forbidden, TooMany, Unauthorized

STALE = "This page was open for too long, or is not from this browser. Please try once more."
DISABLED = "This account is disabled. Its operator can enable it."
TOO_MANY = "Too many logins have failed."


def register_local_pages(app: Flask, logins: Logins) -> None:
    """The pages of logging in with a password."""
    add_page(app, logins, LOCAL, partial(local_form, logins), "GET")
    add_page(app, logins, LOCAL, partial(log_in, logins), "POST")


def local_form(logins: Logins) -> Response:
    """The local provider's form."""
    return _form(logins, request.args.get("next", ""), email=login_hint(request))


def log_in(logins: Logins) -> Response:
    """The form that was sent: somebody is known, or told to try again."""
    target, email = request.form.get("next", ""), request.form.get("email", "")
    url = target_url(logins, target)
    if not logins.is_own_form(request):
        return _form(logins, target, email=email, error=STALE, status=403)
    try:
        return _entered(logins, email, url)
    except TooMany as error:
        told = again_in(TOO_MANY, error.retry_after_s)
        shown = _form(logins, target, email=email, error=told, status=429)
        return with_retry_after(shown, error.code, error.retry_after_s)
    except Unauthorized as error:
        return _form(logins, target, email=email, error=error.detail, status=403)
    except Forbidden:
        return _form(logins, target, email=email, error=DISABLED, status=403)


def _entered(logins: Logins, given: str, url: str) -> Response:
    before = logins.before(request, identity(given) or "")
    tried = local.Try(
        email=given,
        address=address(request, logins.settings.proxies),
        browser=before,
        at=logins.clock(),
        request_id=g.request_id,
    )
    _check_offered(logins)
    email = local.check(logins.local, tried, request.form.get("password", ""))
    known = Known(email, local.NAME, logins.clock(), g.request_id, logins.cookie(request))
    cookie, _ = enter(logins.catalog, known, logins.lifetimes)
    response = logins.logged_in(go(url, 303), cookie)
    if before is None:
        logins.remember(response, email)
    return response


def _form(
    logins: Logins, target: str, *, email: str = "", error: str = "", status: int = 200
) -> Response:
    _check_offered(logins)
    url, browser = target_url(logins, target), logins.browser(request)
    leads_to = logins.leads_to(url)
    shown = page(
        "local.html",
        "Log in",
        status=status,
        form_action=_form_action(logins, url),
        action=logins.settings.auth_url + LOCAL,
        csrf=logins.form_token(browser),
        next=target,
        email=email[:128],
        error=error,
        leads_to=leads_to,
        others=select_page(logins, Way(target)) if logins.providers else "",
    )
    return logins.bind(shown, browser)


def _form_action(logins: Logins, url: str) -> str:
    """Where the form's answer leads, so that the browser follows it."""
    if url.startswith(logins.settings.auth_url + AUTHORIZE):
        return ANYWHERE
    return f"'self' {origin(url)}" if logins.leads_to(url) else "'self'"


def _check_offered(logins: Logins) -> None:
    if not logins.settings.local_logins:
        raise Forbidden("Nobody logs in here with a password.")
