"""Derive keys from the store's secret, and encrypt small secrets with AES-256-GCM."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from storage.errors import Unavailable

FORMAT = b"\x01"
NONCE_BYTES = 12


def derive_key(secret: bytes, purpose: bytes, length: int = 32) -> bytes:
    """Derive a key for one purpose; keys of different purposes are independent."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=purpose).derive(secret)


def instance_id(secret: bytes) -> str:
    """Return an id of the store that reveals nothing of the secret."""
    return derive_key(secret, b"instance", 16).hex()


class SecretBox:
    """Encrypts and decrypts with one key of 32 bytes, as `derive_key` makes it."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt; only the same key and context decrypt it. The result differs each time."""
        nonce = os.urandom(NONCE_BYTES)
        return FORMAT + nonce + self._cipher.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt; Unavailable if the key or context differs, or the data is damaged."""
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != FORMAT:
                raise ValueError("unknown format of an encrypted value")
            return self._cipher.decrypt(nonce, body, context)
        except (InvalidTag, ValueError) as error:
            raise Unavailable("A sealed secret cannot be opened with the store's key") from error
