"""Verify bearer tokens: issuer, signature, audience, grant.

A service account signs tokens for the store's URL, so that no other store accepts them.
"""

import ipaddress
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, deserialize_compact

from auth.accounts import MAX_GRANT_ID
from auth.tokens.claims import UnverifiedToken, check_claims, parse_token
from auth.tokens.issuance import GROUPS_BY_CLAIM, GROUPS_BY_OPERATOR
from auth.tokens.keyring import KeyAges, KeyFetch, KeyRing, VerificationKey, fetch_json
from auth.tokens.signing_keys import SigningKeyFile
from storage.catalog import Catalog, oauth
from storage.errors import Invalid, Unauthorized
from storage.model import Principal


def own_address_check(external_url: str, allowed_hosts: Collection[str]) -> Callable[[str], bool]:
    """Return a check whether an audience is this store's base URL.

    Without an external URL, loopback addresses and the allowed hosts are accepted."""
    hosts = {host.lower() for host in allowed_hosts}
    own = _split_base_url(external_url)

    def is_own(audience: str) -> bool:
        parts = _split_base_url(audience)
        if parts is None or own is not None:
            return parts is not None and parts == own
        _, host, place, path = parts
        return not path and (_is_loopback(host) or host in hosts or place in hosts)

    return is_own


def _split_base_url(url: str) -> tuple[str, str, str, str] | None:
    """Split into scheme, host, host with any non-default port, path; None if invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    if usual is None or not host or parts.query or parts.fragment or parts.username is not None:
        return None
    place = host if port in (None, usual) else f"{host}:{port}"
    return parts.scheme, host, place, parts.path.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class GrantChecker:
    """Checks grants in the catalog; `clock` returns seconds since 1970."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._clock = clock

    def is_active(self, grant_id: str) -> bool:
        """Return whether the grant is neither revoked nor expired; one lookup by key."""
        with self._catalog.read() as tx:
            return oauth.is_grant_valid(tx, grant_id, int(self._clock() * 1e6))


TOKEN_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}) | frozenset(
    {"ES256", "ES384", "ES512"}
)
"""Supported algorithms. None is symmetric: a public key must not verify as an HMAC secret."""

ID_TOKEN_CLAIM = "at_hash"
"""A claim of this service's ID tokens only."""
TOKEN_REVOKED = "The token was revoked"
LEEWAY_S = 30.0
MAX_CACHED_TOKENS = 1_000
"""Cached tokens, of at most 16 KB, whose signature is not verified again by the same key. Time,
key, grant and account may change, so each request checks them."""
OWN_COOLDOWN_S = 1.0
"""Own keys are a small file, so rotation and removal of a leaked key take effect at once, unlike
those of foreign issuers."""


class TokenSettings(Protocol):
    """The part of Settings that decides which tokens are accepted."""

    @property
    def home(self) -> Path: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def auth_url(self) -> str: ...
    @property
    def policies_url(self) -> str: ...
    @property
    def issuers(self) -> Mapping[str, str]: ...
    @property
    def audiences(self) -> tuple[str, ...]: ...
    @property
    def external_url(self) -> str: ...
    @property
    def allowed_hosts(self) -> tuple[str, ...]: ...
    @property
    def token_algorithms(self) -> tuple[str, ...]: ...
    @property
    def keys_refresh_s(self) -> int: ...
    @property
    def keys_cooldown_s(self) -> int: ...


class SelfSignedAccounts(Protocol):
    """Accounts that sign their own tokens, each as its own issuer."""

    def find(self, email: str, kid: str) -> VerificationKey | None:
        """Return the account's key; None if the account or key is missing."""

    def check(self, algorithm: str, claims: Mapping[str, Any]) -> None:
        """Check verified claims of a service account; Unauthorized if invalid."""


class GrantLookup(Protocol):
    """Grants of this service's access tokens."""

    def is_active(self, grant_id: str) -> bool:
        """Return whether it is active."""


class _TokenRegistry(JWSRegistry):
    # Issuers may put a certificate chain into the header; the token as a whole is bounded.
    max_header_length = 16 * 1024
    max_signature_length = 4 * 1024


class TokenVerifier:
    """Verifies tokens of accepted issuers, each with that issuer's keys."""

    def __init__(
        self,
        rings: Mapping[str, KeyRing],
        *,
        audiences: Collection[str],
        algorithms: Collection[str],
        clock: Callable[[], float],
        leeway_s: float = LEEWAY_S,
        accounts: SelfSignedAccounts | None = None,
        grants: GrantLookup | None = None,
        own: str = "",
        is_own_address: Callable[[str], bool] = lambda _: False,
    ) -> None:
        if not algorithms or not TOKEN_ALGORITHMS.issuperset(algorithms):
            raise Invalid(
                "STORE_TOKEN_ALGORITHMS names an algorithm that tokens cannot be signed with"
            )
        self._rings = dict(rings)
        self._accounts = accounts
        self._grants = grants
        self._own = own
        self._is_own_address = is_own_address
        self._audiences = frozenset(audiences)
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._leeway_s = leeway_s
        self._registry = _TokenRegistry(algorithms=self._algorithms, strict_check_header=False)
        self._verified: dict[str, tuple[VerificationKey, UnverifiedToken]] = {}

    def verify(self, token: str) -> Principal:
        """Return the token's principal; Unauthorized, without quoting the token, if not valid."""
        unverified = self._parse_cached(token)
        if unverified.algorithm not in self._algorithms:
            raise Unauthorized("The token's algorithm is not accepted")
        ring = self._rings.get(unverified.issuer)
        if ring is None:
            return self._verify_self_signed(token, unverified)
        self._check_signature(token, ring.find(unverified.key_id), unverified)
        principal = self._check_claims(unverified)
        if unverified.issuer == self._own and ID_TOKEN_CLAIM in unverified.claims:
            # ID tokens are for clients, even if their audience is accepted.
            raise Unauthorized("The token is an ID token")
        principal = replace(principal, grant=self._check_grant(unverified))
        return principal if self._may_claim(unverified) else replace(principal, groups=frozenset())

    def _may_claim(self, unverified: UnverifiedToken) -> bool:
        """Return whether the token's groups count.

        Groups in this service's login tokens are informational: the catalog decides, so that
        removal from a group takes effect at once.
        """
        return (
            unverified.issuer != self._own
            or unverified.claims.get(GROUPS_BY_CLAIM) == GROUPS_BY_OPERATOR
        )

    def _check_grant(self, unverified: UnverifiedToken) -> str | None:
        """Return the grant of an own token, or None; Unauthorized if it was revoked.

        Operator-signed tokens have no grant; the claim `grant` of foreign tokens is ignored."""
        grant = unverified.claims.get("grant")
        if grant is None or unverified.issuer != self._own:
            return None
        if not isinstance(grant, str) or not 0 < len(grant) <= MAX_GRANT_ID:
            raise Unauthorized(TOKEN_REVOKED)
        if self._grants is not None and not self._grants.is_active(grant):
            raise Unauthorized(TOKEN_REVOKED)
        return grant

    def _check_claims(self, unverified: UnverifiedToken, *also: str) -> Principal:
        """Return the principal; `also` adds accepted audiences."""
        audiences = self._audiences.union(also)
        return check_claims(unverified.claims, audiences, self._clock(), self._leeway_s)

    def _verify_self_signed(self, token: str, unverified: UnverifiedToken) -> Principal:
        """Verify a service account's token; its claimed groups are ignored."""
        if self._accounts is None:
            raise _foreign_issuer_error()
        key = self._accounts.find(unverified.issuer, unverified.key_id)
        if key is None:
            raise _foreign_issuer_error()
        self._check_signature(token, key, unverified)
        audience = unverified.claims.get("aud")
        if isinstance(audience, str) and self._is_own_address(audience):
            principal = self._check_claims(unverified, audience)
        else:
            principal = self._check_claims(unverified)
        self._accounts.check(unverified.algorithm, unverified.claims)
        return replace(principal, email=unverified.issuer, groups=frozenset())

    def _parse_cached(self, token: str) -> UnverifiedToken:
        cached = self._verified.get(token)
        return parse_token(token) if cached is None else cached[1]

    def _check_signature(
        self, token: str, key: VerificationKey, unverified: UnverifiedToken
    ) -> None:
        cached = self._verified.get(token)
        if cached is not None and cached[0] is key:
            return
        # Pass the one key, not a set, so that the header cannot choose another.
        try:
            deserialize_compact(token, key, registry=self._registry)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise Unauthorized("The token's signature does not verify") from error
        # Only valid tokens are cached, so that an attacker cannot fill the cache.
        if len(self._verified) >= MAX_CACHED_TOKENS:
            self._verified.clear()
        self._verified[token] = key, unverified


def _foreign_issuer_error() -> Unauthorized:
    return Unauthorized("The token's issuer is not accepted")


def parse_bearer(authorization: str | None) -> str | None:
    """Parse the token of an Authorization header, if any; Unauthorized for other schemes."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("The Authorization header holds no bearer token")
    return token.strip()


def build_verifier(
    settings: TokenSettings,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]] = fetch_json,
    *,
    accounts: SelfSignedAccounts | None = None,
    grants: GrantLookup | None = None,
) -> TokenVerifier:
    """Build a verifier from settings; own keys are read from their file."""
    accepted = settings.issuers or {settings.auth_url: ""}
    return TokenVerifier(
        {issuer: _build_key_ring(settings, issuer, clock, fetch) for issuer in accepted},
        audiences=settings.audiences,
        algorithms=settings.token_algorithms,
        clock=clock,
        accounts=accounts,
        grants=grants,
        own=settings.auth_url,
        is_own_address=own_address_check(settings.external_url, settings.allowed_hosts),
    )


def _build_key_ring(
    settings: TokenSettings,
    issuer: str,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]],
) -> KeyRing:
    # With a remote authorization service, this home has no signing keys.
    if issuer == settings.auth_url and not settings.policies_url:
        ages = KeyAges(OWN_COOLDOWN_S, OWN_COOLDOWN_S)
        own = SigningKeyFile(settings.home, settings.secret_key)
        return KeyRing(lambda: own.read().jwks(), clock, ages)
    address = settings.issuers[issuer]
    if not address.startswith(("https://", "http://")):
        raise Invalid(f"STORE_ISSUERS gives {issuer} no http(s) address of its keys")
    source: KeyFetch = partial(fetch, address)
    return KeyRing(source, clock, KeyAges(settings.keys_refresh_s, settings.keys_cooldown_s))
