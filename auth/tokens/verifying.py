"""Bearer tokens: from an Authorization header to a principal."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, deserialize_compact

from auth.accounts.limits import MAX_GRANT
from auth.tokens.audiences import own_address
from auth.tokens.claims import Unverified, judge, read
from auth.tokens.issuing import GROUPS_BY, OPERATOR
from auth.tokens.key_file import KeyFile
from auth.tokens.keyring import Ages, Fetch, KeyRing, PublicKey, fetch_json
from storage.errors import Invalid, Unauthorized
from storage.model import Principal

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}) | frozenset(
    {"ES256", "ES384", "ES512"}
)
"""All that settings may allow. Nothing symmetric: a public key must never serve as a password."""

ID_TOKENS_ALONE = "at_hash"
"""A claim that each of our ID tokens has, and no other token."""
TAKEN_BACK = "The token was taken back"
LEEWAY_S = 30.0
VERIFIED = 1_000
"""Tokens, of at most 16 KB, whose signature is not verified again by the same key. All that may
change meanwhile is asked each time: the time, the key, the login, the account."""
OWN_COOLDOWN_S = 1.0
"""Our own keys are a small file, so neither a rotation nor the end of a key that leaked need wait
for the ages of foreign ones."""


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


class SelfSigned(Protocol):
    """Accounts that sign their own tokens: each is an issuer of its own."""

    def find(self, email: str, kid: str) -> PublicKey | None:
        """The account's key; None when there is no such account, or key, now."""

    def check(self, algorithm: str, claims: Mapping[str, Any]) -> None:
        """Unauthorized unless verified claims are as such accounts must make them."""


class Granted(Protocol):
    """The logins that our own service's access tokens came of."""

    def stands(self, grant_id: str) -> bool:
        """Whether its tokens are still good."""


class _Registry(JWSRegistry):
    # Issuers may put a certificate chain into the header; the token as a whole is bounded.
    max_header_length = 16 * 1024
    max_signature_length = 4 * 1024


class Verifier:
    """Accepts the tokens of some issuers, each against that issuer's own keys."""

    def __init__(
        self,
        rings: Mapping[str, KeyRing],
        *,
        audiences: Collection[str],
        algorithms: Collection[str],
        clock: Callable[[], float],
        leeway_s: float = LEEWAY_S,
        accounts: SelfSigned | None = None,
        grants: Granted | None = None,
        own: str = "",
        is_own_address: Callable[[str], bool] = lambda _: False,
    ) -> None:
        if not algorithms or not ALGORITHMS.issuperset(algorithms):
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
        self._registry = _Registry(algorithms=self._algorithms, strict_check_header=False)
        self._verified: dict[str, tuple[PublicKey, Unverified]] = {}

    def verify(self, token: str) -> Principal:
        """Who the token names; Unauthorized, without repeating anything of it, for every fault."""
        unverified = self._read(token)
        if unverified.algorithm not in self._algorithms:
            raise Unauthorized("The token's algorithm is not accepted")
        ring = self._rings.get(unverified.issuer)
        if ring is None:
            return self._self_signed(token, unverified)
        self._check_signature(token, ring.find(unverified.key_id), unverified)
        principal = self._judged(unverified)
        self._check_kind(unverified)
        principal = replace(principal, grant=self._granted(unverified))
        return principal if self._may_claim(unverified) else replace(principal, groups=frozenset())

    def _may_claim(self, unverified: Unverified) -> bool:
        """Whether the groups of a token count. Those that our own service wrote down at a login are
        information: the records decide, so that a group somebody was removed from counts no more;
        and nobody gets a right by what they call a group."""
        return unverified.issuer != self._own or unverified.claims.get(GROUPS_BY) == OPERATOR

    def _check_kind(self, unverified: Unverified) -> None:
        """Refuse our own ID tokens: they are for clients, whatever audiences an operator names."""
        if unverified.issuer == self._own and ID_TOKENS_ALONE in unverified.claims:
            raise Unauthorized("The token is an ID token")

    def _granted(self, unverified: Unverified) -> str | None:
        """The login that a token came of; Unauthorized when that was revoked, and it can be seen
        here. What an operator signed came of none, and what others call a grant is theirs."""
        grant = unverified.claims.get("grant")
        if grant is None or unverified.issuer != self._own:
            return None
        if not isinstance(grant, str) or not 0 < len(grant) <= MAX_GRANT:
            raise Unauthorized(TAKEN_BACK)
        if self._grants is not None and not self._grants.stands(grant):
            raise Unauthorized(TAKEN_BACK)
        return grant

    def _judged(self, unverified: Unverified, *also: str) -> Principal:
        """Whom it names; `also` are further audiences that are ours."""
        audiences = self._audiences.union(also)
        return judge(unverified.claims, audiences, self._clock(), self._leeway_s)

    def _self_signed(self, token: str, unverified: Unverified) -> Principal:
        """Whom a service account's token names: itself, and no group that it claims."""
        if self._accounts is None:
            raise _foreign()
        key = self._accounts.find(unverified.issuer, unverified.key_id)
        if key is None:
            raise _foreign()
        self._check_signature(token, key, unverified)
        audience = unverified.claims.get("aud")
        if isinstance(audience, str) and self._is_own_address(audience):
            principal = self._judged(unverified, audience)
        else:
            principal = self._judged(unverified)
        self._accounts.check(unverified.algorithm, unverified.claims)
        return replace(principal, email=unverified.issuer, groups=frozenset())

    def _read(self, token: str) -> Unverified:
        known = self._verified.get(token)
        return read(token) if known is None else known[1]

    def _check_signature(self, token: str, key: PublicKey, unverified: Unverified) -> None:
        known = self._verified.get(token)
        if known is not None and known[0] is key:
            return
        # The one key is passed, never a set: members of the header cannot choose another.
        try:
            deserialize_compact(token, key, registry=self._registry)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise Unauthorized("The token's signature does not verify") from error
        # Refusals are not kept, so that only who can sign fills it.
        if len(self._verified) >= VERIFIED:
            self._verified.clear()
        self._verified[token] = key, unverified


def _foreign() -> Unauthorized:
    return Unauthorized("The token's issuer is not accepted")


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header, None without one; any other scheme is Unauthorized."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("The Authorization header holds no bearer token")
    return token.strip()


def verifier(
    settings: TokenSettings,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]] = fetch_json,
    *,
    accounts: SelfSigned | None = None,
    grants: Granted | None = None,
) -> Verifier:
    """The verifier that the settings describe; our own keys are read from their file."""
    accepted = settings.issuers or {settings.auth_url: ""}
    return Verifier(
        {issuer: _ring(settings, issuer, clock, fetch) for issuer in accepted},
        audiences=settings.audiences,
        algorithms=settings.token_algorithms,
        clock=clock,
        accounts=accounts,
        grants=grants,
        own=settings.auth_url,
        is_own_address=own_address(settings.external_url, settings.allowed_hosts),
    )


def _ring(
    settings: TokenSettings,
    issuer: str,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]],
) -> KeyRing:
    # A store that is apart from its authorization service has none of its keys.
    if issuer == settings.auth_url and not settings.policies_url:
        ages = Ages(OWN_COOLDOWN_S, OWN_COOLDOWN_S)
        own = KeyFile(settings.home, settings.secret_key)
        return KeyRing(lambda: own.read().jwks(), clock, ages)
    address = settings.issuers[issuer]
    if not address.startswith(("https://", "http://")):
        raise Invalid(f"STORE_ISSUERS gives {issuer} no http(s) address of its keys")
    source: Fetch = partial(fetch, address)
    return KeyRing(source, clock, Ages(settings.keys_refresh_s, settings.keys_cooldown_s))
