"""Codes, tokens, cookies and secrets: made of random bytes, kept as SHA-256 only, compared in
constant time. They have so many bits that a slow hash would add nothing.
"""

import base64
import hashlib
import hmac
import secrets

SECRET_BYTES = 32


def new_secret() -> str:
    """What nobody guesses, in characters that need no escaping anywhere."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: str) -> str:
    """What is kept of it."""
    return hashlib.sha256(_bytes(secret)).hexdigest()


def is_secret(given: str, kept: str) -> bool:
    """Whether this is the secret of which the digest is kept."""
    return hmac.compare_digest(digest(given), kept)


def same(one: str, other: str) -> bool:
    """Whether two secrets are one, in the same time whatever they have in common."""
    return hmac.compare_digest(_bytes(one), _bytes(other))


def encoded(raw: bytes) -> str:
    """Base64url without padding, as RFC 7515 and RFC 7636 write bytes."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def s256(verifier: str) -> str:
    """The challenge that a verifier answers (RFC 7636, 4.2)."""
    return encoded(hashlib.sha256(verifier.encode("ascii")).digest())


def half_digest(token: str) -> str:
    """`at_hash` of an access token, for every algorithm that we sign with (Core, 3.1.3.6)."""
    return encoded(hashlib.sha256(token.encode("ascii")).digest()[:16])


def _bytes(text: str) -> bytes:
    # What browsers and JSON bring may hold half of a character.
    return text.encode("utf-8", "surrogatepass")
