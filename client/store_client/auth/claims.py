"""Read the claims and the expiry of a JWT, unverified, to tell its owner."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from store_client.atomic_files import parse_json_object

NEARLY_S = 60.0
"""Refresh a token this long before it expires."""
SOON_S = 300.0
"""Warn this long before a token without refresh token expires."""
MAX_TOKEN = 16 * 1024
LAST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+", re.ASCII)


class TokenStatus(Enum):
    """Whether a token is valid, about to expire, or expired."""

    GOOD = "good"
    NEARLY = "nearly expired"
    EXPIRED = "expired"


def read_claims(token: str) -> dict[str, Any]:
    """Decode the claims of a JWT without verifying it; empty if it is not a JWT."""
    parts = _COMPACT.fullmatch(token) if len(token) <= MAX_TOKEN else None
    if parts is None:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except binascii.Error:
        return {}
    return parse_json_object(text) or {}


def claims_expiry(said: Mapping[str, Any]) -> float | None:
    """The `exp` claim in seconds since 1970; None if missing or invalid."""
    return parse_seconds(said.get("exp"))


def parse_seconds(value: object) -> float | None:
    """A number of seconds since 1970; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LAST_S:
        return None
    return float(value)


def token_status(ends_s: float | None, now_s: float, *, soon_s: float = SOON_S) -> TokenStatus:
    """The status of a token with this expiry; a token without expiry is good."""
    if ends_s is None or ends_s - now_s > soon_s:
        return TokenStatus.GOOD
    return TokenStatus.NEARLY if ends_s > now_s else TokenStatus.EXPIRED


def format_moment(seconds: float) -> str:
    bounded = min(max(seconds, 0.0), LAST_S)
    return f"{datetime.fromtimestamp(bounded, UTC):%Y-%m-%d %H:%M:%S} UTC"


def claims_identity(said: Mapping[str, Any]) -> str:
    """The identity in the claims (email, else subject); empty if there is none."""
    named = said.get("sub") if said.get("email") is None else said.get("email")
    return make_printable(named) if isinstance(named, str) else ""


def make_printable(text: object, *, longest: int = 300) -> str:
    """Remove control characters from foreign text, and shorten it."""
    whole = "".join(each if each.isprintable() else " " for each in str(text)[: longest + 1])
    return whole if len(whole) <= longest else f"{whole[:longest]}…"
