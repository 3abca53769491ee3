"""What a provider says of somebody: judging the claims of an ID token. Pure.

No error text repeats anything that came from outside.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from auth.digests import same
from storage.errors import Forbidden, Unauthorized

LEEWAY_S = 60.0
MAX_AGE_S = 3600.0
"""How long ago a token that was just fetched may say that it was made."""

_EMAIL = re.compile(r"[0-9a-z.@_\-$,=]{1,128}")


@dataclass(frozen=True)
class Expected:
    """What the token of this login must say."""

    issuer: str
    client_id: str
    nonce: str


def check_claims(claims: Mapping[str, Any], expected: Expected, now: float) -> None:
    """OpenID Connect Core 1.0, section 3.1.3.7; Unauthorized for every fault."""
    if claims.get("iss") != expected.issuer:
        raise Unauthorized("The provider's token is of another issuer")
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    if expected.client_id not in listed:
        raise Unauthorized("The provider's token is for another client")
    if (len(listed) > 1 or "azp" in claims) and claims.get("azp") != expected.client_id:
        raise Unauthorized("The provider's token was made for another client")
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not same(nonce, expected.nonce):
        raise Unauthorized("The provider's token is of another login")
    _check_times(claims, now)


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    expires, issued = (_seconds(claims.get(name)) for name in ("exp", "iat"))
    if expires <= now - LEEWAY_S:
        raise Unauthorized("The provider's token has expired")
    if not now - MAX_AGE_S <= issued <= now + LEEWAY_S:
        raise Unauthorized("The provider's token was made at another time")


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise Unauthorized("The provider's token has no times that can be used")
    return value


def email_of(claims: Mapping[str, Any], domains: Collection[str]) -> str:
    """The identity: an e-mail address that the provider verified, of a domain it may speak for."""
    # Some providers spell it as a text; 1 is neither.
    if claims.get("email_verified") is not True and claims.get("email_verified") != "true":
        raise Forbidden("The provider has not verified your e-mail address.")
    email = identity(claims.get("email"))
    if email is None:
        raise Forbidden("The provider names no e-mail address that can be used here.")
    if domains and email.rpartition("@")[2] not in domains:
        raise Forbidden("This provider is not for e-mail addresses of that domain.")
    return email


def identity(given: object) -> str | None:
    """An e-mail address as users have it here, in small letters; None for anything else."""
    if not isinstance(given, str) or not given.isascii():
        return None
    email = given.strip().lower()
    local, at, domain = email.rpartition("@")
    return email if _EMAIL.fullmatch(email) and local and at and domain else None
