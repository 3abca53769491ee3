"""Parse tokens and check their claims; signatures are checked elsewhere.

No error text repeats anything that came in a token.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from storage.errors import Unauthorized
from storage.model import Principal

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
    _check_time(claims, now, leeway_s)
    if not set(audiences) & set(_read_texts(claims, "aud", single=lambda text: [text])):
        raise Unauthorized("The token is for another audience")
    return Principal(
        email=_read_identity(claims),
        groups=frozenset(_read_texts(claims, "groups")),
        scopes=frozenset(_read_texts(claims, "scope", single=str.split)),
        issuer=_read_text(claims, "iss"),
        issued_at=_read_seconds(claims, "iat"),
    )


def _check_time(claims: Mapping[str, Any], now: float, leeway_s: float) -> None:
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _claim_error(claim)
    if not 0 <= value <= MAX_SECONDS:
        raise _claim_error(claim)
    return value


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
        raw = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Unauthorized("The token is not a signed JWT") from error
    if not isinstance(value, dict):
        raise Unauthorized("The token is not a signed JWT")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError("not JSON")
