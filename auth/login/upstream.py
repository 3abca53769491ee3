"""A provider of identities as its client: where to send a browser, what to make of its coming back.

Nothing here believes an address that came with a browser or in a token: the issuer is the
operator's, its metadata come from the issuer's own address, and every request passes the guard.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.client import OAuth2Client
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, deserialize_compact

from auth.login.identity import Expected, check_claims, email_of
from auth.login.outgoing import Answer, Outgoing
from auth.tokens.claims import read
from auth.tokens.keyring import Ages, KeyRing
from storage.errors import StoreError, Unauthorized, Unavailable

log = logging.getLogger(__name__)

WELL_KNOWN = "/.well-known/openid-configuration"
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384"})

ONLY = "(the only key)"
"""Stands for the name of a key: tokens need not name it where a provider has but one."""


@dataclass(frozen=True)
class Upstream:
    """A provider as the operator named it."""

    name: str
    title: str
    issuer: str
    client_id: str
    secret: str = field(repr=False)
    domains: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "email")


@dataclass(frozen=True)
class Login:
    """One login under way: what the provider is told, and must tell again."""

    callback: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class Provider:
    """One provider, for many threads; its metadata and keys are kept, and read again when old."""

    def __init__(
        self, upstream: Upstream, outgoing: Outgoing, clock: Callable[[], float], ages: Ages
    ) -> None:
        self.upstream = upstream
        self._outgoing = outgoing
        self._clock = clock
        self._ages = ages
        self._lock = threading.Lock()
        self._held: tuple[float, Mapping[str, Any]] | None = None
        self._ring = KeyRing(self._keys, clock, ages)

    def url(self, login: Login, *, again: bool = False, hint: str = "") -> str:
        """Where the browser goes to log in: code flow, PKCE S256, state and nonce; `again`: though
        the provider knows already who is there; `hint`: as whom the person is expected to."""
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
        """RFC 9207: an answer that names another issuer, or none where it should, is not its."""
        promised = self._metadata().get("authorization_response_iss_parameter_supported") is True
        if (given is None and promised) or given not in (None, self.upstream.issuer):
            raise Unauthorized("The answer is of another provider")

    def email(self, login: Login, code: str) -> str:
        """Who logged in: the code is exchanged, the token verified, its claims judged."""
        token = self._exchanged(login, code)
        claims = self._verified(token.get("id_token"))
        check_claims(claims, self._expected(login), self._clock())
        if "email" not in claims:
            claims = {**claims, **self._userinfo(token, claims)}
        return email_of(claims, self.upstream.domains)

    def logout_url(self, back: str, state: str) -> str | None:
        """Where the provider ends its own session; None when it offers no such address."""
        try:
            end = self._metadata().get("end_session_endpoint")
        except StoreError:
            # Logging out here must not depend on somebody else's health.
            return None
        if not _is_address(end):
            return None
        told = {
            "client_id": self.upstream.client_id,
            "post_logout_redirect_uri": back,
            "state": state,
        }
        return f"{end}{'&' if '?' in str(end) else '?'}{urlencode(told)}"

    def _expected(self, login: Login) -> Expected:
        return Expected(self.upstream.issuer, self.upstream.client_id, login.nonce)

    def _client(self, login: Login) -> Any:
        return OAuth2Client(
            _Session(self._outgoing),
            self.upstream.client_id,
            self.upstream.secret,
            token_endpoint_auth_method=self._authentication(),
            scope=" ".join(self.upstream.scopes),
            redirect_uri=login.callback,
            code_challenge_method="S256",
        )

    def _authentication(self) -> str:
        if not self.upstream.secret:
            return "none"
        offered = self._metadata().get("token_endpoint_auth_methods_supported")
        only_post = isinstance(offered, list) and "client_secret_basic" not in offered
        return "client_secret_post" if only_post else "client_secret_basic"

    def _exchanged(self, login: Login, code: str) -> Mapping[str, Any]:
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

    def _verified(self, token: object) -> Mapping[str, Any]:
        if not isinstance(token, str):
            raise Unauthorized("The provider sent no ID token")
        unverified = read(token, unnamed=ONLY)
        if unverified.algorithm not in ALGORITHMS:
            raise Unauthorized("The token's algorithm is not accepted")
        key = self._ring.find(unverified.key_id)
        registry = JWSRegistry(algorithms=sorted(ALGORITHMS), strict_check_header=False)
        try:
            deserialize_compact(token, key, registry=registry)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise Unauthorized("The token's signature does not verify") from error
        return unverified.claims

    def _userinfo(self, token: Mapping[str, Any], claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """OpenID Connect Core 1.0, section 5.3.2: only of the very same subject."""
        endpoint, access = self._metadata().get("userinfo_endpoint"), token.get("access_token")
        if not _is_address(endpoint) or not isinstance(access, str) or not access.isascii():
            return {}
        headers = {"Authorization": f"Bearer {access}"}
        found = self._outgoing.request("GET", str(endpoint), headers).object()
        if found.get("sub") is None or found["sub"] != claims.get("sub"):
            raise Unauthorized("The provider's answer is about somebody else")
        return {name: found[name] for name in ("email", "email_verified") if name in found}

    def _keys(self) -> Mapping[str, Any]:
        found = self._outgoing.request("GET", self._metadata()["jwks_uri"], {}).object()
        keys = found.get("keys")
        if isinstance(keys, list) and len(keys) == 1 and isinstance(keys[0], dict):
            return {"keys": [*keys, {**keys[0], "kid": ONLY}]}
        return found

    def _metadata(self) -> Mapping[str, Any]:
        """The provider's metadata; old ones while it does not answer."""
        held, now = self._held, self._clock()
        if held is not None and 0 <= now - held[0] < self._ages.refresh_s:
            return held[1]
        with self._lock:
            if self._held is not None and self._held is not held:
                return self._held[1]
            try:
                found = self._read()
            except Unavailable as error:
                log.warning("provider %s: %s", self.upstream.name, error.detail)
                if held is None or now - held[0] > self._ages.usable_s:
                    raise
                found = held[1]
                now += self._ages.cooldown_s - self._ages.refresh_s
            self._held = (now, found)
        return found

    def _read(self) -> Mapping[str, Any]:
        issuer = self.upstream.issuer
        found = self._outgoing.request("GET", issuer.rstrip("/") + WELL_KNOWN, {}).object()
        if found.get("issuer") != issuer:
            raise Unavailable("The provider's metadata are of another issuer")
        if not all(_is_address(found.get(name)) for name in ENDPOINTS):
            raise Unavailable("The provider's metadata name no addresses that can be used")
        if issuer.startswith("https://") and any(
            not str(found[name]).startswith("https://") for name in ENDPOINTS
        ):
            raise Unavailable("The provider's metadata lead away from https")
        return found


@dataclass(frozen=True)
class _Session:
    """What Authlib sends its requests with."""

    outgoing: Outgoing

    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any
    ) -> Answer:
        sent: dict[str, str] = dict(headers)
        url, sent, body = auth.prepare("POST", url, sent, urlencode(data))
        return self.outgoing.request("POST", url, sent, body.encode())


def _is_address(value: object) -> bool:
    return (
        isinstance(value, str) and value.startswith(("https://", "http://")) and len(value) < 2048
    )
