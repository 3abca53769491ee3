"""Discover the authorization service of a store, and request tokens from it.

The store's definition names the issuer. Its metadata is accepted only if the issuer in it is the
same (OpenID Connect Discovery), so that no other service can pose as it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from store_client.atomic_files import parse_json_object
from store_client.auth.claims import (
    claims_expiry,
    claims_identity,
    make_printable,
    parse_seconds,
    read_claims,
)
from store_client.configuration import Configuration
from store_client.definition import load_definition
from store_client.definition.openapi import DISCOVERY
from store_client.errors import NotAllowed, Refused, StoreError
from store_client.http.retries import MAX_SMALL_ANSWER
from store_client.http.session import HttpSession

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class AuthService:
    """An authorization service and its endpoints; missing ones are empty."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    device_authorization_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    says_issuer: bool = False
    """Whether each answer at the browser names its issuer (RFC 9207)."""


def discover_service(
    session: HttpSession, config: Configuration, *, fresh: bool = False
) -> AuthService:
    """Discover the authorization service of this store; StoreError if there is none.

    `fresh` ignores the cached definition.
    """
    address = load_definition(session, config, fresh=fresh).auth_url
    if not address:
        raise StoreError(
            f"{config.url} names no authorization service",
            hint="log in with a token: store login --access-token -",
        )
    return fetch_service(session, address)


def fetch_service(session: HttpSession, address: str) -> AuthService:
    """Fetch the description of an issuer."""
    issuer = address.removesuffix(DISCOVERY).rstrip("/")
    answer = session.request("GET", issuer + DISCOVERY, authorize=False, limit=MAX_SMALL_ANSWER)
    said = parse_json_object(answer.content)
    if said is None:
        raise Refused(f"{issuer} is not an authorization service: it has no OpenID configuration")
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise Refused(
            f"{issuer} has another issuer in its configuration",
            hint="tell the store's operators: STORE_AUTH_EXTERNAL_URL is not its address",
        )
    return _parse_service(said)


def _parse_service(said: Mapping[str, Any]) -> AuthService:
    texts = {name: said.get(name, "") for name in AuthService.__slots__ if name != "says_issuer"}
    for name, text in texts.items():
        if not isinstance(text, str) or not (
            text == "" or _is_safe_endpoint(text, str(said["issuer"]))
        ):
            raise Refused(f"the authorization service's {name} is not a safe URL")
    if not texts["token_endpoint"] or not texts["authorization_endpoint"]:
        raise Refused("the authorization service names no login endpoints")
    says_issuer = said.get("authorization_response_iss_parameter_supported") is True
    return AuthService(**texts, says_issuer=says_issuer)


def _is_safe_endpoint(url: str, issuer: str) -> bool:
    """Whether secrets may be sent there: encrypted, unless the issuer is not."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and parts.scheme in ("https", urlsplit(issuer).scheme)


def is_unencrypted(url: str) -> bool:
    """Whether requests to this URL can be read on the network."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK


CLIENT_ID = "store-cli"
SCOPE = "openid email groups offline_access"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The response of a token endpoint."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    expires_in: float | None = None

    def expires_at(self, now_s: float) -> float | None:
        """When the access token expires, on the clock that says `now_s`."""
        if self.expires_in is not None:
            return now_s + self.expires_in
        return claims_expiry(read_claims(self.access_token))

    @property
    def email(self) -> str:
        """The identity in the tokens."""
        return claims_identity(read_claims(self.id_token)) or claims_identity(
            read_claims(self.access_token)
        )


class OAuthRefusal(NotAllowed):
    """An error response of the authorization service."""

    @property
    def error(self) -> str:
        """The OAuth error code, "" if there is none."""
        return make_printable(self.problem.get("error", ""))


def request_tokens(
    session: HttpSession, endpoint: str, form: Mapping[str, str], *, again: bool
) -> TokenGrant:
    """Request tokens; OAuthRefusal on an error. `again`: the request may be repeated."""
    answer = post_form(session, endpoint, {"client_id": CLIENT_ID, **form}, again=again)
    said = parse_json_object(answer.content)
    if said is None:
        raise Refused("the authorization service answered with no JSON object")
    token, kind = said.get("access_token"), str(said.get("token_type", "bearer"))
    if not isinstance(token, str) or not token or kind.lower() != "bearer":
        raise Refused("the authorization service answered with no bearer token")
    refresh, identity = said.get("refresh_token"), said.get("id_token")
    return TokenGrant(
        token,
        refresh if isinstance(refresh, str) else "",
        identity if isinstance(identity, str) else "",
        parse_seconds(said.get("expires_in")),
    )


def post_form(
    session: HttpSession, url: str, form: Mapping[str, str], *, again: bool
) -> "httpx.Response":
    """Post a form to the authorization service; OAuthRefusal on an error."""
    body = urlencode(form).encode()
    try:
        return session.request(
            "POST",
            url,
            content=body,
            headers=FORM,
            repeatable=again,
            authorize=False,
            limit=MAX_SMALL_ANSWER,
        )
    except Refused as error:
        said = error.problem.get("error_description") or error.problem.get("error") or str(error)
        raise OAuthRefusal(
            f"the authorization service refused the request: {make_printable(said)}",
            status=error.status,
            problem=error.problem,
        ) from error
