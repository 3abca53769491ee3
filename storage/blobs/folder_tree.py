"""File operations of folder buckets: copy, publish, replace, delete, walk and sweep."""

import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from storage.blobs import objects
from storage.errors import (
    AlreadyExists,
    DamagedObjectError,
    NotFoundError,
    SourceChanged,
    Unavailable,
)
from storage.protocols import BLOCK

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


log = logging.getLogger(__name__)

TEMPORARY_FOLDER: Final = ".temporary"
UPLOADS_FOLDER: Final = ".uploads"
JOURNAL_SUFFIX: Final = ".journal"
"""No key's path begins with a dot."""

READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""How objects are opened: a FIFO in the place of one must not make us wait for a writer."""

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
        return objects.object_path(key).join_root(self.root)

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

    def publish(self, path: str, key: str, *, replace: bool = False) -> None:
        """Link a synced file to its key, durably, if the key is free or may be replaced."""
        place = objects.object_path(key)
        for _ in range(_PUBLISH_ATTEMPTS):
            folder = self._make_durable(place.folders)
            try:
                if replace:
                    with _lock_folder(folder):
                        os.replace(path, os.path.join(folder, place.name))
                else:
                    os.link(path, os.path.join(folder, place.name))
            except FileExistsError as error:
                raise AlreadyExists(f"{key} exists already") from error
            except FileNotFoundError:
                # Another process removed the empty folder; make it again.
                self._forget_durable(place.folders)
                continue
            return sync_folder(folder)
        raise Unavailable(f"object {key} could not be linked")

    def exchange(self, path: str, key: str, fits: Callable[[os.stat_result], bool]) -> None:
        """Replace the current file by a synced one if it `fits`, else SourceChanged; holds the
        folder's lock."""
        place = objects.object_path(key)
        folder = os.path.join(self.root, *place.folders)
        name = os.path.join(folder, place.name)
        with _lock_folder(folder):
            if not fits(os.stat(name)):
                raise SourceChanged(f"{key} has changed")
            os.replace(path, name)
        sync_folder(folder)

    def remove(self, key: str, fits: Callable[[os.stat_result], bool] | None = None) -> None:
        """Remove an object and folders that become empty; SourceChanged unless it `fits`; holds the
        lock."""
        place = objects.object_path(key)
        folder = os.path.join(self.root, *place.folders)
        name = os.path.join(folder, place.name)
        with _lock_folder(folder):
            if fits is not None and not fits(os.stat(name)):
                raise SourceChanged(f"{key} has changed")
            os.unlink(name)
        sync_folder(folder)
        self._prune(place.folders)

    def walk(self, prefix: bytes, after: bytes) -> Iterator[tuple[str, str]]:
        """List key and path of objects under a prefix after a key, in byte order of keys.

        Damaged objects are included, unless their key is only in their header.
        """
        pending = [iter(self._list_entries(self.root, b""))]
        while pending:
            found = next(pending[-1], None)
            if found is None:
                pending.pop()
                continue
            key, path = found
            if path.endswith(objects.FOLDER_SUFFIX):
                if _may_contain(key, prefix, after):
                    pending.append(iter(self._list_entries(path, key)))
            elif key.startswith(prefix) and key > after:
                with suppress(UnicodeDecodeError):
                    yield key.decode(), path

    def sweep(self, before: float) -> int:
        """Remove files that crashed writers left before this POSIX time; return how many."""
        removed = 0
        for folder in (TEMPORARY_FOLDER, UPLOADS_FOLDER):
            touched: dict[str, float] = {}
            for path in map(Path, os.scandir(os.path.join(self.root, folder))):
                with suppress(FileNotFoundError):
                    # An upload and its journal are removed together.
                    touched[path.stem] = max(touched.get(path.stem, 0.0), path.stat().st_mtime)
            old = [stem for stem, at in touched.items() if at < before]
            names = (name for stem in old for name in (stem, stem + JOURNAL_SUFFIX))
            removed += sum(_unlink_if_present(self.root, folder, name) for name in names)
        return removed

    def _list_entries(self, folder: str, base: bytes) -> list[tuple[bytes, str]]:
        with self.translate_errors(folder):
            return _list_folder(folder, base)

    def _make_durable(self, folders: tuple[str, ...]) -> str:
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

    def _prune(self, folders: tuple[str, ...]) -> None:
        for depth in range(len(folders), 0, -1):
            folder = os.path.join(self.root, *folders[:depth])
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._durable.discard(folder)

    def _forget_durable(self, folders: tuple[str, ...]) -> None:
        for depth in range(len(folders)):
            self._durable.discard(os.path.join(self.root, *folders[: depth + 1]))


def _unlink_if_present(*path: str) -> int:
    try:
        os.unlink(os.path.join(*path))
    except FileNotFoundError:
        return 0
    return 1


def sync_folder(path: str) -> None:
    """Make a folder's names survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock_folder(path: str) -> Iterator[None]:
    """Lock a folder against concurrent replacement or removal of its files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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


def _list_folder(folder: str, base: bytes) -> list[tuple[bytes, str]]:
    """List (key or key prefix, path) of one folder's entries in byte order of keys.

    A folder's prefix ends in `/`, and a hashed name begins with a segment longer than any folder's,
    so no entry's keys are between those of another.
    """
    found = []
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            rest = _decode_entry_key(name, path, base)
            if rest is not None:
                found.append((base + rest, path))
    return sorted(found)


def _decode_entry_key(name: str, path: str, base: bytes) -> bytes | None:
    if name.startswith(objects.HASHED_PREFIX):
        return _read_key(path)[len(base) :] or None
    if name.endswith(objects.FOLDER_SUFFIX):
        segment = objects.unescape_segment(name.removesuffix(objects.FOLDER_SUFFIX))
        return None if segment is None else segment + b"/"
    return objects.unescape_segment(name)


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
        return objects.read_header(descriptor).head.key.encode()
    except (DamagedObjectError, OSError):
        log.error("%s is damaged, and its key cannot be read", path)
        return b""
    finally:
        os.close(descriptor)
