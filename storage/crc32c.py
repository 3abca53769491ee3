"""Compute CRC-32C with the fastest compiled library; pure Python hashes about 1 MB/s."""

import base64
from collections.abc import Callable

import crcmod.predefined
import google_crc32c


def _choose_extend() -> Callable[[int, bytes], int]:
    if google_crc32c.implementation == "c":
        return google_crc32c.extend  # type: ignore[no-any-return]
    crc = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return lambda value, block: int(crc(block, value))


extend = _choose_extend()
"""Extend the CRC-32C of the preceding bytes (0: none) by a block."""


def encode_base64(value: int) -> str:
    """Encode a CRC-32C as clouds do: base64 of four bytes, big-endian."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def decode_base64(text: str) -> bytes:
    """Decode the four bytes of a cloud's CRC-32C."""
    return base64.b64decode(text)
