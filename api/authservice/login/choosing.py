"""Choosing a provider, and the local one's form: plain pages that work without scripts."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from flask import Flask, Request, Response, g, request

from api.authservice.limits import limit_logins
from api.authservice.login.logins import Logins
from api.authservice.pages import ANYWHERE, go, lasting, page
from api.errors import status_of, with_retry_after
from api.routing import without_head
from api.throttle import address
from auth.login import local
from auth.login.entering import Known, enter
from auth.login.identity import identity
from auth.login.targets import AUTHORIZE, origin
from storage.errors import Forbidden, Invalid, StoreError, TooMany, Unauthorized

SELECT, LOCAL, UPSTREAM = "/login/select", "/login/local", "/login/upstream"
LOCAL_TITLE = "E-mail address and password"
MAX_FORM = 64 * 1024
STALE = "This page was open for too long, or is not from this browser. Please try once more."
OVER = "This login is over, or did not begin here. Go back to where you came from and try again."
DISABLED = "This account is disabled. Its operator can enable it."


def register_login_pages(app: Flask, logins: Logins) -> None:
    """The pages of logging in."""
    add_page(app, logins, SELECT, select, "GET")
    add_page(app, logins, LOCAL, local_form, "GET")
    add_page(app, logins, LOCAL, log_in, "POST")


def add_page(
    app: Flask,
    logins: Logins,
    path: str,
    view: Callable[..., Response],
    method: str,
    *,
    acts: bool = False,
) -> None:
    """Give a page its path; whatever goes wrong there is told as a page. To look at one `acts`."""

    def shown(**named: str) -> Response:
        g.operation = "page"
        request.max_content_length = MAX_FORM
        try:
            limit_logins(logins.catalog, logins.settings, request, logins.clock())
            return view(logins, **named)
        except StoreError as error:
            return failed(error)

    name = f"page {method} {path}".replace(".", "_")
    app.add_url_rule(path, name, shown, methods=[method])
    if acts:
        without_head(app, name)


def failed(error: StoreError, text: str = "", **more: Any) -> Response:
    """A page that says what went wrong."""
    status = status_of(error)
    answer = message(text or error.detail, status=403 if status == 401 else status, **more)
    return with_retry_after(answer, error.code, error.retry_after_s)


def message(text: str, *, status: int = 200, title: str = "", **more: Any) -> Response:
    """A page of one sentence."""
    bad = status >= 400
    shown = {"request_id": g.get("request_id", "") if bad else "", **more}
    heading = title or ("That did not work" if bad else "Done")
    return page("message.html", heading, status=status, text=text, bad=bad, **shown)


def first_page(logins: Logins, target: str, *, again: bool) -> str:
    """Where a login begins: the only provider, or a choice of them."""
    ways = _ways(logins, target, again=again)
    known = None if again else logins.session(request)
    if len(ways) == 1 and known is None:
        return ways[0]["href"]
    return logins.settings.auth_url + _page_of(SELECT, target, again=again)


def once_more(logins: Logins, target: str) -> dict[str, str]:
    """A page's way back to the choice, where somebody has to prove anew who they are."""
    href = logins.settings.auth_url + _page_of(SELECT, target, again=True)
    return {"href": href, "way": "Choose how to log in"}


def select(logins: Logins) -> Response:
    """The providers; who is known already may go on as they are."""
    target = request.args.get("next", "")
    url = _url(logins, target)
    again = is_again(request)
    known = None if again else logins.session(request)
    return page(
        "select.html",
        "Log in",
        providers=_ways(logins, target, again=again),
        email=known.email if known else None,
        onward=url,
        leads_to=logins.leads_to(url),
    )


def local_form(logins: Logins) -> Response:
    """The local provider's form."""
    return _form(logins, request.args.get("next", ""))


def log_in(logins: Logins) -> Response:
    """The form that was sent: somebody is known, or told to try again."""
    target, email = request.form.get("next", ""), request.form.get("email", "")
    url = _url(logins, target)
    if not logins.is_own_form(request):
        return _form(logins, target, email=email, error=STALE, status=403)
    try:
        return _entered(logins, email, url)
    except TooMany as error:
        told = f"Too many logins have failed. Try again in {lasting(error.retry_after_s)}."
        return with_retry_after(
            _form(logins, target, email=email, error=told, status=429),
            error.code,
            error.retry_after_s,
        )
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
    url, browser = _url(logins, target), logins.browser(request)
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
        others=logins.settings.auth_url + _page_of(SELECT, target) if logins.providers else "",
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


def _url(logins: Logins, target: str) -> str:
    url = logins.targets.url(target, now=logins.clock())
    if url is None:
        raise Invalid(OVER)
    return url


def _ways(logins: Logins, target: str, *, again: bool) -> list[dict[str, str]]:
    """Every provider: what it is called, and where a login with it begins."""
    ways = [
        {"title": one.upstream.title, "href": _page_of(f"{UPSTREAM}/{name}", target, again=again)}
        for name, one in logins.providers.items()
    ]
    if logins.settings.local_logins:
        ways.append({"title": LOCAL_TITLE, "href": _page_of(LOCAL, target)})
    base = logins.settings.auth_url
    return [{**way, "href": base + way["href"]} for way in ways]


def _page_of(path: str, target: str, *, again: bool = False) -> str:
    return f"{path}?{urlencode({'next': target, **({'prompt': 'login'} if again else {})})}"


def is_again(request: Request) -> bool:
    """Whether somebody has to prove anew who they are."""
    return request.args.get("prompt") == "login"
