"""Token, revocation and userinfo endpoints, and hints by ID tokens.

Each exchange is one transaction that locks the grant, so of two concurrent redemptions of a code
exactly one succeeds. A reused code or token revokes the grant, and that must be committed: so an
error leaves the transaction as a value and is raised after it.
"""

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc.jws import JWSRegistry

from auth.accounts import is_user_enabled
from auth.oauth import device
from auth.oauth.provider import (
    FormFields,
    OAuthError,
    OAuthProvider,
    invalid_grant,
    invalid_request,
)
from auth.secret_values import (
    create_secret,
    encode_base64url,
    hash_secret,
    pkce_challenge,
    token_half_hash,
)
from auth.tokens.issuance import sign_claims
from auth.tokens.signing_keys import key_id
from auth.tokens.verification import (
    ID_TOKEN_CLAIM,
    TokenVerifier,
    build_own_ring,
    check_signature,
    parse_token,
)
from storage.catalog import Tx, oauth
from storage.catalog.oauth import GrantRow, OAuthClient, RefreshTokenRow
from storage.errors import Invalid, Unauthorized
from storage.model import normalize_identity

ACCESS_TOKEN_TYPE = "at+jwt"
"""RFC 9068: tells access tokens from ID tokens."""


@dataclass(frozen=True, slots=True)
class SignableGrant:
    """What the catalog has granted, to be signed as tokens."""

    grant: GrantRow
    scopes: tuple[str, ...]
    groups: tuple[str, ...]
    refresh_token: str
    nonce: str | None = None


def token_response(provider: OAuthProvider, granted: SignableGrant) -> dict[str, Any]:
    """Build the response of the token endpoint (RFC 6749, section 5.1)."""
    access = _sign_access_token(provider, granted)
    body: dict[str, Any] = {
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": provider.settings.access_token_s,
        "refresh_token": granted.refresh_token,
        "scope": " ".join(granted.scopes),
    }
    if "openid" in granted.scopes:
        body["id_token"] = _sign_id_token(provider, granted, access)
    return body


def user_claims(email: str, groups: tuple[str, ...], scopes: Collection[str]) -> dict[str, Any]:
    """Return the claims about a user that these scopes allow (OpenID Connect Core, section 5.4)."""
    claims: dict[str, Any] = {"sub": email}
    if "email" in scopes:
        claims |= {"email": email, "email_verified": True}
    if "profile" in scopes:
        claims |= {"name": email, "preferred_username": email}
    if "groups" in scopes:
        claims |= {"groups": list(groups)}
    return claims


def _sign_access_token(provider: OAuthProvider, granted: SignableGrant) -> str:
    grant = granted.grant
    claims = {
        **_time_claims(provider),
        "sub": grant.email,
        "aud": list(provider.settings.audiences),
        "client_id": grant.client,
        "email": grant.email,
        "groups": list(granted.groups),
        "scope": " ".join(granted.scopes),
        "grant": grant.id,
        "jti": str(uuid.uuid4()),
    }
    return sign_claims(provider.keys.read(), claims, kind=ACCESS_TOKEN_TYPE)


def _sign_id_token(provider: OAuthProvider, granted: SignableGrant, access: str) -> str:
    grant = granted.grant
    claims = {
        **_time_claims(provider),
        **user_claims(grant.email, granted.groups, granted.scopes),
        "aud": grant.client,
        "azp": grant.client,
        "auth_time": grant.auth_us // 1_000_000,
        "at_hash": token_half_hash(access),
    }
    if granted.nonce is not None:
        claims["nonce"] = granted.nonce
    return sign_claims(provider.keys.read(), claims, kind="JWT")


def _time_claims(provider: OAuthProvider) -> dict[str, Any]:
    now = int(provider.clock())
    return {"iss": provider.issuer, "iat": now, "exp": now + provider.settings.access_token_s}


INVALID_GRANT_TEXT = "The code or token is unknown, expired, used, or belongs to another client."
"""The same text for all causes, so that an attacker learns nothing."""

_VERIFIER_REGEX = re.compile(r"[A-Za-z0-9._~-]{43,128}")


def exchange_tokens(
    provider: OAuthProvider, client: OAuthClient, form: FormFields
) -> dict[str, Any]:
    """Handle a token request; OAuthError if its code or token is not valid."""
    field, exchange = _EXCHANGES.get(_require_field(form, "grant_type"), ("", None))
    if exchange is None:
        raise OAuthError(
            "unsupported_grant_type", "grant_type: must be one of grant_types_supported."
        )
    secret = _require_field(form, field)
    with provider.catalog.write() as tx:
        outcome = exchange(tx, provider, client, form, secret)
    if isinstance(outcome, OAuthError):
        raise outcome
    return token_response(provider, outcome)


def _redeem_code(
    tx: Tx, provider: OAuthProvider, client: OAuthClient, form: FormFields, code: str
) -> SignableGrant | OAuthError:
    grant = oauth.lock_grant_by_code(tx, hash_secret(code))
    if grant is None or grant.client != client.id:
        return invalid_grant(INVALID_GRANT_TEXT)
    if grant.redeemed_us is not None:
        # RFC 6749, 4.1.2: the code was stolen, and the thief may be the one who has tokens.
        oauth.revoke_grant(tx, grant.id, provider.now_us())
        return invalid_grant(INVALID_GRANT_TEXT)
    if not grant.is_valid(provider.now_us()) or (grant.code_ends_us or 0) <= provider.now_us():
        return invalid_grant(INVALID_GRANT_TEXT)
    if form.get("redirect_uri") != grant.redirect_uri and grant.redirect_uri is not None:
        return invalid_grant("redirect_uri: must be the one of the authorization request.")
    if not _is_pkce_match(form.get("code_verifier"), grant.challenge):
        return invalid_grant("code_verifier: does not match the code_challenge.")
    return _issue_first_tokens(tx, provider, grant)


def _is_pkce_match(verifier: str | None, challenge: str | None) -> bool:
    """Return whether the verifier matches the challenge; a verifier alone never does."""
    if verifier is None or challenge is None:
        return verifier is None and challenge is None
    return bool(_VERIFIER_REGEX.fullmatch(verifier)) and hmac.compare_digest(
        pkce_challenge(verifier), challenge
    )


def _issue_first_tokens(
    tx: Tx, provider: OAuthProvider, grant: GrantRow
) -> SignableGrant | OAuthError:
    """Issue the first tokens of a grant, and extend the grant to its full lifetime."""
    if (refusal := _refuse_disabled(tx, provider, grant)) is not None:
        return refusal
    now = provider.now_us()
    ends = now + provider.settings.grant_s * 1_000_000
    oauth.redeem_grant(tx, grant.id, now, ends_us=ends)
    token = create_secret()
    _store_refresh_token(tx, provider, token, grant.id, grant_ends_us=ends)
    groups = provider.groups(tx, grant.email)
    return SignableGrant(grant, tuple(grant.scope.split()), groups, token, grant.nonce)


def _refresh_tokens(
    tx: Tx, provider: OAuthProvider, client: OAuthClient, form: FormFields, token: str
) -> SignableGrant | OAuthError:
    grant, now = oauth.lock_grant_by_token(tx, hash_secret(token)), provider.now_us()
    used = oauth.find_refresh_token(tx, hash_secret(token))
    if grant is None or used is None or grant.client != client.id:
        return invalid_grant(INVALID_GRANT_TEXT)
    if not grant.is_valid(now) or used.ends_us <= now:
        return invalid_grant(INVALID_GRANT_TEXT)
    if (refusal := _refuse_disabled(tx, provider, grant)) is not None:
        return refusal
    scopes = _narrow_scopes(grant, form.get("scope"))
    if isinstance(scopes, OAuthError):
        return scopes
    successor = _successor_token(tx, provider, token, used)
    if not _rotate_refresh_token(tx, provider, used, successor, grant):
        oauth.revoke_grant(tx, grant.id, now)
        return invalid_grant(INVALID_GRANT_TEXT)
    return SignableGrant(grant, scopes, provider.groups(tx, grant.email), successor)


def _rotate_refresh_token(
    tx: Tx, provider: OAuthProvider, used: RefreshTokenRow, successor: str, grant: GrantRow
) -> bool:
    """Replace a refresh token by its successor; False if it is reused.

    A response may get lost, or two processes of a user refresh at once. So during a grace period a
    used token returns its one successor again, until that is used itself. Owner and thief of a
    token get the same successor, so the second use of it reveals the theft.
    """
    now = provider.now_us()
    if used.used_us is None:
        oauth.mark_refresh_token_used(tx, used.id, now)
        _store_refresh_token(tx, provider, successor, grant.id, grant_ends_us=grant.ends_us)
        return True
    row = oauth.find_refresh_token(tx, hash_secret(successor))
    unused = row is not None and row.used_us is None
    return unused and now < used.used_us + provider.settings.refresh_grace_s * 1_000_000


def _successor_token(tx: Tx, provider: OAuthProvider, token: str, used: RefreshTokenRow) -> str:
    """Derive the next refresh token; deterministic, and secret without the server's key.

    A used token may have its successor from a former key.
    """
    current, *former = (
        encode_base64url(hmac.new(key, token.encode(), hashlib.sha256).digest())
        for key in provider.refresh_keys
    )
    if used.used_us is not None:
        for each in former:
            if oauth.find_refresh_token(tx, hash_secret(each)) is not None:
                return each
    return current


def _store_refresh_token(
    tx: Tx, provider: OAuthProvider, token: str, grant_id: str, *, grant_ends_us: int
) -> None:
    now = provider.now_us()
    ends = min(now + provider.settings.refresh_idle_s * 1_000_000, grant_ends_us)
    oauth.insert_refresh_token(
        tx, RefreshTokenRow(hash_secret(token), grant_id, now, used_us=None, ends_us=ends)
    )


def _refuse_disabled(tx: Tx, provider: OAuthProvider, grant: GrantRow) -> OAuthError | None:
    """Revoke the grant of a disabled user and return the error; None if the user is enabled."""
    if is_user_enabled(tx, grant.email):
        return None
    oauth.revoke_grant(tx, grant.id, provider.now_us())
    return invalid_grant(INVALID_GRANT_TEXT)


def _narrow_scopes(grant: GrantRow, scope: str | None) -> tuple[str, ...] | OAuthError:
    """Return the requested scopes, at most those granted (RFC 6749, section 6)."""
    granted = tuple(grant.scope.split())
    requested = set(scope.split()) if scope else set(granted)
    if not requested or not requested.issubset(granted):
        return OAuthError("invalid_scope", "scope: exceeds the granted scopes.")
    return tuple(name for name in granted if name in requested)


def _require_field(form: FormFields, name: str) -> str:
    value = form.get(name)
    if not value:
        raise invalid_request(f"{name}: required.")
    return value


def _redeem_device_code(
    tx: Tx, provider: OAuthProvider, client: OAuthClient, _form: FormFields, code: str
) -> SignableGrant | OAuthError:
    found = device.poll_device(tx, provider, client, code)
    return found if isinstance(found, OAuthError) else _issue_first_tokens(tx, provider, found)


Exchange = Callable[[Tx, OAuthProvider, OAuthClient, FormFields, str], SignableGrant | OAuthError]
_EXCHANGES: Mapping[str, tuple[str, Exchange]] = {
    "authorization_code": ("code", _redeem_code),
    "refresh_token": ("refresh_token", _refresh_tokens),
    device.DEVICE_GRANT_TYPE: ("device_code", _redeem_device_code),
}
"""By grant type: the field with the code or token, and how it is exchanged."""
GRANT_TYPES = tuple(_EXCHANGES)


OWN_ALGORITHMS = ("RS256", "ES256")
"""Algorithms of this service's own keys."""


def build_own_verifier(provider: OAuthProvider) -> TokenVerifier:
    """Build a verifier of this issuer's tokens, with the keys in its file."""
    return TokenVerifier(
        {provider.issuer: build_own_ring(provider.keys, provider.clock)},
        audiences=provider.settings.audiences,
        algorithms=OWN_ALGORITHMS,
        clock=provider.clock,
        own=provider.issuer,
    )


def read_userinfo(provider: OAuthProvider, verifier: TokenVerifier, token: str) -> dict[str, Any]:
    """Return the user's claims that the token's scopes allow (OpenID Connect Core, section 5.3).

    A token that an operator signed has no grant and all scopes. OAuthError for invalid tokens.
    """
    try:
        claims = verifier.read_claims(token)
    except Unauthorized as error:
        raise OAuthError("invalid_token", error.detail, status=401) from error
    grant_id, scope = claims.get("grant"), claims.get("scope")
    if grant_id is None:
        scope = "openid email groups"
    scopes = scope.split() if isinstance(scope, str) else []
    if "openid" not in scopes:
        raise OAuthError("insufficient_scope", "The token lacks the scope openid.", status=403)
    email = normalize_identity(str(claims.get("email") or claims["sub"]))
    with provider.catalog.read() as tx:
        is_active = is_user_enabled(tx, email) and (
            grant_id is None or oauth.is_grant_valid(tx, str(grant_id), provider.now_us())
        )
        groups = provider.groups(tx, email)
    if not is_active:
        raise OAuthError("invalid_token", "The token was revoked.", status=401)
    return user_claims(email, groups, scopes)


def revoke_token(
    provider: OAuthProvider, verifier: TokenVerifier, client: OAuthClient, form: FormFields
) -> None:
    """Revoke the grant of a token (RFC 7009); unknown and expired tokens are no error."""
    token = form.get("token")
    if not token:
        raise invalid_request("token: required.")
    try:
        by_access = verifier.read_claims(token).get("grant")
    except Unauthorized:
        by_access = None
    with provider.catalog.write() as tx:
        grant = oauth.lock_grant_by_token(tx, hash_secret(token)) or (
            oauth.find_grant(tx, by_access) if by_access else None
        )
        if grant is None:
            return
        if grant.client != client.id:
            raise OAuthError("unauthorized_client", "The token belongs to another client.")
        oauth.revoke_grant(tx, grant.id, provider.now_us())


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
        keys = {key_id(key): key for key in provider.keys.read().keys}
        check_signature(
            token, keys[unverified.key_id], JWSRegistry(algorithms=list(OWN_ALGORITHMS))
        )
    except (Unauthorized, LookupError) as error:
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
