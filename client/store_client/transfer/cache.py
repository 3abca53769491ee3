"""The download cache in .store: verified files by SHA-256, partial files and locks.

    .store/v2/files_2_4/<2>/<4>/<sha256>  verified files; bundle directories link to them
    .store/v2/verified                    stamps of verified files
    .store/partial/<sha256>.part          an incomplete file, resumed by later runs
    .store/partial/<sha256>.parts         progress of the parts of a large file
    .store/partial/<sha256>.lock          held while a file is fetched

A cached file may be a hard link that is edited elsewhere. So it is trusted only while its stamp
(inode, size, time of change) is the verified one; otherwise it is read again.
"""

import contextlib
import logging
import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from store_client.atomic_files import LockTimeout, acquire_lock
from store_client.checksums import BLOCK, file_sha256
from store_client.errors import Damaged, StoreError, name_os_errors
from store_client.identifiers import is_sha256

log = logging.getLogger(__name__)

SHARED_FROM = BLOCK + 1
"""Smaller files come in one block in memory; there is nothing to resume."""
ABANDONED_S = 86_400.0
"""Age at which abandoned temporary files are removed."""

CacheStamp = tuple[int, int, int]


class ContentCache:
    """A cache directory; threads and processes share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = root / "v2" / "files_2_4"
        self._verified = root / "v2" / "verified"
        self._partial = root / "partial"
        self._busy = KeyedLocks()
        self._guard = threading.Lock()
        self._stamps = _read_stamps(self._verified)
        _remove_abandoned(self._partial)

    def path(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise Damaged(f"{sha256!r} is not a SHA-256")
        # One join rather than five: this is called several times for each file.
        return Path(f"{self._files}/{sha256[:2]}/{sha256[2:6]}/{sha256}")

    def has(self, sha256: str, size: int) -> bool:
        """Whether the content is cached and intact; damaged content is removed."""
        path = self.path(sha256)
        stamp = _stat_stamp(path)
        if stamp is None:
            return False
        if self._stamps.get(sha256) == stamp:
            return stamp[0] == size
        if stamp[0] == size and file_sha256(path) == sha256:
            self._record_verified(sha256, stamp)
            return True
        log.warning("%s is damaged and is fetched again", path)
        if path.is_dir() and not path.is_symlink():
            raise StoreError(f"{path} is a directory", hint="remove it: a file belongs there")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return False

    def has_size(self, sha256: str, size: int) -> bool:
        """Whether a file of this size is cached; it may be damaged."""
        stamp = _stat_stamp(self.path(sha256))
        return stamp is not None and stamp[0] == size

    def missing_bytes(self, sha256: str, size: int) -> int:
        """Bytes that the content still needs on the disk."""
        return max(0, size - _disk_usage(self.partial_path(sha256, "part")))

    @contextlib.contextmanager
    def lock_content(
        self, sha256: str, size: int, pause: Callable[[float], None]
    ) -> Iterator[None]:
        """Lock a content for fetching; check again whether it is cached."""
        with self._busy.hold(sha256):
            if size < SHARED_FROM:
                yield
                return
            with hold_lock_file(self.partial_path(sha256, "lock"), pause):
                yield

    def partial_path(self, sha256: str, ending: str) -> Path:
        """The path of a file about an incomplete content."""
        return self._partial / f"{sha256}.{ending}"

    def part_path(self, sha256: str) -> Path:
        """The path of an incomplete content, which a later run resumes."""
        self._partial.mkdir(parents=True, exist_ok=True)
        return self.partial_path(sha256, "part")

    def partial_bytes(self) -> int:
        """Bytes of all incomplete contents."""
        return sum(_disk_usage(path) for path in self._partial.glob("*.part"))

    def add(self, data: memoryview, sha256: str) -> None:
        """Store verified bytes."""
        self._partial.mkdir(parents=True, exist_ok=True)
        temporary = self.partial_path(sha256, f"{secrets.token_hex(6)}.tmp")
        try:
            temporary.write_bytes(data)
            self.adopt(temporary, sha256)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def adopt(self, temporary: Path, sha256: str) -> None:
        """Move a verified file to its final path."""
        path = self.path(sha256)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
        stamp = _stat_stamp(path)
        if stamp is not None:
            self._record_verified(sha256, stamp)

    def _record_verified(self, sha256: str, stamp: CacheStamp) -> None:
        line = "\t".join([sha256, *map(str, stamp)]) + "\n"
        with self._guard:
            self._stamps[sha256] = stamp
            # One write of a short line is whole, also when several processes append.
            with open(self._verified, "ab", buffering=0) as file:
                file.write(line.encode())


def open_cache(root: Path, *, make: bool) -> ContentCache:
    """Open a cache, created if `make`; StoreError if that fails."""
    hint = "run the command in a directory that you may write to"
    with name_os_errors(f"create the cache {root}", hint=hint):
        if make:
            (root / "v2").mkdir(parents=True, exist_ok=True)
        return ContentCache(root)


def _disk_usage(path: Path) -> int:
    """Bytes that a file occupies on the disk, 0 if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return 0
    # Made as long as it will be, a file that comes in parts has holes where nothing has come.
    return found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size


def _stat_stamp(path: Path) -> CacheStamp | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    # What is no file has the size of none: it is neither read nor linked to.
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return size, found.st_mtime_ns, found.st_ino


def _read_stamps(path: Path) -> dict[str, CacheStamp]:
    """Read the stamps of verified files; the last line of each counts."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for line in lines:
        sha256, *numbers = line.split("\t")
        if len(numbers) == 3 and all(one.isdecimal() for one in numbers):
            found[sha256] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    return found


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of runs that were killed."""
    now = time.time()
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > ABANDONED_S:
                path.unlink()


LOCK_POLL_S = 0.05
"""Interval between attempts at a lock of another process."""


class KeyedLocks:
    """A lock for each key, within this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, key: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = (lock, users - 1)


@contextlib.contextmanager
def hold_lock_file(path: Path, pause: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock file among processes; it is removed afterwards."""
    lock = None
    while lock is None:
        try:
            lock = acquire_lock(path, private=False)
        except LockTimeout:
            pause(LOCK_POLL_S)
    try:
        yield
    finally:
        # Removed while it is locked: a process that waits for it sees that its file is gone, and
        # tries the path again.
        if sys.platform != "win32":
            path.unlink(missing_ok=True)
        lock.release()
        if sys.platform == "win32":
            with contextlib.suppress(OSError):
                path.unlink()
