"""CRC-32C by google-crc32c where its compiled form is installed, else by crcmod.

The pure Python form of google-crc32c hashes about 1 MB/s; crcmod has a compiled form of its own.
"""

import base64
from collections.abc import Callable

import crcmod.predefined
import google_crc32c


def _extender() -> Callable[[int, bytes], int]:
    if google_crc32c.implementation == "c":
        return google_crc32c.extend  # type: ignore[no-any-return]
    crc = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return lambda value, block: int(crc(block, value))


extend = _extender()
"""Extend the CRC-32C of what came before (0: nothing) by a block."""


def encode(value: int) -> str:
    """A CRC-32C as the clouds write it: base64 of four bytes, most significant first."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def decode(text: str) -> bytes:
    """The four bytes of a CRC-32C as the clouds write it."""
    return base64.b64decode(text)
