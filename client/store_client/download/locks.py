"""One who does something with a file at a time: in this process, and among all of this machine.

Among processes by locks that end with who holds them, whatever ended that one.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from store_client.file_locks import LockTimeout, acquire_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOOK_S = 0.05
"""How often a lock that another process holds is tried."""


class KeyedLocks:
    """A lock for each key that somebody in this process is busy with."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """One at a time by key."""
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
def held(path: Path, pause: Callable[[float], None]) -> Iterator[None]:
    """One process at a time; the file is made for it and removed afterwards."""
    lock = _acquire(path, pause)
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


def _acquire(path: Path, pause: Callable[[float], None]) -> "BaseFileLock":
    while True:
        try:
            return acquire_lock(path, private=False)
        except LockTimeout:
            pause(LOOK_S)
