"""Small values that travel by a browser and back: nobody else reads, makes or changes them.

Each is sealed for one purpose, and has an end.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from auth.digests import encoded
from storage.errors import Unavailable
from storage.sealing import Sealer, derive

MAX_SEALED = 8192


@dataclass(frozen=True)
class Seals:
    """Seals with keys made from the store's secret."""

    sealer: Sealer
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> "Seals":
        """Those of the store with this secret."""
        return cls(Sealer(derive(secret, b"logins")), derive(secret, b"values of logins"))

    def seal(self, purpose: str, values: Sequence[Any], *, ends: float) -> str:
        """The values, of JSON, as text for a URL, a form or a cookie."""
        plain = orjson.dumps([ends, *values])
        return encoded(self.sealer.seal(plain, purpose.encode()))

    def open(self, purpose: str, sealed: str | None, *, now: float) -> list[Any] | None:
        """The values; None for what we did not seal for this purpose, or what is over."""
        if not sealed or len(sealed) > MAX_SEALED or not sealed.isascii():
            return None
        try:
            raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
            ends, *values = orjson.loads(self.sealer.open(raw, purpose.encode()))
        except (binascii.Error, ValueError, Unavailable):
            return None
        return list(values) if now < ends else None

    def derived(self, purpose: str, text: str) -> str:
        """A value that only we can make of the text, always the same; 43 characters of a URL."""
        return encoded(hmac.new(self.key, f"{purpose}\n{text}".encode(), hashlib.sha256).digest())
