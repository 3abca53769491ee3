"""Verify bearer tokens: issuer, signature, claims and grant, by cached keys of each issuer.

The operator chooses the addresses of keys; nothing in a token influences them. A service account
signs tokens for the store's URL, so that no other store accepts them. No error text repeats
anything that came in a token.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact

from auth.accounts import MAX_GRANT_ID
from auth.http_client import HttpClient
from auth.secret_values import decode_base64url
from auth.service_accounts import ServiceAccounts
from auth.tokens.signing_keys import SigningKeyFile
from storage.catalog import Catalog, oauth
from storage.errors import DomainError, Invalid, Unauthorized, Unavailable
from storage.model import Principal

log = logging.getLogger(__name__)

VerificationKey = RSAKey | ECKey
KeyFetch = Callable[[], Mapping[str, Any]]
"""Return a JWK set; raise Unavailable if it cannot be read."""

MAX_ISSUER_KEYS = 100
FETCH_TIMEOUT_S = 5.0
OWN_COOLDOWN_S = 1.0
"""Own keys are a small file, so rotation and removal of a leaked key take effect at once, unlike
those of foreign issuers."""
MIN_RSA_MODULUS_LENGTH = 342
"""Length of a 2,048-bit modulus in base64url; shorter keys are ignored."""


@dataclass(frozen=True)
class KeyAges:
    """How old keys may be, in seconds."""

    refresh_s: float
    cooldown_s: float
    usable_s: float = 86_400.0
    """Maximum age of keys that could not be refreshed."""

    waiting_s: float = 1.0
    """How long a token with an unknown key waits for a fetch that another thread is making."""


@dataclass(frozen=True)
class _CachedKeys:
    keys: Mapping[str, VerificationKey] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None
    """The JWK set. While it is unchanged, keys stay the same objects, so that cached verifications
    remain valid."""
    fetched_at: float | None = None
    tried_at: float | None = None
    failed: bool = False


class KeyRing:
    """One issuer's keys, for many threads; fetches at most once per cooldown."""

    def __init__(self, fetch: KeyFetch, clock: Callable[[], float], ages: KeyAges) -> None:
        self._fetch = fetch
        self._clock = clock
        self._ages = ages
        self._cached = _CachedKeys()
        self._lock = threading.Lock()

    def find(self, key_id: str) -> VerificationKey:
        """Return a key; Unauthorized if unknown, Unavailable if the keys cannot be read."""
        settled = not self._is_refresh_due(key_id) or self._refresh(key_id)
        held = self._cached
        key = held.keys.get(key_id)
        if key is not None and _is_within(held.fetched_at, self._clock(), self._ages.usable_s):
            return key
        if held.failed:
            wait_s = max(1, round(self._ages.cooldown_s))
            raise Unavailable("The keys of the token's issuer cannot be read", retry_after_s=wait_s)
        if not settled:
            raise Unavailable("The keys of the token's issuer are being read", retry_after_s=1)
        raise Unauthorized("The token's key is unknown to its issuer")

    def _is_refresh_due(self, key_id: str) -> bool:
        held, now = self._cached, self._clock()
        if _is_within(held.tried_at, now, self._ages.cooldown_s):
            return False
        return key_id not in held.keys or not _is_within(held.fetched_at, now, self._ages.refresh_s)

    def _refresh(self, key_id: str) -> bool:
        """Fetch keys; False if another thread has not finished its fetch in time."""
        # With a usable key, do not wait for the thread that fetches.
        wait_s = 0.0 if key_id in self._cached.keys else self._ages.waiting_s
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if self._is_refresh_due(key_id):
                self._cached = self._fetch_keys()
        finally:
            self._lock.release()
        return True

    def _fetch_keys(self) -> _CachedKeys:
        held = self._cached
        try:
            document = self._fetch()
            keys = held.keys if document == held.document else _parse_key_set(document)
        except Unavailable as error:
            log.warning("keys of an issuer cannot be read: %s", error.detail)
            return replace(self._cached, tried_at=self._clock(), failed=True)
        now = self._clock()
        return _CachedKeys(keys=keys, document=document, fetched_at=now, tried_at=now)


def _is_within(since: float | None, now: float, span_s: float) -> bool:
    """Return whether less than the span has passed; False if the clock was set back."""
    return since is not None and 0 <= now - since < span_s


def _parse_key_set(document: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """Return the usable keys of a JWK set by id; skip all others."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise Unavailable("not a JWK set")
    found = (_parse_public_key(data) for data in listed[:MAX_ISSUER_KEYS])
    return {key.kid: key for key in found if key is not None and key.kid}


def _parse_public_key(data: object) -> VerificationKey | None:
    """Parse a public key; None if it is symmetric, weak or invalid."""
    if not isinstance(data, dict):
        return None
    if data.get("kty") == "RSA" and len(str(data.get("n", ""))) < MIN_RSA_MODULUS_LENGTH:
        return None
    if data.get("use", "sig") != "sig" or not isinstance(data.get("kid"), str):
        return None
    try:
        key = JWKRegistry.import_key(data)
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError):
        return None
    return key if isinstance(key, RSAKey | ECKey) else None


def fetch_json(url: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> Mapping[str, Any]:
    """Return the JSON object at a URL that the operator chose; Unavailable if there is none."""
    return HttpClient(timeout_s).request("GET", url, {}).object()


MAX_TOKEN = 16 * 1024
MAX_CLAIM_TEXT = 512
MAX_IDENTITY = 254
MAX_SECONDS = 2**53

_COMPACT_REGEX = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class UnverifiedToken:
    """A parsed token, untrusted until its signature is verified."""

    algorithm: str
    key_id: str
    issuer: str
    claims: Mapping[str, Any]


def parse_token(token: str, *, unnamed: str | None = None) -> UnverifiedToken:
    """Parse a compact JWS; Unauthorized if malformed. `unnamed` is the default key id."""
    if len(token) > MAX_TOKEN:
        raise Unauthorized("The token is too large")
    parts = _COMPACT_REGEX.fullmatch(token)
    if parts is None:
        raise Unauthorized("The token is not a signed JWT")
    header, claims = _parse_segment(parts[1]), _parse_segment(parts[2])
    if "crit" in header or "b64" in header:
        raise Unauthorized("The token uses an extension that is not supported")
    return UnverifiedToken(
        algorithm=_read_text(header, "alg"),
        key_id=_read_text(header, "kid") if unnamed is None or "kid" in header else unnamed,
        issuer=_read_text(claims, "iss"),
        claims=claims,
    )


def check_claims(
    claims: Mapping[str, Any], audiences: Collection[str], now: float, leeway_s: float
) -> Principal:
    """Return the principal of a verified token; Unauthorized for wrong audience or time."""
    check_time(claims, now, leeway_s)
    if not set(audiences) & set(_read_texts(claims, "aud", single=lambda text: [text])):
        raise Unauthorized("The token is for another audience")
    return Principal(
        email=_read_identity(claims),
        groups=frozenset(_read_texts(claims, "groups")),
        scopes=frozenset(_read_texts(claims, "scope", single=str.split)),
        issuer=_read_text(claims, "iss"),
        issued_at=_read_seconds(claims, "iat"),
    )


def check_time(claims: Mapping[str, Any], now: float, leeway_s: float) -> None:
    """Check `exp`, `nbf` and `iat`; `exp` is required: some tokens cannot be revoked."""
    expires = _read_seconds(claims, "exp")
    if expires is None:
        raise Unauthorized("The token has no expiry")
    if expires <= now - leeway_s:
        raise Unauthorized("The token has expired")
    for claim in ("nbf", "iat"):
        since = _read_seconds(claims, claim)
        if since is not None and since > now + leeway_s:
            raise Unauthorized("The token is not valid yet")


def _read_identity(claims: Mapping[str, Any]) -> str:
    """Return `email`, else `sub`; Unauthorized if the address is not verified."""
    claim = "sub" if claims.get("email") is None else "email"
    # A missing email_verified is accepted; any value but true is not.
    if claim == "email" and claims.get("email_verified") not in (None, True, "true"):
        raise Unauthorized("The token's e-mail address is not verified")
    identity = _read_text(claims, claim)
    if len(identity) > MAX_IDENTITY or " " in identity:
        raise Unauthorized(f"The token's {claim} cannot be used as an identity")
    return identity


def _read_seconds(claims: Mapping[str, Any], claim: str) -> int | float | None:
    value = claims.get(claim)
    if value is None:
        return None
    # A boolean is an int to Python; NaN fails the comparison, as infinities and huge integers do.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS:
        return value
    raise _claim_error(claim)


def _read_texts(
    claims: Mapping[str, Any], claim: str, *, single: Callable[[str], list[str]] | None = None
) -> list[str]:
    """Return a claim that is a list of strings, or one string that `single` splits."""
    value = claims.get(claim)
    if value is None:
        return []
    if isinstance(value, str) and single is not None:
        value = single(value)
    if not isinstance(value, list) or not all(_is_text(item) for item in value):
        raise _claim_error(claim)
    return value


def _read_text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not _is_text(value):
        raise _claim_error(name)
    return str(value)


def _is_text(value: object) -> bool:
    """Return whether the value is printable text of bounded length."""
    return isinstance(value, str) and 0 < len(value) <= MAX_CLAIM_TEXT and value.isprintable()


def _claim_error(name: str) -> Unauthorized:
    return Unauthorized(f"The token's {name} is missing or cannot be used")


def _parse_segment(segment: str) -> dict[str, Any]:
    """Parse the JSON object of a segment; reject NaN and Infinity."""
    try:
        raw = decode_base64url(segment)
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Unauthorized("The token is not a signed JWT") from error
    if not isinstance(value, dict):
        raise Unauthorized("The token is not a signed JWT")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError("not JSON")


def build_own_ring(keys: SigningKeyFile, clock: Callable[[], float]) -> KeyRing:
    """Build the ring of this service's own keys."""
    return KeyRing(lambda: keys.read().jwks(), clock, KeyAges(OWN_COOLDOWN_S, OWN_COOLDOWN_S))


TOKEN_USE_INTERVAL_US = 600_000_000
"""How exactly the last use of a personal token is recorded."""


class GrantChecker:
    """Checks grants in the catalog; `clock` returns seconds since 1970."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._clock = clock

    def is_active(self, grant_id: str) -> bool:
        """Return whether the grant is neither revoked nor expired; one lookup by key.

        It records the last use of a personal token, at most once per TOKEN_USE_INTERVAL_US.
        """
        now_us = int(self._clock() * 1e6)
        with self._catalog.read() as tx:
            use = oauth.find_grant_use(tx, grant_id, now_us)
        if use and use.personal and now_us - (use.used_us or 0) >= TOKEN_USE_INTERVAL_US:
            self._record_use(grant_id, now_us)
        return use is not None

    def _record_use(self, grant_id: str, now_us: int) -> None:
        """Record a use; a catalog that takes no writes must not refuse the token's reads."""
        try:
            with self._catalog.write(durable=False) as tx:
                oauth.touch_grant(tx, grant_id, now_us)
        except DomainError as error:
            log.info("the last use of a personal token was not recorded: %s", error.detail)


TOKEN_ALGORITHMS = frozenset(
    {
        *("RS256", "RS384", "RS512"),
        *("PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512"),
    }
)
"""Supported algorithms. None is symmetric: a public key must not verify as an HMAC secret."""

ID_TOKEN_CLAIM = "at_hash"
"""A claim of this service's ID tokens only."""
TOKEN_REVOKED = "The token was revoked"
LEEWAY_S = 30.0
MAX_CACHED_TOKENS = 1_000
"""Cached tokens, of at most 16 KB, whose signature and claims are not checked again by the same
key. Time, key, grant and account may change, so each request checks them."""

GROUPS_BY_CLAIM, GROUPS_BY_OPERATOR = "groups_by", "operator"
"""A claim, and its value in tokens whose groups an operator chose."""


class _TokenRegistry(JWSRegistry):
    # Issuers may put a certificate chain into the header; the token as a whole is bounded.
    max_header_length = 16 * 1024
    max_signature_length = 4 * 1024


def check_signature(token: str, key: VerificationKey, registry: JWSRegistry) -> None:
    """Raise Unauthorized unless the key signed the token by an algorithm of the registry.

    It is the one key, not a set, so that the token's header cannot choose another.
    """
    try:
        deserialize_compact(token, key, registry=registry)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise Unauthorized("The token's signature does not verify") from error


@dataclass(frozen=True, slots=True)
class CheckedToken:
    """A token with a valid signature of this key, and valid claims, for this principal."""

    unverified: UnverifiedToken
    key: VerificationKey
    principal: Principal


def require_token_algorithms(algorithms: Collection[str]) -> None:
    """Raise Invalid unless these are algorithms that tokens can be signed with."""
    if not algorithms or not TOKEN_ALGORITHMS.issuperset(algorithms):
        known = ", ".join(sorted(TOKEN_ALGORITHMS))
        raise Invalid(f"STORE_TOKEN_ALGORITHMS: must be one or more of {known}")


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
        accounts: ServiceAccounts | None = None,
        grants: GrantChecker | None = None,
        own: str = "",
        is_own_address: Callable[[str], bool] = lambda _: False,
    ) -> None:
        require_token_algorithms(algorithms)
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
        self._verified: dict[str, CheckedToken] = {}

    def verify(self, token: str) -> Principal:
        """Return the token's principal; Unauthorized, without quoting the token, if not valid."""
        cached = self._verified.get(token)
        unverified = parse_token(token) if cached is None else cached.unverified
        if unverified.algorithm not in self._algorithms:
            raise Unauthorized("The token's algorithm is not accepted")
        ring = self._rings.get(unverified.issuer)
        key = self._find_account_key(unverified) if ring is None else ring.find(unverified.key_id)
        if cached is None or cached.key is not key:
            cached = self._verify_with(key, token, unverified)
        else:
            check_time(unverified.claims, self._clock(), self._leeway_s)
        grant = cached.principal.grant
        if grant is not None and self._grants is not None and not self._grants.is_active(grant):
            raise Unauthorized(TOKEN_REVOKED)
        return cached.principal

    def read_claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a valid token; else Unauthorized."""
        self.verify(token)
        return parse_token(token).claims

    def _find_account_key(self, unverified: UnverifiedToken) -> VerificationKey:
        """Find the key of a service account, which is the issuer of its tokens."""
        key = None
        if self._accounts is not None:
            key = self._accounts.find(unverified.issuer, unverified.key_id)
        if key is None:
            raise Unauthorized("The token's issuer is not accepted")
        return key

    def _verify_with(
        self, key: VerificationKey, token: str, unverified: UnverifiedToken
    ) -> CheckedToken:
        """Check signature and claims, and cache the token."""
        check_signature(token, key, self._registry)
        is_of_account = unverified.issuer not in self._rings
        identify = self._identify_account if is_of_account else self._identify_user
        verified = CheckedToken(unverified, key, identify(unverified))
        # Only valid tokens are cached, so that an attacker cannot fill the cache.
        if len(self._verified) >= MAX_CACHED_TOKENS:
            self._verified.clear()
        self._verified[token] = verified
        return verified

    def _identify_user(self, unverified: UnverifiedToken) -> Principal:
        """Return the principal; only tokens of this service have grants.

        Groups in this service's login tokens are informational: the catalog decides, so that
        removal from a group takes effect at once. Operator-signed tokens have no grant.
        """
        claims = unverified.claims
        principal = check_claims(claims, self._audiences, self._clock(), self._leeway_s)
        if unverified.issuer != self._own:
            return principal
        if ID_TOKEN_CLAIM in claims:
            # ID tokens are for clients, even if their audience is accepted.
            raise Unauthorized("The token is an ID token")
        grant = claims.get("grant")
        if grant is not None and not (isinstance(grant, str) and 0 < len(grant) <= MAX_GRANT_ID):
            raise Unauthorized(TOKEN_REVOKED)
        is_by_operator = claims.get(GROUPS_BY_CLAIM) == GROUPS_BY_OPERATOR
        groups = principal.groups if is_by_operator else frozenset[str]()
        return replace(principal, grant=grant, groups=groups)

    def _identify_account(self, unverified: UnverifiedToken) -> Principal:
        """Return the principal of a service account's token; its claimed groups are ignored."""
        audiences, audience = self._audiences, unverified.claims.get("aud")
        if isinstance(audience, str) and self._is_own_address(audience):
            audiences = audiences.union({audience})
        principal = check_claims(unverified.claims, audiences, self._clock(), self._leeway_s)
        if self._accounts is not None:
            self._accounts.check(unverified.algorithm, unverified.claims)
        return replace(principal, email=unverified.issuer, groups=frozenset())


def parse_bearer(authorization: str | None) -> str | None:
    """Parse the token of an Authorization header, if any; Unauthorized for other schemes."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("The Authorization header holds no bearer token")
    return token.strip()
