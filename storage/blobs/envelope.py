"""The head in front of each object's bytes in a folder bucket; a frozen format.

Magic word, format number, where the payload begins, how long it is, then the CRC-32 and the length
of a JSON text with key, content type and metadata; zeros fill the rest. All numbers big-endian.
"""

import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.errors import Unavailable
from storage.protocols import BlobInfo

MAGIC: Final = b"storeblb"
FORMAT: Final = 1
UNFINISHED: Final = 2**64 - 1
"""In place of the length while parts are still being written."""
PAGE: Final = 4096
"""Payloads begin at a multiple of this when that lets file systems share their blocks."""
ALIGN_FROM: Final = 1024 * 1024

_FIXED = struct.Struct(">8sHIQII")


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an object beside its bytes."""

    key: str
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A head as it was read, with the payload's place in the file."""

    head: Head
    offset: int
    size: int


def pack(head: Head, size: int) -> bytes:
    """The bytes in front of a payload of this size."""
    text = json.dumps(
        {"key": head.key, "content_type": head.content_type, "metadata": dict(head.metadata)},
        separators=(",", ":"),
    ).encode()
    least = _FIXED.size + len(text)
    offset = -(-least // PAGE) * PAGE if size >= ALIGN_FROM else least
    fixed = _FIXED.pack(MAGIC, FORMAT, offset, size, zlib.crc32(text), len(text))
    return (fixed + text).ljust(offset, b"\0")


def unpack(descriptor: int) -> Envelope:
    """The envelope of an open file; Unavailable when it is damaged."""
    start = os.pread(descriptor, PAGE, 0)
    if len(start) < _FIXED.size:
        raise _damaged()
    magic, number, offset, size, crc, length = _FIXED.unpack_from(start)
    if (magic, number) != (MAGIC, FORMAT):
        raise _damaged()
    if _FIXED.size + length > len(start):
        start = os.pread(descriptor, _FIXED.size + length, 0)
    text = start[_FIXED.size : _FIXED.size + length]
    if zlib.crc32(text) != crc:
        raise _damaged()
    return Envelope(Head(**json.loads(text)), offset, size)


def seal(descriptor: int, head: Head, size: int, *, offset: int) -> None:
    """Write the final head, with the true length, before a payload that is already in place."""
    front = pack(head, UNFINISHED)
    if len(front) != offset:
        raise _damaged()
    fixed = _FIXED.unpack_from(front)
    whole = _FIXED.pack(*fixed[:3], size, *fixed[4:]) + front[_FIXED.size :]
    os.pwrite(descriptor, whole, 0)


def pin_of(status: os.stat_result) -> str:
    """Names exactly these bytes: objects are written once, so inode, time and size suffice."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def inspect(descriptor: int) -> tuple[BlobInfo, int]:
    """All about an open object and where its payload begins."""
    envelope, status = unpack(descriptor), os.fstat(descriptor)
    if status.st_size != envelope.offset + envelope.size:
        raise _damaged()
    head = envelope.head
    info = BlobInfo(head.key, envelope.size, pin_of(status), head.content_type, head.metadata)
    return info, envelope.offset


def _damaged() -> Unavailable:
    return Unavailable("an object's file is damaged")
