"""Keys made from the store's one secret; small secrets at rest, sealed with AES-256-GCM and bound
to the place they are kept in.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from storage.errors import Unavailable

FORMAT = b"\x01"
NONCE_BYTES = 12


def derive(secret: bytes, purpose: bytes, length: int = 32) -> bytes:
    """A key for one purpose; keys of different purposes tell nothing of each other."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=purpose).derive(secret)


def instance_id(secret: bytes) -> str:
    """What tells stores apart, and nothing of the secret."""
    return derive(secret, b"instance", 16).hex()


class Sealer:
    """Seals and opens with one key of 32 bytes, as `derive` makes it."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """What only this key and the same context open again; different each time."""
        nonce = os.urandom(NONCE_BYTES)
        return FORMAT + nonce + self._cipher.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """The plain bytes; Unavailable when the key, the context or a single bit is another."""
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != FORMAT:
                raise ValueError("not a format of ours")
            return self._cipher.decrypt(nonce, body, context)
        except (InvalidTag, ValueError) as error:
            raise Unavailable("A sealed secret cannot be opened with the store's key") from error
