"""Check the claims of a provider's ID token, and normalize e-mail addresses.

Error messages never quote external input.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from auth.secret_values import is_equal_secret
from storage.errors import Forbidden, Unauthorized

LEEWAY_S = 60.0
MAX_AGE_S = 3600.0
"""Maximum age of a token that was just fetched, seconds."""

_EMAIL_REGEX = re.compile(r"[0-9a-z.@_\-$,=]{1,128}")


@dataclass(frozen=True)
class ExpectedClaims:
    """Required claims of a login's token."""

    issuer: str
    client_id: str
    nonce: str


def check_id_token_claims(claims: Mapping[str, Any], expected: ExpectedClaims, now: float) -> None:
    """Check by OpenID Connect Core 1.0, 3.1.3.7; Unauthorized if invalid."""
    if claims.get("iss") != expected.issuer:
        raise Unauthorized("The provider's token is of another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if expected.client_id not in audiences:
        raise Unauthorized("The provider's token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != expected.client_id:
        raise Unauthorized("The provider's token was made for another client")
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not is_equal_secret(nonce, expected.nonce):
        raise Unauthorized("The provider's token is of another login")
    _check_times(claims, now)


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    expires, issued = (_parse_seconds(claims.get(name)) for name in ("exp", "iat"))
    if expires <= now - LEEWAY_S:
        raise Unauthorized("The provider's token has expired")
    if not now - MAX_AGE_S <= issued <= now + LEEWAY_S:
        raise Unauthorized("The provider's token was made at another time")


def _parse_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise Unauthorized("The provider's token has no times that can be used")
    return value


def verified_email(claims: Mapping[str, Any], domains: Collection[str]) -> str:
    """Return the verified e-mail address; Forbidden if unverified or of another domain."""
    # Some providers send a string; 1 is invalid.
    if claims.get("email_verified") is not True and claims.get("email_verified") != "true":
        raise Forbidden("The provider has not verified your e-mail address.")
    email = normalize_email(claims.get("email"))
    if email is None:
        raise Forbidden("The provider names no e-mail address that can be used here.")
    if domains and email.rpartition("@")[2] not in domains:
        raise Forbidden("This provider is not for e-mail addresses of that domain.")
    return email


def normalize_email(given: object) -> str | None:
    """Return the e-mail address in lower case; None if it is invalid."""
    if not isinstance(given, str) or not given.isascii():
        return None
    email = given.strip().lower()
    local, at, domain = email.rpartition("@")
    return email if _EMAIL_REGEX.fullmatch(email) and local and at and domain else None
