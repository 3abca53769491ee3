"""Log in with an upstream OpenID Connect provider.

Addresses from browsers and tokens are not trusted: the operator sets the issuer, its metadata
come from the issuer's own address, and every request passes the SSRF guard. Error messages never
quote external input.

A state is valid once, for one provider and one browser. Nonce and verifier are derived from the
secret in the state, so neither is stored.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.client import OAuth2Client
from joserfc.jws import JWSRegistry

from auth.accounts import normalize_email
from auth.http_client import HttpClient, HttpResponse
from auth.login.targets import add_query_parameters
from auth.secret_values import ValueSealer, hash_secret, is_equal_secret
from auth.tokens.verification import KeyAges, KeyRing, check_signature, parse_token
from storage.catalog import Catalog, login
from storage.errors import DomainError, Forbidden, Unauthorized, Unavailable

log = logging.getLogger(__name__)

METADATA_PATH = "/.well-known/openid-configuration"
REQUIRED_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
PROVIDER_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384"}
)

ONLY_KEY_ID = "(the only key)"
"""Placeholder key id: tokens may omit it if the provider has only one key."""


@dataclass(frozen=True)
class IdentityProviderConfig:
    """A provider, as configured."""

    name: str
    title: str
    issuer: str
    client_id: str
    secret: str = field(repr=False)
    domains: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "email")


@dataclass(frozen=True)
class UpstreamLogin:
    """Values of a pending login that the provider must return."""

    callback: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    secret: str = field(default="", repr=False)
    """Of the state; nonce and verifier are derived from it."""


class IdentityProvider:
    """A provider, with cached metadata and keys; thread-safe."""

    def __init__(
        self,
        upstream: IdentityProviderConfig,
        http: HttpClient,
        clock: Callable[[], float],
        ages: KeyAges,
    ) -> None:
        self.upstream = upstream
        self._http = http
        self._clock = clock
        self._ages = ages
        self._lock = threading.Lock()
        self._cached_metadata: tuple[float, Mapping[str, Any]] | None = None
        self._ring = KeyRing(self._fetch_keys, clock, ages)

    def login_url(self, login: UpstreamLogin, *, again: bool = False, hint: str = "") -> str:
        """Return the login URL: code flow, PKCE S256, state and nonce.

        `again` forces a new login at the provider; `hint` is the expected e-mail address."""
        url, _ = self._client(login).create_authorization_url(
            self._metadata()["authorization_endpoint"],
            state=login.state,
            code_verifier=login.verifier,
            nonce=login.nonce,
            **({"prompt": "login"} if again else {}),
            **({"login_hint": hint} if hint else {}),
        )
        return str(url)

    def check_issuer(self, given: str | None) -> None:
        """Reject a response with a wrong or missing issuer (RFC 9207)."""
        promised = self._metadata().get("authorization_response_iss_parameter_supported") is True
        if (given is None and promised) or given not in (None, self.upstream.issuer):
            raise Unauthorized("The answer is of another provider")

    def exchange_email(self, login: UpstreamLogin, code: str) -> str:
        """Exchange the code, verify the ID token, and return the e-mail."""
        token = self._exchange_code(login, code)
        claims = self._verify_id_token(token.get("id_token"))
        check_id_token_claims(claims, self.upstream, login.nonce, self._clock())
        if "email" not in claims:
            claims = {**claims, **self._userinfo(token, claims)}
        return verified_email(claims, self.upstream.domains)

    def logout_url(self, back: str, state: str) -> str | None:
        """Return the provider's logout URL; None if it has none."""
        try:
            end = self._metadata().get("end_session_endpoint")
        except DomainError:
            # Logout must not depend on the provider's availability.
            return None
        if not _is_http_url(end):
            return None
        parameters = {
            "client_id": self.upstream.client_id,
            "post_logout_redirect_uri": back,
            "state": state,
        }
        return add_query_parameters(str(end), parameters)

    def _client(self, login: UpstreamLogin) -> Any:
        return OAuth2Client(
            _AuthlibSession(self._http),
            self.upstream.client_id,
            self.upstream.secret,
            token_endpoint_auth_method=self._client_auth_method(),
            scope=" ".join(self.upstream.scopes),
            redirect_uri=login.callback,
            code_challenge_method="S256",
        )

    def _client_auth_method(self) -> str:
        if not self.upstream.secret:
            return "none"
        offered = self._metadata().get("token_endpoint_auth_methods_supported")
        only_post = isinstance(offered, list) and "client_secret_basic" not in offered
        return "client_secret_post" if only_post else "client_secret_basic"

    def _exchange_code(self, login: UpstreamLogin, code: str) -> Mapping[str, Any]:
        endpoint = self._metadata()["token_endpoint"]
        try:
            token = self._client(login).fetch_token(
                endpoint, code=code, code_verifier=login.verifier, grant_type="authorization_code"
            )
        except AuthlibBaseError as error:
            raise Unauthorized("The provider did not take its own code") from error
        except (ValueError, TypeError, LookupError) as error:
            raise Unavailable("The provider's token cannot be read") from error
        return dict(token)

    def _verify_id_token(self, token: object) -> Mapping[str, Any]:
        if not isinstance(token, str):
            raise Unauthorized("The provider sent no ID token")
        unverified = parse_token(token, unnamed=ONLY_KEY_ID)
        if unverified.algorithm not in PROVIDER_ALGORITHMS:
            raise Unauthorized("The token's algorithm is not accepted")
        registry = JWSRegistry(algorithms=sorted(PROVIDER_ALGORITHMS), strict_check_header=False)
        check_signature(token, self._ring.find(unverified.key_id), registry)
        return unverified.claims

    def _userinfo(self, token: Mapping[str, Any], claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fetch claims of the same subject (OpenID Connect Core 1.0, 5.3.2)."""
        endpoint, access = self._metadata().get("userinfo_endpoint"), token.get("access_token")
        if not _is_http_url(endpoint) or not isinstance(access, str) or not access.isascii():
            return {}
        headers = {"Authorization": f"Bearer {access}"}
        userinfo = self._http.request("GET", str(endpoint), headers).object()
        if userinfo.get("sub") is None or userinfo["sub"] != claims.get("sub"):
            raise Unauthorized("The provider's answer is about another user")
        return {name: userinfo[name] for name in ("email", "email_verified") if name in userinfo}

    def _fetch_keys(self) -> Mapping[str, Any]:
        key_set = self._http.request("GET", self._metadata()["jwks_uri"], {}).object()
        keys = key_set.get("keys")
        if isinstance(keys, list) and len(keys) == 1 and isinstance(keys[0], dict):
            return {"keys": [*keys, {**keys[0], "kid": ONLY_KEY_ID}]}
        return key_set

    def _metadata(self) -> Mapping[str, Any]:
        """Return metadata; stale ones while the provider is down."""
        cached, now = self._cached_metadata, self._clock()
        if cached is not None and 0 <= now - cached[0] < self._ages.refresh_s:
            return cached[1]
        with self._lock:
            if self._cached_metadata is not None and self._cached_metadata is not cached:
                return self._cached_metadata[1]
            try:
                metadata = self._fetch_metadata()
            except Unavailable as error:
                log.warning("provider %s: %s", self.upstream.name, error.detail)
                if cached is None or now - cached[0] > self._ages.usable_s:
                    raise
                metadata = cached[1]
                now += self._ages.cooldown_s - self._ages.refresh_s
            self._cached_metadata = (now, metadata)
        return metadata

    def _fetch_metadata(self) -> Mapping[str, Any]:
        issuer = self.upstream.issuer
        metadata = self._http.request("GET", issuer.rstrip("/") + METADATA_PATH, {}).object()
        if metadata.get("issuer") != issuer:
            raise Unavailable("The provider's metadata are of another issuer")
        if not all(_is_http_url(metadata.get(name)) for name in REQUIRED_ENDPOINTS):
            raise Unavailable("The provider's metadata name no addresses that can be used")
        if issuer.startswith("https://") and any(
            not str(metadata[name]).startswith("https://") for name in REQUIRED_ENDPOINTS
        ):
            raise Unavailable("The provider's metadata lead away from https")
        return metadata


@dataclass(frozen=True)
class _AuthlibSession:
    """The HTTP session for Authlib."""

    http: HttpClient

    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any
    ) -> HttpResponse:
        sent: dict[str, str] = dict(headers)
        url, sent, body = auth.prepare("POST", url, sent, urlencode(data))
        return self.http.request("POST", url, sent, body.encode())


def _is_http_url(value: object) -> bool:
    return (
        isinstance(value, str) and value.startswith(("https://", "http://")) and len(value) < 2048
    )


LEEWAY_S = 60.0
MAX_AGE_S = 3600.0
"""Maximum age of a token that was just fetched, seconds."""


def check_id_token_claims(
    claims: Mapping[str, Any], upstream: IdentityProviderConfig, nonce: str, now: float
) -> None:
    """Check by OpenID Connect Core 1.0, 3.1.3.7; Unauthorized if invalid."""
    if claims.get("iss") != upstream.issuer:
        raise Unauthorized("The provider's token is of another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if upstream.client_id not in audiences:
        raise Unauthorized("The provider's token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != upstream.client_id:
        raise Unauthorized("The provider's token was made for another client")
    given = claims.get("nonce")
    if not isinstance(given, str) or not is_equal_secret(given, nonce):
        raise Unauthorized("The provider's token is of another login")
    _check_times(claims, now)


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    expires, issued = (_parse_seconds(claims.get(name)) for name in ("exp", "iat"))
    if expires <= now - LEEWAY_S:
        raise Unauthorized("The provider's token has expired")
    if not now - MAX_AGE_S <= issued <= now + LEEWAY_S:
        raise Unauthorized("The provider's token was made at another time")


def _parse_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise Unauthorized("The provider's token has no times that can be used")
    return value


def verified_email(claims: Mapping[str, Any], domains: Collection[str]) -> str:
    """Return the verified e-mail address; Forbidden if unverified or of another domain."""
    # Some providers send a string; 1 is invalid.
    if claims.get("email_verified") is not True and claims.get("email_verified") != "true":
        raise Forbidden("The provider has not verified your e-mail address.")
    email = normalize_email(claims.get("email"))
    if email is None:
        raise Forbidden("The provider names no e-mail address that can be used here.")
    if domains and email.rpartition("@")[2] not in domains:
        raise Forbidden("This provider is not for e-mail addresses of that domain.")
    return email


STATE_SECRET_BYTES = 24


@dataclass(frozen=True)
class UpstreamRedirects:
    """States of upstream logins, valid for `life_s`; `clock` returns seconds."""

    catalog: Catalog
    seals: ValueSealer
    clock: Callable[[], float]
    life_s: int

    def begin(self, callback: str) -> UpstreamLogin:
        """Create a login with a new state."""
        secret = secrets.token_urlsafe(STATE_SECRET_BYTES)
        state = self.seals.seal("state", [secret], ends=self.clock() + self.life_s)
        return self._login(callback, state, secret)

    def send(self, away: UpstreamLogin, provider: str, browser: str, target: str) -> None:
        """Store the login's provider, browser and target."""
        row = login.UpstreamLoginRow(
            hash_secret(away.secret), provider, hash_secret(browser), target
        )
        now_us = int(self.clock() * 1e6)
        with self.catalog.write(durable=False) as tx:
            login.insert_upstream_login(
                tx, row, now_us=now_us, ends_us=now_us + self.life_s * 1_000_000
            )

    def take_back(
        self, provider: str, state: str | None, browser: str, callback: str
    ) -> tuple[UpstreamLogin, str] | None:
        """Return the login of a state, and its target, and delete it.

        None if the state is used, expired, or another browser's."""
        now = self.clock()
        opened = self.seals.open("state", state, now=now)
        if opened is None:
            return None
        (secret,) = opened
        with self.catalog.write(durable=False) as tx:
            target = login.take_upstream_login(
                tx, hash_secret(secret), provider, hash_secret(browser), now_us=int(now * 1e6)
            )
        return None if target is None else (self._login(callback, "", secret), target)

    def _login(self, callback: str, state: str, secret: str) -> UpstreamLogin:
        nonce, verifier = (self.seals.derive_value(what, secret) for what in ("nonce", "verifier"))
        return UpstreamLogin(callback, state, nonce, verifier, secret)
