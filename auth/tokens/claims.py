"""What a token says: reading it and judging its claims. Pure; signatures are checked elsewhere.

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
MAX_TEXT = 512
MAX_IDENTITY = 254
MAX_SECONDS = 2**53

_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class Unverified:
    """A token taken apart; nothing of it is to be believed before its signature holds."""

    algorithm: str
    key_id: str
    issuer: str
    claims: Mapping[str, Any]


def read(token: str, *, unnamed: str | None = None) -> Unverified:
    """A compact JWS in its parts; Unauthorized when it is not one that names its key, for which
    `unnamed` may stand."""
    if len(token) > MAX_TOKEN:
        raise Unauthorized("The token is too large")
    parts = _COMPACT.fullmatch(token)
    if parts is None:
        raise Unauthorized("The token is not a signed JWT")
    header, claims = _object(parts[1]), _object(parts[2])
    if "crit" in header or "b64" in header:
        raise Unauthorized("The token uses an extension that is not supported")
    return Unverified(
        algorithm=_text(header, "alg"),
        key_id=_text(header, "kid") if unnamed is None or "kid" in header else unnamed,
        issuer=_text(claims, "iss"),
        claims=claims,
    )


def judge(
    claims: Mapping[str, Any], audiences: Collection[str], now: float, leeway_s: float
) -> Principal:
    """Who a verified token names; Unauthorized when it is not for us or not for now."""
    _check_time(claims, now, leeway_s)
    if not set(audiences) & set(_texts(claims, "aud", single=lambda text: [text])):
        raise Unauthorized("The token is for another audience")
    return Principal(
        email=_identity(claims),
        groups=frozenset(_texts(claims, "groups")),
        scopes=frozenset(_texts(claims, "scope", single=str.split)),
        issuer=_text(claims, "iss"),
        issued_at=_seconds(claims, "iat"),
    )


def _check_time(claims: Mapping[str, Any], now: float, leeway_s: float) -> None:
    """`exp` is required; a token without an end would be one that nobody can take back."""
    expires = _seconds(claims, "exp")
    if expires is None:
        raise Unauthorized("The token has no expiry")
    if expires <= now - leeway_s:
        raise Unauthorized("The token has expired")
    for claim in ("nbf", "iat"):
        since = _seconds(claims, claim)
        if since is not None and since > now + leeway_s:
            raise Unauthorized("The token is not valid yet")


def _identity(claims: Mapping[str, Any]) -> str:
    """`email`, else `sub`; an address that its issuer has not verified names nobody."""
    claim = "sub" if claims.get("email") is None else "email"
    # What is not said is not denied; what is said and is not yes denies.
    if claim == "email" and claims.get("email_verified") not in (None, True, "true"):
        raise Unauthorized("The token's e-mail address is not verified")
    identity = _text(claims, claim)
    if len(identity) > MAX_IDENTITY or " " in identity:
        raise Unauthorized(f"The token's {claim} cannot be used as an identity")
    return identity


def _seconds(claims: Mapping[str, Any], claim: str) -> int | float | None:
    value = claims.get(claim)
    if value is None:
        return None
    # A boolean is an int to Python; NaN fails the comparison, as infinities and huge integers do.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unusable(claim)
    if not 0 <= value <= MAX_SECONDS:
        raise _unusable(claim)
    return value


def _texts(
    claims: Mapping[str, Any], claim: str, *, single: Callable[[str], list[str]] | None = None
) -> list[str]:
    """A claim that is a list of strings or, where `single` says how to read it, one string."""
    value = claims.get(claim)
    if value is None:
        return []
    if isinstance(value, str) and single is not None:
        value = single(value)
    if not isinstance(value, list) or not all(_is_text(item) for item in value):
        raise _unusable(claim)
    return value


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not _is_text(value):
        raise _unusable(name)
    return str(value)


def _is_text(value: object) -> bool:
    """Printable text of bounded length: no control character, no lone surrogate."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()


def _unusable(name: str) -> Unauthorized:
    return Unauthorized(f"The token's {name} is missing or cannot be used")


def _object(segment: str) -> dict[str, Any]:
    """The JSON object in one segment; what Python's parser takes beyond JSON is refused."""
    try:
        raw = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Unauthorized("The token is not a signed JWT") from error
    if not isinstance(value, dict):
        raise Unauthorized("The token is not a signed JWT")
    return value


def _no_constant(name: str) -> None:
    raise ValueError("not JSON")
