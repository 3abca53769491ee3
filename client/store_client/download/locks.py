"""One who does something with a file at a time: in this process, and among all of this machine.

Among processes by locks that end with who holds them, whatever ended that one.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from store_client.held_files import try_to_hold

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
    number = _taken(path, pause)
    try:
        yield
    finally:
        # Removed while it is held: who waits for this one sees that it is no longer the path's.
        if sys.platform != "win32":
            path.unlink(missing_ok=True)
        os.close(number)
        if sys.platform == "win32":
            with contextlib.suppress(OSError):
                path.unlink()


def _taken(path: Path, pause: Callable[[float], None]) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if try_to_hold(number) and _is_at(number, path):
                return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)
        pause(LOOK_S)


def _is_at(number: int, path: Path) -> bool:
    """Whether the open file is still what the path names."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False
