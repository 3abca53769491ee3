"""Which pages of other origins may read the answers of the authorization service.

Discovery and keys are public. The end points that browser applications call take no cookie; they
answer the origins of public clients' redirect URIs. Pages for people answer none (RFC 9700, 2.6).
"""

from collections.abc import Callable, Collection

from flask import request

from auth.openid import clients
from auth.openid.discovery import CONFIGURATION, KEYS
from auth.openid.provider import Provider
from auth.openid.redirects import is_origin_of

PUBLIC = frozenset({CONFIGURATION, "/.well-known/oauth-authorization-server", KEYS})
OF_CLIENTS = frozenset({"/oauth/token", "/oauth/revoke", "/oauth/userinfo"})
PAGES = ("/oauth/authorize", "/oauth/consent", "/login", "/logout", "/device")


def origins_by_path(
    provider: Provider, allowed: Collection[str]
) -> Callable[[str], Collection[str]]:
    """The origins of each path; `allowed` are those that the operator set."""

    def origins_of(path: str) -> Collection[str]:
        if path in PUBLIC:
            return allowed if request.headers.get("Origin") in allowed else ("*",)
        if path.startswith(PAGES):
            return ()
        if path in OF_CLIENTS and _is_of_client(provider, request.headers.get("Origin", "")):
            return (*allowed, request.headers["Origin"])
        return allowed

    return origins_of


def _is_of_client(provider: Provider, origin: str) -> bool:
    """Whether a public client's page, or its program on this computer, has this origin."""
    if not origin:
        return False
    with provider.catalog.read() as tx:
        known = clients.listing(tx, provider.own_clients)
    return any(is_origin_of(origin, one.redirect_uris) for one in known if one.public)
