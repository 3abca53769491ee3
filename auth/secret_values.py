"""Random secrets, their digests, and sealed values that travel through a browser.

A sealed value has one purpose and an expiry.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from storage.encryption import SecretBox, derive_key
from storage.errors import Unavailable

SECRET_BYTES = 32


def create_secret() -> str:
    """Create a random secret, in URL-safe characters."""
    return secrets.token_urlsafe(SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """Return the digest."""
    return hashlib.sha256(_encode_text(secret)).hexdigest()


def is_matching_secret(given: str, kept: str) -> bool:
    """Return whether `kept` is the digest of this secret."""
    return hmac.compare_digest(hash_secret(given), kept)


def is_equal_secret(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(_encode_text(one), _encode_text(other))


def encode_base64url(raw: bytes) -> str:
    """Encode as base64url without padding (RFC 7515, RFC 7636)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding; ValueError unless it is as `encode_base64url` writes it."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode_base64url(raw) != text:
        raise ValueError("base64url: must be canonical, without padding")
    return raw


def pkce_challenge(verifier: str) -> str:
    """Return a verifier's S256 challenge (RFC 7636, 4.2)."""
    return encode_base64url(hashlib.sha256(verifier.encode("ascii")).digest())


def token_half_hash(token: str) -> str:
    """Return `at_hash` of an access token, for RS256 and ES256 (Core, 3.1.3.6)."""
    return encode_base64url(hashlib.sha256(token.encode("ascii")).digest()[:16])


def _encode_text(text: str) -> bytes:
    # Input from browsers and JSON may hold lone surrogates.
    return text.encode("utf-8", "surrogatepass")


MAX_SEALED = 8192


@dataclass(frozen=True)
class ValueSealer:
    """Seals with keys derived from a secret."""

    sealer: SecretBox
    key: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: bytes, *former: bytes) -> "ValueSealer":
        """Derive the keys from a secret; values that were sealed with a former one open, too."""
        keys = [derive_key(each, b"logins") for each in (secret, *former)]
        return cls(SecretBox(*keys), derive_key(secret, b"values of logins"))

    def seal(self, purpose: str, values: Sequence[Any], *, ends: float) -> str:
        """Seal JSON values as text for a URL, form or cookie."""
        plain = orjson.dumps([ends, *values])
        return encode_base64url(self.sealer.seal(plain, purpose.encode()))

    def open(self, purpose: str, sealed: str | None, *, now: float) -> list[Any] | None:
        """Open sealed values; None if invalid, expired, or of another purpose."""
        if not sealed or len(sealed) > MAX_SEALED or not sealed.isascii():
            return None
        try:
            raw = decode_base64url(sealed)
            ends, *values = orjson.loads(self.sealer.open(raw, purpose.encode()))
        except (ValueError, Unavailable):
            return None
        return list(values) if now < ends else None

    def derive_value(self, purpose: str, text: str) -> str:
        """Derive a keyed, deterministic value of 43 URL-safe characters."""
        return encode_base64url(
            hmac.new(self.key, f"{purpose}\n{text}".encode(), hashlib.sha256).digest()
        )
