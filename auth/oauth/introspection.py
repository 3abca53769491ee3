"""Verify this service's own tokens: userinfo, revocation and ID token hints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError
from joserfc.jws import deserialize_compact

from auth.oauth.clients import OAuthClient
from auth.oauth.errors import OAuthError, invalid_request
from auth.oauth.provider import FormFields, OAuthProvider
from auth.oauth.tokens import is_grant_active, user_claims
from auth.secret_values import hash_secret
from auth.tokens.claims import parse_token
from auth.tokens.keyring import KeyAges, KeyRing
from auth.tokens.signing_keys import key_id
from auth.tokens.verification import ID_TOKEN_CLAIM, OWN_COOLDOWN_S, TokenVerifier
from storage.catalog import oauth
from storage.errors import Invalid, Unauthorized
from storage.model import normalize_identity

ClaimsVerifier = Callable[[str], Mapping[str, Any]]
"""Return the claims of a token of this service; Unauthorized if it is not valid."""

OWN_ALGORITHMS = ("RS256", "ES256")
"""Algorithms of this service's own keys."""


def build_claims_verifier(provider: OAuthProvider) -> ClaimsVerifier:
    """Build a verifier of this issuer's tokens, with the keys in its file."""
    ring = KeyRing(
        lambda: provider.keys.read().jwks(), provider.clock, KeyAges(OWN_COOLDOWN_S, OWN_COOLDOWN_S)
    )
    verifier = TokenVerifier(
        {provider.issuer: ring},
        audiences=provider.settings.audiences,
        algorithms=OWN_ALGORITHMS,
        clock=provider.clock,
        own=provider.issuer,
    )

    def verify(token: str) -> Mapping[str, Any]:
        verifier.verify(token)
        return parse_token(token).claims

    return verify


def read_userinfo(provider: OAuthProvider, verify: ClaimsVerifier, token: str) -> dict[str, Any]:
    """Return the user's claims that the token's scopes allow (OpenID Connect Core, section 5.3).

    A token that an operator signed has no grant and all scopes. OAuthError for invalid tokens.
    """
    try:
        claims = verify(token)
    except Unauthorized as error:
        raise OAuthError("invalid_token", error.detail, status=401) from error
    scopes = _token_scopes(claims)
    if "openid" not in scopes:
        raise OAuthError("insufficient_scope", "The token lacks the scope openid.", status=403)
    email = normalize_identity(str(claims.get("email") or claims["sub"]))
    with provider.catalog.read() as tx:
        enabled = provider.people.is_enabled(tx, email)
        groups = provider.people.groups(tx, email)
    if not enabled or not is_grant_active(provider, claims):
        raise OAuthError("invalid_token", "The token was revoked.", status=401)
    return user_claims(email, groups, scopes)


def _token_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    if claims.get("grant") is None:
        return frozenset({"openid", "email", "groups"})
    scope = claims.get("scope")
    return frozenset(scope.split() if isinstance(scope, str) else ())


def revoke_token(
    provider: OAuthProvider, verify: ClaimsVerifier, client: OAuthClient, form: FormFields
) -> None:
    """Revoke the grant of a token (RFC 7009); unknown and expired tokens are no error."""
    token = form.get("token")
    if not token:
        raise invalid_request("token: required.")
    by_access = _find_grant_id(verify, token)
    with provider.catalog.write() as tx:
        grant = oauth.lock_grant_by_token(tx, hash_secret(token)) or (
            oauth.find_grant(tx, by_access) if by_access else None
        )
        if grant is None:
            return
        if grant.client != client.id:
            raise OAuthError("unauthorized_client", "The token belongs to another client.")
        oauth.revoke_grant(tx, grant.id, provider.now_us())


def _find_grant_id(verify: ClaimsVerifier, token: str) -> str | None:
    try:
        claims: Mapping[str, Any] = verify(token)
    except Unauthorized:
        return None
    grant_id = claims.get("grant")
    return grant_id if isinstance(grant_id, str) else None


MAX_ID_TOKEN_HINT = 64 * 1024


@dataclass(frozen=True, slots=True)
class IdTokenHint:
    """The client that an ID token was issued to, and the person it is about."""

    client: str
    email: str


def read_id_token_hint(provider: OAuthProvider, token: str) -> IdTokenHint:
    """Parse an ID token of this service, which may have expired; Invalid for other tokens."""
    try:
        if len(token) > MAX_ID_TOKEN_HINT:
            raise Unauthorized("The token is too long")
        unverified = parse_token(token)
        # Pass the one key, not a set, so that the header cannot choose another.
        keys = {key_id(key): key for key in provider.keys.read().keys}
        deserialize_compact(token, keys[unverified.key_id], algorithms=list(OWN_ALGORITHMS))
    except (Unauthorized, JoseError, LookupError, ValueError, TypeError, RecursionError) as error:
        raise _hint_error() from error
    claims = unverified.claims
    client, email = claims.get("aud"), claims.get("sub")
    is_own = claims.get("iss") == provider.issuer and ID_TOKEN_CLAIM in claims
    if not is_own or not isinstance(client, str) or not isinstance(email, str):
        raise _hint_error()
    return IdTokenHint(client, normalize_identity(email))


def _hint_error() -> Invalid:
    reason = "must be an ID token of this service whose signing key still exists"
    return Invalid(f"id_token_hint: {reason}", errors={"id_token_hint": [reason]})
