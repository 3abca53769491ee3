"""Token endpoint: exchange codes, refresh tokens and device codes for tokens.

Each exchange is one transaction that locks the grant, so of two concurrent redemptions of a code
exactly one succeeds. A reused code or token revokes the grant, and that must be committed: so an
error leaves the transaction as a value and is raised after it.
"""

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from auth.oauth import device
from auth.oauth.clients import OAuthClient
from auth.oauth.errors import OAuthError, invalid_grant, invalid_request
from auth.oauth.provider import FormFields, OAuthProvider
from auth.secret_values import (
    create_secret,
    encode_base64url,
    hash_secret,
    pkce_challenge,
    token_half_hash,
)
from auth.tokens.issuance import sign_claims
from auth.tokens.verification import GrantChecker
from storage.catalog import Tx, oauth
from storage.catalog.oauth import GrantRow, RefreshTokenRow

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


def is_grant_active(provider: OAuthProvider, claims: Mapping[str, Any]) -> bool:
    """Return whether an access token's grant is active; True for tokens without a grant."""
    grant_id = claims.get("grant")
    if grant_id is None:
        return True
    return GrantChecker(provider.catalog, provider.clock).is_active(str(grant_id))


def user_claims(email: str, groups: tuple[str, ...], scopes: frozenset[str]) -> dict[str, Any]:
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
        **user_claims(grant.email, granted.groups, frozenset(granted.scopes)),
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
    act = _EXCHANGES.get(_require_field(form, "grant_type"))
    if act is None:
        raise OAuthError(
            "unsupported_grant_type", "grant_type: must be one of grant_types_supported."
        )
    return token_response(provider, act(provider, client, form))


def _exchange_code(provider: OAuthProvider, client: OAuthClient, form: FormFields) -> SignableGrant:
    code = _require_field(form, "code")
    with provider.catalog.write() as tx:
        outcome = _redeem_code(
            tx, provider, client, form, oauth.lock_grant_by_code(tx, hash_secret(code))
        )
    return _raise_refusal(outcome)


def _exchange_refresh_token(
    provider: OAuthProvider, client: OAuthClient, form: FormFields
) -> SignableGrant:
    token = _require_field(form, "refresh_token")
    with provider.catalog.write() as tx:
        outcome = _refresh_tokens(tx, provider, client, form, token)
    return _raise_refusal(outcome)


def _exchange_device_code(
    provider: OAuthProvider, client: OAuthClient, form: FormFields
) -> SignableGrant:
    code = _require_field(form, "device_code")
    with provider.catalog.write() as tx:
        found = device.poll_device(tx, provider, client, code)
        outcome = (
            found if isinstance(found, OAuthError) else _issue_first_tokens(tx, provider, found)
        )
    return _raise_refusal(outcome)


_EXCHANGES: Mapping[str, Callable[[OAuthProvider, OAuthClient, FormFields], SignableGrant]] = {
    "authorization_code": _exchange_code,
    "refresh_token": _exchange_refresh_token,
    device.DEVICE_GRANT_TYPE: _exchange_device_code,
}
GRANT_TYPES = tuple(_EXCHANGES)


def _redeem_code(
    tx: Tx, provider: OAuthProvider, client: OAuthClient, form: FormFields, grant: GrantRow | None
) -> SignableGrant | OAuthError:
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
    groups = provider.people.groups(tx, grant.email)
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
    successor = _successor_token(provider, token)
    if not _rotate_refresh_token(tx, provider, used, successor, grant):
        oauth.revoke_grant(tx, grant.id, now)
        return invalid_grant(INVALID_GRANT_TEXT)
    return SignableGrant(grant, scopes, provider.people.groups(tx, grant.email), successor)


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


def _successor_token(provider: OAuthProvider, token: str) -> str:
    """Derive the next refresh token; deterministic, and secret without the server's key."""
    return encode_base64url(hmac.new(provider.refresh_key, token.encode(), hashlib.sha256).digest())


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
    if provider.people.is_enabled(tx, grant.email):
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


def _raise_refusal(outcome: SignableGrant | OAuthError) -> SignableGrant:
    if isinstance(outcome, OAuthError):
        raise outcome
    return outcome


def _require_field(form: FormFields, name: str) -> str:
    value = form.get(name)
    if not value:
        raise invalid_request(f"{name}: required.")
    return value
