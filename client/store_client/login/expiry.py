"""Until when a token is good, and what it says of itself. Nothing here is verified: the store does
that, and whoever reads a token here only wants to know what to tell its owner.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

NEARLY_S = 60.0
"""So long before its end a token is followed by the next one: a request takes its time."""
SOON_S = 300.0
"""So long before its end somebody who has no next one is told."""
MAX_TOKEN = 16 * 1024
LAST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+", re.ASCII)


class Standing(Enum):
    """How long a token is good yet."""

    GOOD = "good"
    NEARLY = "nearly expired"
    EXPIRED = "expired"


def claims(token: str) -> dict[str, Any]:
    """What a JWT claims; empty when it is none."""
    parts = _COMPACT.fullmatch(token) if len(token) <= MAX_TOKEN else None
    if parts is None:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        found = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def expires_s(said: Mapping[str, Any]) -> float | None:
    """The `exp` of claims in seconds since 1970; None when there is none that can be one."""
    return seconds(said.get("exp"))


def seconds(value: object) -> float | None:
    """A number of seconds; None of anything that is no moment, nor a time that ever ends."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LAST_S:
        return None
    return float(value)


def expiry(token: str) -> datetime | None:
    """When a token ends, by the clock of whoever signed it; None when it does not say."""
    end = expires_s(claims(token))
    return None if end is None else datetime.fromtimestamp(end, UTC)


def standing(ends_s: float | None, now_s: float, *, soon_s: float = SOON_S) -> Standing:
    """How a token stands that ends then; one that does not say when is good."""
    if ends_s is None or ends_s - now_s > soon_s:
        return Standing.GOOD
    return Standing.NEARLY if ends_s > now_s else Standing.EXPIRED


def moment(seconds: float) -> str:
    """A time as people read it, in UTC."""
    bounded = min(max(seconds, 0.0), LAST_S)
    return f"{datetime.fromtimestamp(bounded, UTC):%Y-%m-%d %H:%M:%S} UTC"


def identity(said: Mapping[str, Any]) -> str:
    """Whom claims name, as the store reads them; empty when nobody."""
    named = said.get("sub") if said.get("email") is None else said.get("email")
    return printable(named) if isinstance(named, str) else ""


def printable(text: object, *, longest: int = 300) -> str:
    """What somebody else wrote, without anything that a terminal would act upon."""
    whole = "".join(each if each.isprintable() else " " for each in str(text)[: longest + 1])
    return whole if len(whole) <= longest else f"{whole[:longest]}…"
