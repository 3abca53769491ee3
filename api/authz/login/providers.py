"""Login pages: identity providers, password form, one-time links, and redirects to providers."""

import logging
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from flask import Request, Response, g, request

from api.authz.pages import (
    ANY_FORM_ACTION,
    AuthPage,
    LoginServices,
    format_retry,
    redirect_to,
    render_failure,
    render_message,
    render_page,
)
from api.http.errors import add_retry_after
from api.http.limits import address_key
from auth.login import links, lockout, passwords
from auth.login.links import LINK_PATH, LINK_PROVIDER
from auth.login.sessions import LoginFailure, record_login_failure
from auth.login.targets import AUTHORIZE_PATH, url_origin
from auth.login.upstream import IdentityProvider
from storage.errors import (
    DomainError,
    Forbidden,
    Invalid,
    NotFoundError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

CHOICE_PATH, PASSWORD_LOGIN_PATH, PROVIDER_LOGIN_PATH = (
    "/login/select",
    "/login/local",
    "/login/upstream",
)
PASSWORD_LOGIN_TITLE = "E-mail address and password"
MAX_LOGIN_HINT = 256
"""Characters of a `login_hint`."""
LOGIN_EXPIRED = "This login has expired, or began in another browser. Go back and try again."


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login in progress; `again` asks for reauthentication, `hint` is the `login_hint`."""

    target: str
    again: bool = False
    hint: str = ""


def first_page_url(logins: LoginServices, way: PendingLogin) -> str:
    """Return where a login starts: the only provider, or the list of providers."""
    ways = _list_provider_links(logins, way)
    known = None if way.again else logins.find_session(request)
    if len(ways) == 1 and known is None:
        return ways[0]["href"]
    return choice_url(logins, way)


def choice_url(logins: LoginServices, way: PendingLogin) -> str:
    """Return the URL of the provider list."""
    return logins.settings.auth_url + _login_path(CHOICE_PATH, way)


def retry_link(logins: LoginServices, target: str) -> dict[str, str]:
    """Return a page's link back to the provider list, with reauthentication."""
    return {
        "href": choice_url(logins, PendingLogin(target, again=True)),
        "way": "Choose how to log in",
    }


def show_choice(logins: LoginServices) -> Response:
    """Show the providers; a logged-in user may continue without logging in again."""
    way = PendingLogin(
        request.args.get("next", ""), is_reauthentication(request), read_login_hint(request)
    )
    url = open_target(logins, way.target)
    known = None if way.again else logins.find_session(request)
    return render_page(
        "select.html",
        "Log in",
        providers=_list_provider_links(logins, way),
        email=known.email if known else None,
        onward=url,
        leads_to=logins.foreign_host(url),
    )


def open_target(logins: LoginServices, target: str) -> str:
    """Return where a login leads; Invalid if it has expired."""
    url = logins.targets.open_target(target, now=logins.clock())
    if url is None:
        raise Invalid(LOGIN_EXPIRED)
    return url


def _list_provider_links(logins: LoginServices, way: PendingLogin) -> list[dict[str, str]]:
    """Return title and URL of every provider."""
    ways = [
        {"title": one.upstream.title, "href": _login_path(f"{PROVIDER_LOGIN_PATH}/{name}", way)}
        for name, one in logins.providers.items()
    ]
    if logins.settings.local_logins:
        ways.append(
            {
                "title": PASSWORD_LOGIN_TITLE,
                "href": _login_path(PASSWORD_LOGIN_PATH, replace(way, again=False)),
            }
        )
    base = logins.settings.auth_url
    return [{**one, "href": base + one["href"]} for one in ways]


def _login_path(path: str, way: PendingLogin) -> str:
    query = {"next": way.target}
    if way.again:
        query["prompt"] = "login"
    if way.hint:
        query["login_hint"] = way.hint
    return f"{path}?{urlencode(query)}"


def read_login_hint(request: Request) -> str:
    """Return the `login_hint`; empty if it is too long or not printable."""
    hint = request.args.get("login_hint", "")
    return hint if len(hint) <= MAX_LOGIN_HINT and hint.isprintable() else ""


def is_reauthentication(request: Request) -> bool:
    """Return whether the request asks for reauthentication (`prompt=login`)."""
    return request.args.get("prompt") == "login"


STALE_FORM = "This page has expired, or was opened in another browser. Please try again."
ACCOUNT_DISABLED = "This account is disabled. Ask the operator to enable it."
TOO_MANY_LOGINS = "Too many failed logins."


def show_password_form(logins: LoginServices) -> Response:
    """Show the password form."""
    return _render_password_form(
        logins, request.args.get("next", ""), email=read_login_hint(request)
    )


def submit_password_form(logins: LoginServices) -> Response:
    """Log in with the submitted password, or show the form with an error."""
    target, email = request.form.get("next", ""), request.form.get("email", "")
    url = open_target(logins, target)
    if not logins.is_own_form(request):
        return _render_password_form(logins, target, email=email, error=STALE_FORM, status=403)
    try:
        return _log_in_by_password(logins, email, url)
    except TooManyRequests as error:
        text = format_retry(TOO_MANY_LOGINS, error.retry_after_s)
        page = _render_password_form(logins, target, email=email, error=text, status=429)
        return add_retry_after(page, error.code, error.retry_after_s)
    except Unauthorized as error:
        return _render_password_form(logins, target, email=email, error=error.detail, status=403)
    except Forbidden:
        return _render_password_form(
            logins, target, email=email, error=ACCOUNT_DISABLED, status=403
        )


def _log_in_by_password(logins: LoginServices, entered: str, url: str) -> Response:
    attempt = logins.build_attempt(request, entered)
    _require_password_login(logins)
    email = passwords.check_login(logins.local, attempt, request.form.get("password", ""))
    cookie, _ = logins.log_in(request, email, passwords.PASSWORD_PROVIDER)
    response = logins.set_session_cookie(redirect_to(url, 303), cookie)
    if attempt.browser is None:
        logins.remember_browser(response, email)
    return response


def _render_password_form(
    logins: LoginServices, target: str, *, email: str = "", error: str = "", status: int = 200
) -> Response:
    _require_password_login(logins)
    url, browser = open_target(logins, target), logins.browser_id(request)
    leads_to = logins.foreign_host(url)
    page = render_page(
        "local.html",
        "Log in",
        status=status,
        form_action=_form_action_policy(logins, url),
        action=logins.settings.auth_url + PASSWORD_LOGIN_PATH,
        csrf=logins.form_token(browser),
        next=target,
        email=email[:128],
        error=error,
        leads_to=leads_to,
        others=choice_url(logins, PendingLogin(target)) if logins.providers else "",
    )
    return logins.bind_browser(page, browser)


def _form_action_policy(logins: LoginServices, url: str) -> str:
    """Return the `form-action` sources that let the browser follow the form's redirect."""
    if url.startswith(logins.settings.auth_url + AUTHORIZE_PATH):
        return ANY_FORM_ACTION
    return f"'self' {url_origin(url)}" if logins.foreign_host(url) else "'self'"


def _require_password_login(logins: LoginServices) -> None:
    if not logins.settings.local_logins:
        raise Forbidden("Password login is disabled.")


log = logging.getLogger(__name__)

CALLBACK_PATH = "/login/callback"
PROVIDER_REFUSED = "{title} did not log you in. You can try again, or log in another way."
PROVIDER_UNUSABLE = "{title} sent an invalid response. You can try again."
PROVIDER_UNAVAILABLE = "{title} cannot be reached. You can try again, or log in another way."


def redirect_to_provider(logins: LoginServices, name: str) -> Response:
    """Redirect to the provider, with a single-use state that is bound to this browser."""
    provider, target = _find_provider(logins, name), request.args.get("next", "")
    open_target(logins, target)
    upstream_login = logins.redirects.begin(_callback_url(logins, name))
    browser = logins.browser_id(request)
    try:
        url = provider.login_url(
            upstream_login, again=is_reauthentication(request), hint=read_login_hint(request)
        )
    except DomainError as error:
        return _render_provider_error(logins, error, provider, target)
    logins.redirects.send(upstream_login, name, browser, target)
    return logins.bind_browser(redirect_to(url), browser)


def handle_callback(logins: LoginServices, name: str) -> Response:
    """Handle the provider's redirect: check the state, exchange the code, log in."""
    provider = _find_provider(logins, name)
    state, browser = request.args.get("state"), logins.browser_id(request)
    found = logins.redirects.take_back(name, state, browser, _callback_url(logins, name))
    if found is None:
        raise Invalid(LOGIN_EXPIRED)
    login, target = found
    url = open_target(logins, target)
    code = request.args.get("code")
    try:
        provider.check_issuer(request.args.get("iss"))
        if code is None or "error" in request.args:
            text = PROVIDER_REFUSED.format(title=provider.upstream.title)
            return render_message(text, status=403, **retry_link(logins, target))
        email = provider.exchange_email(login, code)
        cookie, _ = logins.log_in(request, email, name)
    except DomainError as error:
        _record_failed_login(logins, name)
        return _render_provider_error(logins, error, provider, target)
    return logins.set_session_cookie(redirect_to(url, 303), cookie)


def _record_failed_login(logins: LoginServices, name: str) -> None:
    seen = address_key(request, logins.settings.proxies)
    attempt = LoginFailure("", logins.clock(), g.request_id)
    with logins.catalog.write(durable=False) as tx:
        lockout.forget_old_failures(tx, attempt.at)
        keys = (lockout.address_key(seen),)
        record_login_failure(tx, "login_failed", attempt, keys=keys, address=seen, provider=name)


def _render_provider_error(
    logins: LoginServices, error: DomainError, provider: IdentityProvider, target: str
) -> Response:
    """Render an error page without the details, which go to the log."""
    log.warning("login by %s: %s", provider.upstream.name, error.detail)
    again = retry_link(logins, target)
    if isinstance(error, Forbidden):
        return render_failure(error, **again)
    text = PROVIDER_UNAVAILABLE if isinstance(error, Unavailable) else PROVIDER_UNUSABLE
    return render_failure(error, text.format(title=provider.upstream.title), **again)


def _callback_url(logins: LoginServices, name: str) -> str:
    return f"{logins.settings.auth_url}{CALLBACK_PATH}/{name}"


def _find_provider(logins: LoginServices, name: str) -> IdentityProvider:
    if name not in logins.providers:
        raise NotFoundError("Unknown identity provider.")
    return logins.providers[name]


def show_link(logins: LoginServices) -> Response:
    """Show who logs in by a one-time link, and the button; Invalid if it is used or expired.

    GET changes nothing, so that previews of links in mails and chats do not use the link up.
    """
    return _render_link(logins, request.args.get("token", ""))


def submit_link(logins: LoginServices) -> Response:
    """Use the link up, log this browser in, and redirect to the store's web pages."""
    token = request.form.get("token", "")
    if not logins.is_own_form(request):
        return _render_link(logins, token, error=STALE_FORM, status=403)
    email = links.use_link(logins.catalog, token, logins.clock())
    cookie, _ = logins.log_in(request, email, LINK_PROVIDER)
    return logins.set_session_cookie(redirect_to(_web_login_url(logins), 303), cookie)


def _render_link(
    logins: LoginServices, token: str, *, error: str = "", status: int = 200
) -> Response:
    email = links.read_link(logins.catalog, token, logins.clock())
    browser = logins.browser_id(request)
    page = render_page(
        "link.html",
        "Log in",
        status=status,
        # The browser applies the directive to redirects of the form, too.
        form_action=f"'self' {url_origin(_web_login_url(logins))}",
        action=logins.settings.auth_url + LINK_PATH,
        csrf=logins.form_token(browser),
        token=token,
        email=email,
        error=error,
    )
    return logins.bind_browser(page, browser)


def _web_login_url(logins: LoginServices) -> str:
    return f"{logins.settings.site_url}/login?next=/"


PAGES = (
    AuthPage("GET", CHOICE_PATH, show_choice),
    AuthPage("GET", PASSWORD_LOGIN_PATH, show_password_form),
    AuthPage("POST", PASSWORD_LOGIN_PATH, submit_password_form),
    AuthPage("GET", LINK_PATH, show_link),
    AuthPage("POST", LINK_PATH, submit_link),
    AuthPage("GET", f"{PROVIDER_LOGIN_PATH}/<name>", redirect_to_provider, acts=True),
    AuthPage("GET", f"{CALLBACK_PATH}/<name>", handle_callback, acts=True),
)
