"""Access tokens of ours that are brought back to us: whose they are, and what they let us tell."""

from collections.abc import Callable, Mapping
from typing import Any

from auth.openid.errors import OAuthError
from auth.openid.provider import Provider
from auth.openid.tokens import person_claims, still_granted
from auth.tokens.claims import read
from auth.tokens.keyring import Ages, KeyRing
from auth.tokens.verifying import OWN_COOLDOWN_S, Verifier
from storage.errors import Unauthorized
from storage.model import one_spelling

Verified = Callable[[str], Mapping[str, Any]]
"""The claims of a token of ours, or Unauthorized."""

ALGORITHMS = ("RS256", "ES256")
"""Those that our own keys sign with, whatever is accepted of others."""


def verified_by(provider: Provider) -> Verified:
    """Accepts tokens of this issuer alone, by the keys in its file."""
    ring = KeyRing(
        lambda: provider.keys.read().jwks(), provider.clock, Ages(OWN_COOLDOWN_S, OWN_COOLDOWN_S)
    )
    verifier = Verifier(
        {provider.issuer: ring},
        audiences=provider.settings.audiences,
        algorithms=ALGORITHMS,
        clock=provider.clock,
        own=provider.issuer,
    )

    def verified(token: str) -> Mapping[str, Any]:
        verifier.verify(token)
        return read(token).claims

    return verified


def userinfo(provider: Provider, verified: Verified, token: str) -> dict[str, Any]:
    """What the token's scopes let its bearer know (Core, 5.3). A token that an operator signed has
    no grant and tells all; OAuthError for one that is not, or not any more, good for this."""
    try:
        claims = verified(token)
    except Unauthorized as error:
        raise OAuthError("invalid_token", error.detail, status=401) from error
    scopes = _scopes(claims)
    if "openid" not in scopes:
        raise OAuthError("insufficient_scope", "The token is not for openid.", status=403)
    email = one_spelling(str(claims.get("email") or claims["sub"]))
    with provider.catalog.read() as tx:
        enabled = provider.people.is_enabled(tx, email)
        groups = provider.people.groups(tx, email)
    if not enabled or not still_granted(provider, claims):
        raise OAuthError("invalid_token", "The token was taken back.", status=401)
    return person_claims(email, groups, scopes)


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    if claims.get("grant") is None:
        return frozenset({"openid", "email", "groups"})
    scope = claims.get("scope")
    return frozenset(scope.split() if isinstance(scope, str) else ())
