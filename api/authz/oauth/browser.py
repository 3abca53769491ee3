"""Session, form tokens and sealed state of the browser, for consent and device pages."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import urlencode, urlsplit

from flask import Response, request

from api.authz.context import AuthServices
from api.authz.login.providers import MAX_LOGIN_HINT
from api.authz.pages import redirect_to, render_message
from auth.oauth.authorize import client_redirect_url
from auth.oauth.provider import RedirectedError, UserFacingError

SCOPE_TEXTS = {
    "openid": "see your e-mail address",
    "profile": "see your name",
    "groups": "see which groups you are in",
}
ALWAYS_ALLOWED = (
    "do everything you can do in the data store, including managing users and permissions",
    "continue to do so while you are away, until you or an operator revoke access",
)
"""Access tokens have all rights of the user, whatever their scopes; refresh tokens renew them."""
SEALED_LIFE_S = 3_600
MAX_SEALED_LENGTH = 5_400
"""Characters; servers limit request lines to 8,190 bytes."""


def handle_browser_errors(
    view: Callable[[AuthServices], Response],
) -> Callable[[AuthServices], Response]:
    """Decorate a view: show its errors to the user, or redirect them to the client."""

    @wraps(view)
    def handle(services: AuthServices) -> Response:
        try:
            return view(services)
        except UserFacingError as error:
            return render_message(error.description, status=400)
        except RedirectedError as error:
            values = {"error": error.error, "error_description": error.description}
            url = client_redirect_url(services.provider, error.redirect_uri, error.state, values)
            return redirect_to(url, 302 if request.method == "GET" else 303)

    return handle


def redirect_to_login(page: str, *, again: bool = False, hint: str = "") -> Response:
    """Redirect to the login page and back to `page`; `again` asks for reauthentication."""
    query = {"redirect_uri": page, **({"prompt": "login"} if again else {})}
    if hint and len(hint) <= MAX_LOGIN_HINT:
        query["login_hint"] = hint
    return redirect_to(f"/login?{urlencode(query)}")


def seal_for_browser(services: AuthServices, purpose: str, state: Mapping[str, Any]) -> str:
    """Seal state, with the current time, for the browser to carry to another page."""
    now = services.clock()
    return services.logins.seals.seal(purpose, [{**state, "at": now}], ends=now + SEALED_LIFE_S)


def open_from_browser(
    services: AuthServices, purpose: str, sealed: str | None
) -> dict[str, Any] | None:
    """Open sealed state, with its time `at`; None if it is forged or has expired."""
    opened = services.logins.seals.open(purpose, sealed, now=services.clock())
    return dict(opened[0]) if opened else None


def describe_scopes(scopes: Iterable[str]) -> list[str]:
    """Return what these scopes allow, in words."""
    return [*ALWAYS_ALLOWED, *(SCOPE_TEXTS[scope] for scope in scopes if scope in SCOPE_TEXTS)]


def describe_address(url: str) -> str:
    """Return the host of a redirect URI, in words for loopback addresses."""
    parts = urlsplit(url)
    if parts.hostname in ("127.0.0.1", "::1"):
        port = f", port {parts.port}" if parts.port else ""
        return f"a program on this computer ({parts.hostname}{port})"
    return parts.hostname or f"an application ({parts.scheme})"
