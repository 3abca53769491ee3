"""The tokens that a grant gives: access tokens for the store, id tokens for the client."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auth.digests import half_digest
from auth.openid.provider import Provider
from auth.tokens.grants import Grants
from auth.tokens.issuing import sign
from storage.catalog.grants import GrantRow

ACCESS_TYPE = "at+jwt"
"""RFC 9068: nobody takes an id token for one."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What was decided in the catalog, and is to be written into tokens."""

    grant: GrantRow
    scopes: tuple[str, ...]
    groups: tuple[str, ...]
    refresh_token: str
    nonce: str | None = None


def answer(provider: Provider, granted: Granted) -> dict[str, Any]:
    """The answer of the token end point (RFC 6749, 5.1)."""
    access = _access_token(provider, granted)
    body: dict[str, Any] = {
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": provider.settings.access_token_s,
        "refresh_token": granted.refresh_token,
        "scope": " ".join(granted.scopes),
    }
    if "openid" in granted.scopes:
        body["id_token"] = _id_token(provider, granted, access)
    return body


def still_granted(provider: Provider, claims: Mapping[str, Any]) -> bool:
    """Whether what a verified access token came of still stands; one that no grant gave does."""
    grant_id = claims.get("grant")
    if grant_id is None:
        return True
    return Grants(provider.catalog, provider.clock).stands(str(grant_id))


def person_claims(email: str, groups: tuple[str, ...], scopes: frozenset[str]) -> dict[str, Any]:
    """What these scopes let a client know of a person (Core, 5.4)."""
    claims: dict[str, Any] = {"sub": email}
    if "email" in scopes:
        claims |= {"email": email, "email_verified": True}
    if "profile" in scopes:
        claims |= {"name": email, "preferred_username": email}
    if "groups" in scopes:
        claims |= {"groups": list(groups)}
    return claims


def _access_token(provider: Provider, granted: Granted) -> str:
    grant = granted.grant
    claims = {
        **_times(provider),
        "sub": grant.email,
        "aud": list(provider.settings.audiences),
        "client_id": grant.client,
        "email": grant.email,
        "groups": list(granted.groups),
        "scope": " ".join(granted.scopes),
        "grant": grant.id,
        "jti": str(uuid.uuid4()),
    }
    return sign(provider.keys.read(), claims, kind=ACCESS_TYPE)


def _id_token(provider: Provider, granted: Granted, access: str) -> str:
    grant = granted.grant
    claims = {
        **_times(provider),
        **person_claims(grant.email, granted.groups, frozenset(granted.scopes)),
        "aud": grant.client,
        "azp": grant.client,
        "auth_time": grant.auth_us // 1_000_000,
        "at_hash": half_digest(access),
    }
    if granted.nonce is not None:
        claims["nonce"] = granted.nonce
    return sign(provider.keys.read(), claims, kind="JWT")


def _times(provider: Provider) -> dict[str, Any]:
    now = int(provider.clock())
    return {"iss": provider.issuer, "iat": now, "exp": now + provider.settings.access_token_s}
