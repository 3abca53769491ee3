"""What a browser carries from one page of ours to the next: sealed, so that it can be neither read
nor made, and good for a while and for one purpose only.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from auth.digests import encoded
from storage.errors import Unavailable
from storage.sealing import Sealer

CONTINUE, CONSENT, DEVICE = b"continue", b"consent", b"device"
"""An authorization request on its way through a login; one that a person is asked about; a device
that a person is asked about."""
LIFE_S = 3_600
SKEW_S = 30
"""How far the clock that something was sealed by may be before ours: the page that opens it may be
another machine's. What ends, ends when its own time says."""
MAX_CARRIED = 5_400
"""Characters. Servers read request lines of 8,190 bytes, and a login seals this once more."""


def seal(sealer: Sealer, purpose: bytes, what: Mapping[str, Any], now: float) -> str:
    """What the browser is given."""
    plain = json.dumps({**what, "at": now}, separators=(",", ":")).encode()
    return encoded(sealer.seal(plain, purpose))


def opened(sealer: Sealer, purpose: bytes, carried: str, now: float) -> dict[str, Any] | None:
    """What the browser was given, with `at`; None when it was not, or too long ago."""
    if len(carried) > MAX_CARRIED:
        return None
    try:
        raw = base64.urlsafe_b64decode(carried + "=" * (-len(carried) % 4))
        what: dict[str, Any] = json.loads(sealer.open(raw, purpose))
    except (Unavailable, binascii.Error, ValueError):
        return None
    return what if -SKEW_S <= now - what["at"] <= LIFE_S else None
