"""Bytes that wait for their length and checksum to be known before they are sent."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

from storage.crc32c import extend
from storage.errors import Invalid
from storage.protocols import BLOCK

IN_MEMORY: Final = 8 * BLOCK
"""Bytes that are held in memory; what is longer waits in a temporary file."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A file with so many bytes, and their CRC-32C, big-endian."""

    file: IO[bytes]
    size: int
    crc32c: bytes


@contextmanager
def spooled(blocks: Iterable[bytes], most: int) -> Iterator[Spooled]:
    """A part of an upload as a file that may be sent again; Invalid beyond `most` bytes."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        size = crc32c = 0
        for block in blocks:
            size += len(block)
            if size > most:
                raise Invalid(f"a part has more than {most} bytes")
            crc32c = extend(crc32c, block)
            file.write(block)
        file.seek(0)
        yield Spooled(file, size, crc32c.to_bytes(4, "big"))
