"""Files of folder buckets (frozen format): paths, headers, copies, publication and listings.

Paths: a key segment keeps lower-case letters, digits, `-`, `_` and inner `.`; every other byte
becomes `%xx`, so file names never differ only by case or Unicode form. Folders end in `+`, so the
object `a` and the folder of `a/b` have different names. From the first segment that is too long for
a file name, the rest of the key becomes one SHA-256 behind `~`; the header holds the real key.

Header: magic bytes, format number, payload offset, payload size, then the CRC-32 and the length of
a JSON text with key, content type and metadata, padded with zeros. All numbers are big-endian.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from storage.errors import (
    AlreadyExists,
    DamagedObjectError,
    Invalid,
    NotFoundError,
    RangeNotSatisfiable,
    SourceChanged,
    Unavailable,
)
from storage.keys import check_key
from storage.protocols import BLOCK, BlobInfo

log = logging.getLogger(__name__)

# Paths

MAX_FILE_NAME: Final = 200
"""Longest escaped segment; file systems allow 255 bytes."""
FOLDER_SUFFIX: Final = "+"
HASHED_PREFIX: Final = "~"
TEMPORARY_FOLDER: Final = ".temporary"
UPLOADS_FOLDER: Final = ".uploads"
JOURNAL_SUFFIX: Final = ".journal"
"""No key's path begins with a dot."""

_SAFE_BYTES = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz-_.")
_ESCAPES = [chr(byte) if byte in _SAFE_BYTES else f"%{byte:02x}" for byte in range(256)]
_PLAIN_SEGMENT = re.compile(rb"[0-9a-z_-][0-9a-z_.-]*")
"""Almost all segments, which are escaped as they are."""
_ESCAPED_NAME = re.compile(r"(?:[0-9a-z\-_.]|%[0-9a-f]{2})+")


def object_path(key: str) -> tuple[str, ...]:
    """Return the folders and the file name of an object; Invalid if the key is malformed."""
    segments = check_key(key).split(b"/")
    names: list[str] = []
    for index, segment in enumerate(segments):
        name = escape_segment(segment)
        if len(name) > MAX_FILE_NAME:
            tail = hashlib.sha256(b"/".join(segments[index:])).hexdigest()
            return (*names, HASHED_PREFIX + tail)
        names.append(name + FOLDER_SUFFIX)
    return (*names[:-1], name)


def escape_segment(segment: bytes) -> str:
    """Return the file name of a key segment; an empty segment is `%`."""
    if _PLAIN_SEGMENT.fullmatch(segment):
        return segment.decode("ascii")
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


# Headers

HEADER_MAGIC: Final = b"storeblb"
HEADER_FORMAT: Final = 1
UNFINISHED_SIZE: Final = 2**64 - 1
"""Stored as the size while parts are still being written."""
UPLOAD_HEADER_BYTES: Final = 3 * 4096
"""Space for the header of an upload, whose metadata may grow until completion."""
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

    def describe_file(self, size: int, status: os.stat_result) -> BlobInfo:
        """Return the info of an object with a payload of `size` bytes."""
        return BlobInfo(
            self.key,
            size,
            file_pin(status),
            self.content_type,
            self.metadata,
            modified_us=status.st_mtime_ns // 1000,
        )


def pack_header(head: ObjectHeader, size: int, *, offset: int | None = None) -> bytes:
    """Return the bytes before a payload of `size` bytes, padded to `offset` if it is set."""
    text = json.dumps(
        {"key": head.key, "content_type": head.content_type, "metadata": dict(head.metadata)},
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    least = _FIXED_HEADER.size + len(text)
    if offset is None:
        offset = least
        if size >= ALIGN_FROM_BYTES:
            offset = -(-least // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT
    if least > offset:
        raise Invalid("object key, content type and metadata are too long together")
    fixed = _FIXED_HEADER.pack(
        HEADER_MAGIC, HEADER_FORMAT, offset, size, zlib.crc32(text), len(text)
    )
    return (fixed + text).ljust(offset, b"\0")


def read_header(descriptor: int) -> tuple[ObjectHeader, int, int]:
    """Read header, payload offset and payload size; DamagedObjectError if not intact."""
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
    return ObjectHeader(**json.loads(text)), offset, size


def inspect_object(descriptor: int, key: str) -> tuple[BlobInfo, int]:
    """Return info and payload offset of an open file; DamagedObjectError for another key."""
    (head, offset, size), status = read_header(descriptor), os.fstat(descriptor)
    if status.st_size != offset + size or key != head.key:
        raise _damaged_file()
    return head.describe_file(size, status), offset


def file_pin(status: os.stat_result) -> str:
    """Return a pin of these bytes: objects are written once, so inode, time and size suffice."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _damaged_file() -> DamagedObjectError:
    return DamagedObjectError("an object's file is damaged")


# Bytes

COPY_CHUNK_BYTES = 64 * 1024 * 1024
"""Most bytes of one call of the kernel, so that progress is reported in between."""

_UNSUPPORTED_ERRORS = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}

sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def write_all(descriptor: int, data: bytes | memoryview, at: int) -> None:
    """Write every byte at an offset; the kernel may take fewer in one call."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def read_range(
    descriptor: int, size: int, *, start: int, length: int | None, offset: int = 0
) -> Iterator[bytes]:
    """Stream a range of a payload of `size` bytes at `offset`; RangeNotSatisfiable outside it."""
    if start < 0 or (start and start >= size):
        raise RangeNotSatisfiable(f"the range is outside the {size} bytes of the object")
    rest = size - start
    count = rest if length is None else max(0, min(length, rest))
    yield from read_blocks(descriptor, offset + start, count)


def read_blocks(descriptor: int, start: int, length: int) -> Iterator[bytes]:
    """Stream a range of an open file; SourceChanged if it ends early."""
    end = start + length
    while start < end:
        block = os.pread(descriptor, min(BLOCK, end - start), start)
        if not block:
            raise SourceChanged("the file became shorter while it was read")
        yield block
        start += len(block)


def copy_range(source: int, target: int, length: int, *, start: int, at: int) -> Iterator[int]:
    """Copy a range from file to file, yielding the bytes copied so far after each chunk."""
    done, way = 0, _copy_in_kernel
    while done < length:
        count = min(COPY_CHUNK_BYTES, length - done)
        try:
            done += way(source, target, count, start=start + done, at=at + done)
        except OSError as error:
            if way is _copy_in_process or error.errno not in _UNSUPPORTED_ERRORS:
                raise
            way = _copy_in_process
            continue
        yield done


def _copy_in_kernel(source: int, target: int, count: int, *, start: int, at: int) -> int:
    """Copy in the kernel, sharing blocks where the file system can; else OSError."""
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "no copy_file_range")
    copied = os.copy_file_range(source, target, count, start, at)
    if copied == 0:
        raise SourceChanged("the file became shorter while it was copied")
    return copied


def _copy_in_process(source: int, target: int, count: int, *, start: int, at: int) -> int:
    done = 0
    for block in read_blocks(source, start, count):
        write_all(target, block, at + done)
        done += len(block)
    return done


# The files of a bucket

READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""How objects are opened: a FIFO in the place of one must not make us wait for a writer."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_PUBLISH_ATTEMPTS = 16
_UNREADABLE_ERRORS = (errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESPIPE)
"""What the system says of one file that cannot be read, while others can."""
_MAX_DURABLE_FOLDERS = 65_536


class FolderTree:
    """The files of one bucket. Threads and processes may share it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)
        self._durable: set[str] = set()
        for name in ("", TEMPORARY_FOLDER, UPLOADS_FOLDER):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)

    @contextmanager
    def translate_errors(self, key: str) -> Iterator[None]:
        """Translate the operating system's errors."""
        try:
            yield
        except FileNotFoundError as error:
            self.check_root()
            raise NotFoundError(f"object {key} does not exist") from error
        except OSError as error:
            if error.errno in _UNREADABLE_ERRORS:
                raise DamagedObjectError(
                    f"the file of {key} cannot be read: {error.strerror}"
                ) from error
            raise Unavailable(f"the folder bucket failed: {error.strerror}") from error

    def check_root(self) -> None:
        """Raise Unavailable if the root is gone, for example unmounted, so that no key counts as
        absent."""
        if not os.path.isdir(os.path.join(self.root, TEMPORARY_FOLDER)):
            raise Unavailable("the folder of the bucket does not exist")

    def path(self, key: str) -> str:
        """Return the path of an object, existing or not."""
        return os.path.join(self.root, *object_path(key))

    def open(self, key: str) -> int:
        """Open an object's file for reading; DamagedObjectError if it alone cannot open."""
        try:
            return os.open(self.path(key), READ_FLAGS)
        except PermissionError as error:
            self.check_root()
            raise DamagedObjectError(
                f"the file of {key} cannot be read: {error.strerror}"
            ) from error

    @contextmanager
    def create_temporary(self) -> Iterator[tuple[str, int]]:
        """Create a private file; return its path and descriptor. It is deleted unless it is
        published."""
        path = os.path.join(self.root, TEMPORARY_FOLDER, secrets.token_hex(16))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                os.unlink(path)

    def publish(self, path: str, descriptor: int, key: str, *, replace: bool = False) -> None:
        """Sync a file and link it to its key, durably, if the key is free or may be replaced."""
        os.fsync(descriptor)
        *folders, name = object_path(key)
        for _ in range(_PUBLISH_ATTEMPTS):
            folder = self._make_durable(folders)
            try:
                if replace:
                    with _lock_folder(folder):
                        os.replace(path, os.path.join(folder, name))
                else:
                    os.link(path, os.path.join(folder, name))
            except FileExistsError as error:
                raise AlreadyExists(f"{key} exists already") from error
            except FileNotFoundError:
                # Another process removed the empty folder; make it again.
                for depth in range(len(folders)):
                    self._durable.discard(os.path.join(self.root, *folders[: depth + 1]))
                continue
            return sync_folder(folder)
        raise Unavailable(f"object {key} could not be linked")

    def exchange(self, path: str, descriptor: int, key: str, pin: str) -> None:
        """Sync a file and put it in the place of the one with this pin, else SourceChanged."""
        os.fsync(descriptor)
        with self._lock_object(key, pin) as place:
            os.replace(path, place)

    def remove(self, key: str, pin: str | None = None) -> None:
        """Remove an object and folders that become empty; SourceChanged for another pin."""
        with self._lock_object(key, pin) as place:
            os.unlink(place)
        folders = object_path(key)[:-1]
        for depth in range(len(folders), 0, -1):
            folder = os.path.join(self.root, *folders[:depth])
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._durable.discard(folder)

    @contextmanager
    def _lock_object(self, key: str, pin: str | None) -> Iterator[str]:
        """Lock an object against other replacements, then sync its folder; yield its path."""
        place = self.path(key)
        folder = os.path.dirname(place)
        with _lock_folder(folder):
            if pin is not None and file_pin(os.stat(place)) != pin:
                raise SourceChanged(f"{key} has changed")
            yield place
        sync_folder(folder)

    def walk(self, prefix: bytes, after: bytes) -> Iterator[tuple[str, str]]:
        """List key and path of objects under a prefix after a key, in byte order of keys.

        Damaged objects are included, unless their key is only in their header.
        """
        pending = [iter(self._list_folder(self.root, b""))]
        while pending:
            found = next(pending[-1], None)
            if found is None:
                pending.pop()
                continue
            key, path = found
            if path.endswith(FOLDER_SUFFIX):
                if _may_contain(key, prefix, after):
                    pending.append(iter(self._list_folder(path, key)))
            elif key.startswith(prefix) and key > after:
                with suppress(UnicodeDecodeError):
                    yield key.decode(), path

    def _list_folder(self, folder: str, base: bytes) -> list[tuple[bytes, str]]:
        """List (key or key prefix, path) of one folder's entries in byte order of keys.

        A folder's prefix ends in `/`, and a hashed name begins with a segment longer than any
        folder's, so no entry's keys are between those of another.
        """
        found = []
        with self.translate_errors(folder), suppress(FileNotFoundError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                rest = _decode_entry_key(name, path, base)
                if rest is not None:
                    found.append((base + rest, path))
        return sorted(found)

    def sweep(self, before: float) -> int:
        """Remove files that crashed writers left before this POSIX time; return how many."""
        removed = 0
        for folder in (TEMPORARY_FOLDER, UPLOADS_FOLDER):
            touched: dict[str, float] = {}
            for path in map(Path, os.scandir(os.path.join(self.root, folder))):
                with suppress(FileNotFoundError):
                    # An upload and its journal are removed together.
                    touched[path.stem] = max(touched.get(path.stem, 0.0), path.stat().st_mtime)
            for stem in (stem for stem, at in touched.items() if at < before):
                for name in (stem, stem + JOURNAL_SUFFIX):
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.root, folder, name))
                        removed += 1
        return removed

    def _make_durable(self, folders: list[str]) -> str:
        """Create a folder if needed, and make it survive a power cut."""
        parent = self.root
        for name in folders:
            folder = os.path.join(parent, name)
            if folder not in self._durable:
                with suppress(FileExistsError, FileNotFoundError):
                    os.mkdir(folder)
                # Another process that made it may not have synced it yet.
                with suppress(FileNotFoundError):
                    sync_folder(parent)
                if len(self._durable) >= _MAX_DURABLE_FOLDERS:
                    self._durable.clear()
                self._durable.add(folder)
            parent = folder
        return parent


def sync_folder(path: str) -> None:
    """Make a folder's names survive a power cut."""
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock_folder(path: str) -> Iterator[None]:
    """Lock a folder against concurrent replacement or removal of its files."""
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _may_contain(folder: bytes, prefix: bytes, after: bytes) -> bool:
    """Return False if no key below a folder is under the prefix and after `after`."""
    if not folder.startswith(prefix) and not prefix.startswith(folder):
        return False
    return folder > after or after.startswith(folder)


def _decode_entry_key(name: str, path: str, base: bytes) -> bytes | None:
    """Return the key of an entry below `base`; None for what is no object."""
    if name.startswith(HASHED_PREFIX):
        return _read_key(path)[len(base) :] or None
    if name.endswith(FOLDER_SUFFIX):
        segment = unescape_segment(name.removesuffix(FOLDER_SUFFIX))
        return None if segment is None else segment + b"/"
    return unescape_segment(name)


def _read_key(path: str) -> bytes:
    """Read the key from an object's header; empty if the object is gone or damaged.

    Keys of replicas are short and never hashed.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except FileNotFoundError:
        return b""
    except OSError as error:
        log.error("%s is damaged, and its key cannot be read: %s", path, error.strerror)
        return b""
    try:
        return read_header(descriptor)[0].key.encode()
    except (DamagedObjectError, OSError):
        log.error("%s is damaged, and its key cannot be read", path)
        return b""
    finally:
        os.close(descriptor)
