"""Derive keys from the store's secret, and encrypt small secrets with AES-256-GCM."""

import os
from collections.abc import Iterable
from contextlib import suppress

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


def derive_keys(secrets: Iterable[str], purpose: bytes, length: int = 32) -> tuple[bytes, ...]:
    """Derive the keys of one purpose from a secret and the others that are accepted."""
    return tuple(derive_key(secret.encode(), purpose, length) for secret in secrets)


def instance_id(secret: bytes) -> str:
    """Return an id of the store that reveals nothing of the secret."""
    return derive_key(secret, b"instance", 16).hex()


class SecretBox:
    """Encrypts with one key of 32 bytes, as `derive_key` makes it; decrypts with others, too."""

    def __init__(self, key: bytes, *former: bytes) -> None:
        self._cipher = AESGCM(key)
        self._former = tuple(map(AESGCM, former))

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
            for cipher in (self._cipher, *self._former):
                with suppress(InvalidTag):
                    return cipher.decrypt(nonce, body, context)
            raise ValueError(
                "it was sealed with another STORE_SECRET_KEY: set that one, or"
                " STORE_SECRET_KEY_PREVIOUS"
            )
        except ValueError as error:
            raise Unavailable("A sealed secret cannot be opened with the store's key") from error
