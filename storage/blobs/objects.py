"""Validate object keys and metadata; paths and headers of folder buckets (frozen format).

Paths: a key segment keeps lower-case letters, digits, `-`, `_` and inner `.`; every other byte
becomes `%xx`, so file names never differ only by case or Unicode form. Folders end in `+`, so the
object `a` and the folder of `a/b` have different names. From the first segment that is too long for
a file name, the rest of the key becomes one SHA-256 behind `~`; the header holds the real key.

Header: magic bytes, format number, payload offset, payload size, then the CRC-32 and the length of
a JSON text with key, content type and metadata, padded with zeros. All numbers are big-endian.
"""

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.errors import DamagedObjectError, Invalid
from storage.protocols import BlobInfo

MAX_KEY_BYTES: Final = 900
MAX_FILE_NAME: Final = 200
"""Longest escaped segment; file systems allow 255 bytes."""
FOLDER_SUFFIX: Final = "+"
HASHED_PREFIX: Final = "~"

_SAFE_BYTES = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz-_.")
_ESCAPES = [chr(byte) if byte in _SAFE_BYTES else f"%{byte:02x}" for byte in range(256)]
_ESCAPED_NAME = re.compile(r"(?:[0-9a-z\-_.]|%[0-9a-f]{2})+")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A path below the bucket's root: its folders and its file name."""

    folders: tuple[str, ...]
    name: str

    def join_root(self, root: str) -> str:
        """Return the path below `root`."""
        return os.path.join(root, *self.folders, self.name)


def object_path(key: str) -> ObjectPath:
    """Return the path of an object; Invalid if the key is malformed."""
    segments = check_key(key).split(b"/")
    folders: list[str] = []
    for index, segment in enumerate(segments):
        name = escape_segment(segment)
        if len(name) > MAX_FILE_NAME:
            tail = hashlib.sha256(b"/".join(segments[index:])).hexdigest()
            return ObjectPath(tuple(folders), HASHED_PREFIX + tail)
        folders.append(name + FOLDER_SUFFIX)
    return ObjectPath(tuple(folders[:-1]), name)


def check_key(key: str) -> bytes:
    """Return the key's bytes; Invalid if it is empty, too long or has control characters."""
    try:
        raw = key.encode()
    except UnicodeEncodeError as error:
        raise Invalid("object key: must be valid Unicode text") from error
    if not 0 < len(raw) <= MAX_KEY_BYTES or _CONTROL_CHARACTERS.search(key):
        raise Invalid(f"object key: must have 1 to {MAX_KEY_BYTES} bytes and no control characters")
    return raw


def check_response_headers(*values: str | None) -> None:
    """Raise Invalid if a header value of a signed URL has control characters."""
    if any(_CONTROL_CHARACTERS.search(value or "") for value in values):
        raise Invalid("response headers must not contain control characters")


def escape_segment(segment: bytes) -> str:
    """Return the file name of a key segment; an empty segment is `%`."""
    name = "".join([_ESCAPES[byte] for byte in segment])
    if name.startswith("."):
        return "%2e" + name[1:]
    return name or "%"


def unescape_segment(name: str) -> bytes | None:
    """Return the segment of a file name; None if `escape_segment` would not write that name."""
    if name == "%":
        return b""
    if not _ESCAPED_NAME.fullmatch(name):
        return None
    head, *rest = name.split("%")
    segment = head.encode() + b"".join(bytes([int(r[:2], 16)]) + r[2:].encode() for r in rest)
    return segment if escape_segment(segment) == name else None


HEADER_MAGIC: Final = b"storeblb"
HEADER_FORMAT: Final = 1
UNFINISHED_SIZE: Final = 2**64 - 1
"""Stored as the size while parts are still being written."""
UPLOAD_HEADER_BYTES: Final = 3 * 4096
"""Space for the header of an upload, whose metadata may grow until completion."""
MAX_METADATA_BYTES: Final = 2048
MAX_CONTENT_TYPE_BYTES: Final = 1024
PAYLOAD_ALIGNMENT: Final = 4096
"""Large payloads begin at a multiple of this, so that file systems can share their blocks."""
ALIGN_FROM_BYTES: Final = 1024 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
"""Upper bound of a header: key, type and metadata are limited, even when JSON escapes them."""

_FIXED_HEADER = struct.Struct(">8sHIQII")


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """Key, content type and metadata of an object."""

    key: str
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A header as read from a file, with offset and size of the payload."""

    head: ObjectHeader
    offset: int
    size: int


def check_header(key: str, content_type: str, metadata: Mapping[str, str] | None) -> ObjectHeader:
    """Return a header that every backend can store; Invalid otherwise."""
    pairs = dict(metadata or {})
    text = "".join(pairs) + "".join(pairs.values())
    if len(text) > MAX_METADATA_BYTES or not (text.isascii() and text.isprintable()):
        raise Invalid(f"metadata: must be printable ASCII of at most {MAX_METADATA_BYTES} bytes")
    if any(name != name.lower() or not name for name in pairs):
        raise Invalid("metadata: names must be lower case")
    if len(content_type) > MAX_CONTENT_TYPE_BYTES or not content_type.isprintable():
        raise Invalid(f"content type: must be one line of at most {MAX_CONTENT_TYPE_BYTES} bytes")
    return ObjectHeader(key, content_type, pairs)


def pack_header(head: ObjectHeader, size: int, *, offset: int | None = None) -> bytes:
    """Return the bytes before a payload of `size` bytes, padded to `offset` if it is set."""
    text = json.dumps(
        {"key": head.key, "content_type": head.content_type, "metadata": dict(head.metadata)},
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    least = _FIXED_HEADER.size + len(text)
    if offset is None:
        offset = (
            -(-least // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT
            if size >= ALIGN_FROM_BYTES
            else least
        )
    if least > offset:
        raise Invalid("object key, content type and metadata are too long together")
    fixed = _FIXED_HEADER.pack(
        HEADER_MAGIC, HEADER_FORMAT, offset, size, zlib.crc32(text), len(text)
    )
    return (fixed + text).ljust(offset, b"\0")


def read_header(descriptor: int) -> StoredHeader:
    """Read the header of an open file; DamagedObjectError if it is not intact."""
    start = os.pread(descriptor, PAYLOAD_ALIGNMENT, 0)
    if len(start) < _FIXED_HEADER.size:
        raise _damaged_file()
    magic, number, offset, size, crc, length = _FIXED_HEADER.unpack_from(start)
    # A damaged length must not make us read gigabytes.
    if (magic, number) != (HEADER_MAGIC, HEADER_FORMAT) or length > min(
        offset, MAX_HEADER_BYTES
    ) - _FIXED_HEADER.size:
        raise _damaged_file()
    if _FIXED_HEADER.size + length > len(start):
        start = os.pread(descriptor, _FIXED_HEADER.size + length, 0)
    text = start[_FIXED_HEADER.size : _FIXED_HEADER.size + length]
    # If checksum and length are overwritten by zeros they still match: the CRC of no bytes is 0.
    if zlib.crc32(text) != crc or not text:
        raise _damaged_file()
    return StoredHeader(ObjectHeader(**json.loads(text)), offset, size)


def file_pin(status: os.stat_result) -> str:
    """Return a pin of these bytes: objects are written once, so inode, time and size suffice."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def inspect_object(descriptor: int, key: str | None = None) -> tuple[BlobInfo, int]:
    """Return info and payload offset of an open file; DamagedObjectError for another key."""
    envelope, status = read_header(descriptor), os.fstat(descriptor)
    head = envelope.head
    if status.st_size != envelope.offset + envelope.size or key not in (None, head.key):
        raise _damaged_file()
    info = BlobInfo(
        head.key,
        envelope.size,
        file_pin(status),
        head.content_type,
        head.metadata,
        modified_us=status.st_mtime_ns // 1000,
    )
    return info, envelope.offset


def _damaged_file() -> DamagedObjectError:
    return DamagedObjectError("an object's file is damaged")
