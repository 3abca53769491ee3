"""The folders of one bucket: temporaries, atomic and durable naming, the sorted walk, sweeping."""

import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from storage.blobs import envelope, layout
from storage.errors import AlreadyExists, Damaged, NotFound, SourceChanged, Unavailable

log = logging.getLogger(__name__)

TEMPORARY: Final = ".temporary"
UPLOADS: Final = ".uploads"
JOURNAL: Final = ".journal"
"""No key's path begins with a dot."""

READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""How objects are opened: a FIFO in the place of one must not make us wait for a writer."""

_ATTEMPTS = 16
_UNREADABLE = (errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESPIPE)
"""What the system says of one file that cannot be read, while others can."""
_KNOWN_FOLDERS = 65_536


class Tree:
    """One bucket's root. Every method may be called by many threads and processes at once."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)
        self._durable: set[str] = set()
        for name in ("", TEMPORARY, UPLOADS):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)

    @contextmanager
    def speaking_of(self, key: str) -> Iterator[None]:
        """The operating system's errors in our words."""
        try:
            yield
        except FileNotFoundError as error:
            self.expect_root()
            raise NotFound(f"no object {key}") from error
        except OSError as error:
            if error.errno in _UNREADABLE:
                raise Damaged(f"the file of {key} cannot be read: {error.strerror}") from error
            raise Unavailable(f"the folder bucket failed: {error.strerror}") from error

    def expect_root(self) -> None:
        """Unavailable when the root is gone, say unmounted: nothing may be called absent then."""
        if not os.path.isdir(os.path.join(self.root, TEMPORARY)):
            raise Unavailable("the folder bucket is gone")

    def path(self, key: str) -> str:
        """Where a key's object lies or would lie."""
        return layout.place(key).under(self.root)

    def open(self, key: str) -> int:
        """Open an object's file for reading. Damaged if this one may not be opened, though its
        bucket may."""
        try:
            return os.open(self.path(key), READ)
        except PermissionError as error:
            self.expect_root()
            raise Damaged(f"the file of {key} cannot be read: {error.strerror}") from error

    @contextmanager
    def temporary(self) -> Iterator[tuple[str, int]]:
        """Path and descriptor of a new private file, gone afterwards unless it was named."""
        path = os.path.join(self.root, TEMPORARY, secrets.token_hex(16))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                os.unlink(path)

    def publish(self, path: str, key: str, *, replace: bool = False) -> None:
        """Name a file that is synced already, for good, if the key is free or is to be replaced."""
        place = layout.place(key)
        for _ in range(_ATTEMPTS):
            folder = self._make_durable(place.folders)
            try:
                if replace:
                    with _alone(folder):
                        os.replace(path, os.path.join(folder, place.name))
                else:
                    os.link(path, os.path.join(folder, place.name))
            except FileExistsError as error:
                raise AlreadyExists(f"{key} exists already") from error
            except FileNotFoundError:
                # Somebody removed the folder because it was empty; make it again.
                self._forget(place.folders)
                continue
            return sync_folder(folder)
        raise Unavailable(f"could not name {key}")

    def exchange(self, path: str, key: str, fits: Callable[[os.stat_result], bool]) -> None:
        """Put a file that is synced already in the place of what lies there, if that fits; else
        SourceChanged. Nobody replaces or removes it in between."""
        place = layout.place(key)
        folder = os.path.join(self.root, *place.folders)
        name = os.path.join(folder, place.name)
        with _alone(folder):
            if not fits(os.stat(name)):
                raise SourceChanged(f"{key} is no longer what it was")
            os.replace(path, name)
        sync_folder(folder)

    def remove(self, key: str, fits: Callable[[os.stat_result], bool] | None = None) -> None:
        """Remove an object and the folders that it leaves empty; SourceChanged unless it `fits`.
        Nobody replaces or removes it in between."""
        place = layout.place(key)
        folder = os.path.join(self.root, *place.folders)
        name = os.path.join(folder, place.name)
        with _alone(folder):
            if fits is not None and not fits(os.stat(name)):
                raise SourceChanged(f"{key} is no longer what it was")
            os.unlink(name)
        sync_folder(folder)
        self._prune(place.folders)

    def walk(self, prefix: bytes, after: bytes) -> Iterator[tuple[str, str]]:
        """Key and path of objects under a prefix with a key beyond `after`, in byte order of keys;
        damaged ones too, unless only their head could say the key."""
        pending = [iter(self._entries(self.root, b""))]
        while pending:
            found = next(pending[-1], None)
            if found is None:
                pending.pop()
                continue
            key, path = found
            if path.endswith(layout.FOLDER):
                if _may_hold(key, prefix, after):
                    pending.append(iter(self._entries(path, key)))
            elif key.startswith(prefix) and key > after:
                with suppress(UnicodeDecodeError):
                    yield key.decode(), path

    def sweep(self, before: float) -> int:
        """Remove what crashed writers left before this time (POSIX); returns how many files."""
        removed = 0
        for folder in (TEMPORARY, UPLOADS):
            touched: dict[str, float] = {}
            for path in map(Path, os.scandir(os.path.join(self.root, folder))):
                with suppress(FileNotFoundError):
                    # An upload and its journal live and die together.
                    touched[path.stem] = max(touched.get(path.stem, 0.0), path.stat().st_mtime)
            old = [stem for stem, at in touched.items() if at < before]
            names = (name for stem in old for name in (stem, stem + JOURNAL))
            removed += sum(_unlink(self.root, folder, name) for name in names)
        return removed

    def _entries(self, folder: str, base: bytes) -> list[tuple[bytes, str]]:
        with self.speaking_of(folder):
            return _entries(folder, base)

    def _make_durable(self, folders: tuple[str, ...]) -> str:
        """The folder, made if need be and surviving a power cut."""
        parent = self.root
        for name in folders:
            folder = os.path.join(parent, name)
            if folder not in self._durable:
                with suppress(FileExistsError, FileNotFoundError):
                    os.mkdir(folder)
                # Also when another process made it: it may not have synced it yet.
                with suppress(FileNotFoundError):
                    sync_folder(parent)
                if len(self._durable) >= _KNOWN_FOLDERS:
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

    def _forget(self, folders: tuple[str, ...]) -> None:
        for depth in range(len(folders)):
            self._durable.discard(os.path.join(self.root, *folders[: depth + 1]))


def _unlink(*path: str) -> int:
    try:
        os.unlink(os.path.join(*path))
    except FileNotFoundError:
        return 0
    return 1


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Held by one at a time: who takes the place of what a folder has, or takes it away."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _may_hold(folder: bytes, prefix: bytes, after: bytes) -> bool:
    """False when no key below a folder can be both under the prefix and beyond `after`."""
    if not folder.startswith(prefix) and not prefix.startswith(folder):
        return False
    return folder > after or after.startswith(folder)


def _entries(folder: str, base: bytes) -> list[tuple[bytes, str]]:
    """(key or key prefix, path) of one folder's entries in byte order of keys.

    A folder's prefix ends in `/`, and a hashed name begins with a segment longer than any
    folder's, so no entry's keys lie between those of another.
    """
    found = []
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            rest = _rest_of_key(name, path, base)
            if rest is not None:
                found.append((base + rest, path))
    return sorted(found)


def _rest_of_key(name: str, path: str, base: bytes) -> bytes | None:
    if name.startswith(layout.HASHED):
        return _true_key(path)[len(base) :] or None
    if name.endswith(layout.FOLDER):
        segment = layout.unescape(name.removesuffix(layout.FOLDER))
        return None if segment is None else segment + b"/"
    return layout.unescape(name)


def _true_key(path: str) -> bytes:
    """The key in an object's head; empty when the object has just gone, or its head is damaged.
    Keys of replicas are short and never hashed."""
    try:
        descriptor = os.open(path, READ)
    except FileNotFoundError:
        return b""
    except OSError as error:
        log.error("%s is damaged, and its key cannot be read: %s", path, error.strerror)
        return b""
    try:
        return envelope.unpack(descriptor).head.key.encode()
    except (Damaged, OSError):
        log.error("%s is damaged, and its key cannot be read", path)
        return b""
    finally:
        os.close(descriptor)
