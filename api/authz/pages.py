"""HTML pages: rendering, security headers, cookies, login state and request rate limits.

Cookies have the `__Host-` prefix where HTTPS is used, are HttpOnly, and SameSite=Lax: a provider's
redirect carries them, other cross-site requests do not.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flask import Flask, Request, Response, g, render_template, request
from markupsafe import Markup

from api.http.dispatch import add_rule
from api.http.errors import add_retry_after, http_status
from api.http.limits import address_key
from api.http.operation import ResponseDoc
from auth.accounts import normalize_email
from auth.http_client import HttpClient
from auth.login import sessions
from auth.login.lockout import LockoutPolicy, check_rate_limit
from auth.login.passwords import LoginAttempt, PasswordHashing, PasswordLogin
from auth.login.sessions import (
    SESSION_COOKIE,
    AuthenticatedUser,
    BrowserSession,
    SessionLifetimes,
    host_cookie_name,
)
from auth.login.targets import LoginTargets
from auth.login.upstream import IdentityProvider, IdentityProviderConfig, UpstreamRedirects
from auth.oauth import clients
from auth.secret_files import read_operator_secret
from auth.secret_values import ValueSealer, is_equal_secret
from auth.tokens.verification import KeyAges
from config import Settings
from pipelines.ssrf_guard import check_address_text
from storage.catalog import Catalog
from storage.errors import DomainError, TooManyRequests
from storage.rate_limits import Rate


def limit_logins(catalog: Catalog, settings: Settings, request: Request, now: float) -> None:
    """Count a request to a login page; TooManyRequests beyond the rate limit."""
    rate = Rate(settings.login_rate_per_minute, settings.login_rate_burst)
    check_rate_limit(catalog, f"login:{address_key(request, settings.proxies)}", rate, now)


def limit_tokens(catalog: Catalog, settings: Settings, request: Request, now: float) -> None:
    """Count a request to issue or revoke a token; TooManyRequests beyond the rate limit."""
    rate = Rate(settings.token_rate_per_minute, settings.token_rate_burst)
    check_rate_limit(catalog, f"token:{address_key(request, settings.proxies)}", rate, now)


SERVICE_NAME = "Data store"
STYLE = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8").strip()
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

ANY_FORM_ACTION = ""
"""No `form-action` directive, for forms whose response redirects to a client's address: browsers
apply the directive to redirects, too."""


def render_page(
    template: str, title: str, *, status: int = 200, form_action: str = "'self'", **values: object
) -> Response:
    """Render a page; `form_action` lists where its forms and their redirects may lead."""
    body = render_template(
        template, title=title, service=SERVICE_NAME, style=Markup(STYLE), **values
    )
    response = Response(body, status, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = content_security_policy(form_action)
    return protect_response(response)


def content_security_policy(form_action: str = "'self'") -> str:
    """Return the Content-Security-Policy of a page."""
    forms = f"; form-action {form_action}" if form_action else ""
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        f" frame-ancestors 'none'{forms}"
    )


def protect_response(response: Response) -> Response:
    """Add headers against caching, framing, MIME sniffing and leaking the referrer."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Frame-Options"] = "DENY"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Content-Security-Policy", content_security_policy())
    return response


def redirect_to(url: str, status: int = 302) -> Response:
    """Return an empty redirect response."""
    return protect_response(Response(b"", status, headers={"Location": url}, mimetype="text/plain"))


def format_wait(seconds: int | None) -> str:
    """Format a waiting time for people; None counts as a second."""
    whole = seconds or 1
    if whole > 90:
        return f"{-(-whole // 60)} minutes"
    return "a second" if whole == 1 else f"{whole} seconds"


def format_retry(sentence: str, seconds: int | None) -> str:
    """Append to a sentence when to try again."""
    return f"{sentence} Try again in {format_wait(seconds)}."


def set_host_cookie(
    response: Response, base_url: str, name: str, value: str, max_age_s: int | None
) -> None:
    """Set an HttpOnly cookie, by default until the browser closes; 0 seconds delete it."""
    response.set_cookie(
        host_cookie_name(name, base_url),
        value,
        max_age=max_age_s,
        path="/",
        secure=base_url.startswith("https://"),
        httponly=True,
        samesite="Lax",
    )


BROWSER_COOKIE = "store-login"
"""Binds a pending login to this browser."""
KNOWN_BROWSER_COOKIE = "store-browser"
"""Marks a browser that its user has logged in with before."""
KNOWN_BROWSER_S = 90 * 86_400


@dataclass(frozen=True)
class LoginServices:
    """Services of the login pages; `clock` returns seconds since 1970."""

    settings: Settings
    catalog: Catalog
    clock: Callable[[], float]
    seals: ValueSealer
    targets: LoginTargets
    local: PasswordLogin
    providers: Mapping[str, IdentityProvider]
    redirects: UpstreamRedirects
    lifetimes: SessionLifetimes

    def set_cookie(self, response: Response, name: str, value: str, max_age_s: int | None) -> None:
        """Set a cookie for `max_age_s` seconds, or until the browser closes if None."""
        set_host_cookie(response, self.settings.auth_url, name, value, max_age_s)

    def read_cookie(self, request: Request, name: str) -> str | None:
        """Return the value of a request's cookie."""
        return request.cookies.get(host_cookie_name(name, self.settings.auth_url))

    def clear_session_cookie(self, response: Response) -> Response:
        """Delete the session cookie."""
        self.set_cookie(response, SESSION_COOKIE, "", 0)
        return response

    def log_in(self, request: Request, email: str, provider: str) -> tuple[str, BrowserSession]:
        """Log a user in, instead of the browser's former session; return cookie and session."""
        user = AuthenticatedUser(
            email, provider, self.clock(), g.request_id, self.session_cookie(request)
        )
        return sessions.log_in_user(self.catalog, user, self.lifetimes)

    def log_out(self, request: Request, session: BrowserSession | None) -> None:
        """End the session of a browser, if there is one."""
        if session is not None:
            cookie = self.session_cookie(request)
            sessions.log_out_user(self.catalog, session, cookie, g.request_id)

    def build_attempt(self, request: Request, email: str) -> LoginAttempt:
        """Describe an attempt to log in with a password."""
        return LoginAttempt(
            email=email,
            address=address_key(request, self.settings.proxies),
            browser=self.known_browser(request, normalize_email(email) or ""),
            at=self.clock(),
            request_id=g.request_id,
        )

    def find_session(self, request: Request) -> BrowserSession | None:
        """Return the browser session of a request."""
        return sessions.find_session(self.catalog, self.session_cookie(request), self.clock())

    def session_cookie(self, request: Request) -> str | None:
        """Return the session cookie of a request."""
        return self.read_cookie(request, SESSION_COOKIE)

    def browser_id(self, request: Request) -> str:
        """Return the id that binds a login to this browser; a new one if it has none."""
        return self.read_cookie(request, BROWSER_COOKIE) or secrets.token_urlsafe(24)

    def bind_browser(self, response: Response, browser: str) -> Response:
        """Set the cookie that binds a login to this browser."""
        self.set_cookie(response, BROWSER_COOKIE, browser, None)
        return response

    def form_token(self, browser: str) -> str:
        """Return the CSRF token of this browser."""
        return self.seals.derive_value("form", browser)

    def is_own_form(self, request: Request) -> bool:
        """Return whether a form has this browser's CSRF token and comes from this site."""
        browser = self.read_cookie(request, BROWSER_COOKIE)
        sent = request.form.get("csrf", "")
        token = self.form_token(browser) if browser else ""
        return bool(token) and is_equal_secret(sent, token) and not is_cross_site(request)

    def known_browser(self, request: Request, email: str) -> str | None:
        """Return the id of the browser if this user has logged in with it before."""
        sealed = self.read_cookie(request, KNOWN_BROWSER_COOKIE)
        opened = self.seals.open("browser", sealed, now=self.clock())
        return opened[1] if opened and opened[0] == email else None

    def remember_browser(self, response: Response, email: str) -> None:
        """Set the cookie that marks this browser as known for the user."""
        fields = [email, secrets.token_urlsafe(12)]
        sealed = self.seals.seal("browser", fields, ends=self.clock() + KNOWN_BROWSER_S)
        self.set_cookie(response, KNOWN_BROWSER_COOKIE, sealed, KNOWN_BROWSER_S)

    def set_session_cookie(self, response: Response, cookie: str) -> Response:
        """Set the session cookie, and delete the one that bound the pending login."""
        self.set_cookie(response, SESSION_COOKIE, cookie, self.lifetimes.whole_s)
        self.set_cookie(response, BROWSER_COOKIE, "", 0)
        return response

    def foreign_host(self, url: str) -> str | None:
        """Return the host of a URL, or None if it is this service."""
        own = url.startswith(self.settings.auth_url + "/")
        return None if own else urlsplit(url).hostname or urlsplit(url).scheme


def is_form_of_session(session: BrowserSession, form: Mapping[str, str]) -> bool:
    """Return whether a form has the session's CSRF token and comes from this site."""
    return is_equal_secret(form.get("csrf", ""), session.csrf) and not is_cross_site(request)


def is_cross_site(request: Request) -> bool:
    """Return whether `Sec-Fetch-Site` says that another site made this request."""
    return request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")


def build_login_services(
    settings: Settings, catalog: Catalog, clock: Callable[[], float]
) -> LoginServices:
    """Build what the login pages need."""
    seals = ValueSealer.from_secret(*(key.encode() for key in settings.secret_keys))
    return LoginServices(
        settings=settings,
        catalog=catalog,
        clock=clock,
        seals=seals,
        targets=LoginTargets(
            settings.auth_url, seals, partial(_is_registered_redirect, settings, catalog)
        ),
        local=PasswordLogin(
            catalog,
            PasswordHashing(settings),
            LockoutPolicy(
                pair=settings.lockout_after,
                address=settings.lockout_address_after,
                account=settings.lockout_account_after,
                cap_s=settings.lockout_cap_s,
            ),
        ),
        providers=_build_providers(settings, clock),
        redirects=UpstreamRedirects(catalog, seals, clock, settings.login_s),
        lifetimes=SessionLifetimes(settings.session_s, settings.session_idle_s),
    )


def _is_registered_redirect(settings: Settings, catalog: Catalog, uri: str) -> bool:
    """Return whether any client has registered this redirect URI."""
    own = clients.built_in_clients(settings)
    with catalog.read() as tx:
        return any(
            clients.is_registered_uri(uri, client.redirect_uris, native=client.public)
            for client in clients.list_clients(tx, own)
        )


def _build_providers(settings: Settings, clock: Callable[[], float]) -> dict[str, IdentityProvider]:
    if not settings.providers:
        return {}
    http = HttpClient(
        settings.provider_timeout_s,
        check_address=None if settings.allow_private_callbacks else check_address_text,
    )
    ages = KeyAges(settings.keys_refresh_s, settings.keys_cooldown_s)
    return {
        name: IdentityProvider(_build_provider_config(settings, name), http, clock, ages)
        for name in settings.providers
    }


def _build_provider_config(settings: Settings, name: str) -> IdentityProviderConfig:
    provider = settings.providers[name]
    return IdentityProviderConfig(
        name=name,
        title=provider.title or name,
        issuer=provider.issuer,
        client_id=provider.client_id,
        # Without a secret the client is public.
        secret=settings.provider_secrets.get(name)
        or read_operator_secret(settings.home, f"provider-{name}"),
        domains=provider.domains,
        scopes=provider.scopes,
    )


MAX_FORM_BYTES = 64 * 1024
MAX_FORM_FIELDS = 20
TOO_MANY_ATTEMPTS = "Too many attempts."


PAGE_ANSWERS = {
    400: ResponseDoc("A page that explains the error.", page=True),
    429: ResponseDoc("A page that says when to try again.", page=True),
}
"""Error responses of operations that answer with a page."""


class AuthPage(NamedTuple):
    """A page for browsers; its view gets the services, and the parameters of the path."""

    method: str
    path: str
    view: Callable[..., Response]
    name: str = "page"
    """In logs and metrics."""
    acts: bool = False
    """Whether GET has effects; then HEAD is not allowed."""


def register_pages(
    app: Flask, logins: LoginServices, pages: Iterable[AuthPage], services: object
) -> None:
    """Register pages, whose views get `services`."""
    for page in pages:
        endpoint = f"page {page.method} {page.path}".replace(".", "_")
        serve = partial(_serve_registered, page, logins, services)
        add_rule(app, page.method, page.path, endpoint, serve, acts=page.acts)


def _serve_registered(
    page: AuthPage, logins: LoginServices, services: object, **arguments: str
) -> Response:
    g.operation = page.name
    return serve_page(logins, partial(page.view, services, **arguments))


def serve_page(logins: LoginServices, view: Callable[[], Response]) -> Response:
    """Apply the rate limit, then return the view's response or an error page."""
    request.max_content_length, request.max_form_parts = MAX_FORM_BYTES, MAX_FORM_FIELDS
    try:
        limit_logins(logins.catalog, logins.settings, request, logins.clock())
        return view()
    except DomainError as error:
        return render_failure(error)


def render_failure(error: DomainError, text: str = "", **more: Any) -> Response:
    """Render the error page of a DomainError."""
    status = http_status(error)
    if isinstance(error, TooManyRequests):
        text = format_retry(TOO_MANY_ATTEMPTS, error.retry_after_s)
    answer = render_message(text or error.detail, status=403 if status == 401 else status, **more)
    return add_retry_after(answer, error.code, error.retry_after_s)


def render_message(text: str, *, status: int = 200, title: str = "", **more: Any) -> Response:
    """Render a page of one sentence."""
    bad = status >= 400
    values = {"request_id": g.get("request_id", "") if bad else "", **more}
    heading = title or ("Something went wrong" if bad else "Done")
    return render_page("message.html", heading, status=status, text=text, bad=bad, **values)
