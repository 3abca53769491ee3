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

from storage.errors import Damaged, Invalid
from storage.protocols import BlobInfo

MAGIC: Final = b"storeblb"
FORMAT: Final = 1
UNFINISHED: Final = 2**64 - 1
"""In place of the length while parts are still being written."""
UPLOAD_FRONT: Final = 3 * 4096
"""Room for the head of an upload, whatever is added to its metadata at the end."""
MAX_METADATA_BYTES: Final = 2048
MAX_TYPE_BYTES: Final = 1024
PAGE: Final = 4096
"""Payloads begin at a multiple of this when that lets file systems share their blocks."""
ALIGN_FROM: Final = 1024 * 1024
MAX_FRONT: Final = 64 * 1024
"""Bytes that no front exceeds: key, type and metadata are limited, also when JSON escapes them."""

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


def checked_head(key: str, content_type: str, metadata: Mapping[str, str] | None) -> Head:
    """A head that every engine could carry; Invalid otherwise."""
    kept = dict(metadata or {})
    text = "".join(kept) + "".join(kept.values())
    if len(text) > MAX_METADATA_BYTES or not (text.isascii() and text.isprintable()):
        raise Invalid("metadata is printable ASCII of at most 2 KB")
    if any(name != name.lower() or not name for name in kept):
        raise Invalid("names of metadata are lower case")
    if len(content_type) > MAX_TYPE_BYTES or not content_type.isprintable():
        raise Invalid("a content type is one short line")
    return Head(key, content_type, kept)


def pack(head: Head, size: int, *, offset: int | None = None) -> bytes:
    """The bytes in front of a payload of this size, which may have to begin at an offset."""
    text = json.dumps(
        {"key": head.key, "content_type": head.content_type, "metadata": dict(head.metadata)},
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    least = _FIXED.size + len(text)
    if offset is None:
        offset = -(-least // PAGE) * PAGE if size >= ALIGN_FROM else least
    if least > offset:
        raise Invalid("an object's key, type and metadata are too long")
    fixed = _FIXED.pack(MAGIC, FORMAT, offset, size, zlib.crc32(text), len(text))
    return (fixed + text).ljust(offset, b"\0")


def unpack(descriptor: int) -> Envelope:
    """The envelope of an open file; Damaged when it is no longer whole."""
    start = os.pread(descriptor, PAGE, 0)
    if len(start) < _FIXED.size:
        raise _damaged()
    magic, number, offset, size, crc, length = _FIXED.unpack_from(start)
    # A damaged length must not make us read gigabytes.
    if (magic, number) != (MAGIC, FORMAT) or length > min(offset, MAX_FRONT) - _FIXED.size:
        raise _damaged()
    if _FIXED.size + length > len(start):
        start = os.pread(descriptor, _FIXED.size + length, 0)
    text = start[_FIXED.size : _FIXED.size + length]
    # A run of zeros over checksum and length is right: that of no bytes is 0.
    if zlib.crc32(text) != crc or not text:
        raise _damaged()
    return Envelope(Head(**json.loads(text)), offset, size)


def pin_of(status: os.stat_result) -> str:
    """Names exactly these bytes: objects are written once, so inode, time and size suffice."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def inspect(descriptor: int, key: str | None = None) -> tuple[BlobInfo, int]:
    """All about an open object and where its payload begins; Damaged if it is not that of `key`."""
    envelope, status = unpack(descriptor), os.fstat(descriptor)
    head = envelope.head
    if status.st_size != envelope.offset + envelope.size or key not in (None, head.key):
        raise _damaged()
    info = BlobInfo(
        head.key,
        envelope.size,
        pin_of(status),
        head.content_type,
        head.metadata,
        modified_us=status.st_mtime_ns // 1000,
    )
    return info, envelope.offset


def _damaged() -> Damaged:
    return Damaged("an object's file is damaged")
