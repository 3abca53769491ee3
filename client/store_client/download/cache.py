"""The cache: every byte that comes, in `.store`, keyed by content.

    .store/v2/files_2_4/<2>/<4>/<sha256>  whole files, proved; bundle directories link to them
    .store/v2/verified                    which files were proved, and how they looked then
    .store/partial/<sha256>.part          what has come of a file, taken up again by later runs
    .store/partial/<sha256>.parts         how far each part of a large one is
    .store/partial/<sha256>.lock          held while one is brought

A file here may be a hard link that somebody edits elsewhere. So one is trusted only as long as it
looks as it did when it was proved (inode, size, time of change); else it is read again.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from store_client.checksums import BLOCK
from store_client.download import locks
from store_client.errors import Damaged, StoreError

log = logging.getLogger(__name__)

SHARED_FROM = BLOCK + 1
"""Smaller files come in one block, which is held in memory: there is nothing to take up again."""
ABANDONED_S = 86_400.0
"""Age at which a temporary that no name leads to any more is removed."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

Stamp = tuple[int, int, int]


class Cache:
    """One cache directory; used by several threads, and by several processes, at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = root / "v2" / "files_2_4"
        self._verified = root / "v2" / "verified"
        self._partial = root / "partial"
        self._busy = locks.KeyedLocks()
        self._guard = threading.Lock()
        self._stamps = _read_stamps(self._verified)
        _sweep(self._partial)

    def path(self, sha256: str) -> Path:
        """Where the content lies, or will."""
        if not _SHA256.fullmatch(sha256):
            raise Damaged(f"{sha256!r} is no SHA-256")
        # One join rather than five: this is asked several times of each file.
        return Path(f"{self._files}/{sha256[:2]}/{sha256[2:6]}/{sha256}")

    def has(self, sha256: str, size: int) -> bool:
        """Whether the content is here, whole; what lies there and is damaged is thrown away."""
        path = self.path(sha256)
        stamp = _stamp(path)
        if stamp is None:
            return False
        if self._stamps.get(sha256) == stamp:
            return stamp[0] == size
        if stamp[0] == size and digest_of(path) == sha256:
            self._keep(sha256, stamp)
            return True
        log.warning("%s is damaged, and is fetched anew", path)
        if path.is_dir() and not path.is_symlink():
            raise StoreError(f"{path} is a directory", hint="remove it: a file belongs there")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return False

    def seems_to_have(self, sha256: str, size: int) -> bool:
        """Whether a file of this size lies where the content belongs; it may be damaged."""
        stamp = _stamp(self.path(sha256))
        return stamp is not None and stamp[0] == size

    def room(self, sha256: str, size: int) -> int:
        """Bytes that the disk still has to take for a file that is to come: of a large one, what
        an earlier run left takes its room already."""
        return max(0, size - _taken(self.partial(sha256, "part")))

    @contextlib.contextmanager
    def alone(self, sha256: str, size: int, pause: Callable[[float], None]) -> Iterator[None]:
        """Be the one who brings this content; look again whether it is here."""
        with self._busy.held(sha256):
            if size < SHARED_FROM:
                yield
                return
            with locks.held(self.partial(sha256, "lock"), pause):
                yield

    def partial(self, sha256: str, ending: str) -> Path:
        """Where something about a file that is not whole lies."""
        return self._partial / f"{sha256}.{ending}"

    def temporary(self, sha256: str) -> Path:
        """Where a file grows that a later run goes on with."""
        self._partial.mkdir(parents=True, exist_ok=True)
        return self.partial(sha256, "part")

    def unfinished(self) -> int:
        """Bytes of files that have not come whole."""
        return sum(_taken(path) for path in self._partial.glob("*.part"))

    def add(self, data: memoryview, sha256: str) -> None:
        """Have these proved bytes under their final name."""
        self._partial.mkdir(parents=True, exist_ok=True)
        temporary = self.partial(sha256, f"{secrets.token_hex(6)}.tmp")
        try:
            temporary.write_bytes(data)
            self.adopt(temporary, sha256)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def adopt(self, temporary: Path, sha256: str) -> None:
        """Give proved bytes their final name."""
        path = self.path(sha256)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
        stamp = _stamp(path)
        if stamp is not None:
            self._keep(sha256, stamp)

    def _keep(self, sha256: str, stamp: Stamp) -> None:
        line = "\t".join([sha256, *map(str, stamp)]) + "\n"
        with self._guard:
            self._stamps[sha256] = stamp
            # One write of a short line is whole, also when several processes append.
            with open(self._verified, "ab", buffering=0) as file:
                file.write(line.encode())


def opened(root: Path, *, make: bool) -> Cache:
    """The cache of a directory, which is made if it has to be; StoreError when it cannot be."""
    try:
        if make:
            (root / "v2").mkdir(parents=True, exist_ok=True)
        return Cache(root)
    except OSError as error:
        raise StoreError(
            f"cannot make the cache {root}: {error.strerror or error}",
            hint="run the command in a directory that you may write to",
        ) from error


def digest_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _taken(path: Path) -> int:
    """Bytes of the disk that a file takes, 0 if there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0
    # Made as long as it will be, a file that comes in parts has holes where nothing has come.
    return found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size


def _stamp(path: Path) -> Stamp | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    # What is no file has the size of none: it is neither read nor linked to.
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return size, found.st_mtime_ns, found.st_ino


def _read_stamps(path: Path) -> dict[str, Stamp]:
    """Those of lines that are whole; the last of each file counts."""
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


def _sweep(folder: Path) -> None:
    """Remove what runs that were killed left of small files."""
    now = time.time()
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > ABANDONED_S:
                path.unlink()
