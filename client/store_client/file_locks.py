"""Locks on files between processes of one machine, by `filelock`.

The operating system ends a lock together with the process that holds it, so no lock gets stale.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock

POLL_S = 0.02
"""Interval between attempts at a lock that another process holds."""


class LockTimeout(Exception):
    """Another process held the lock for all of the time that it was waited for."""


def acquire_lock(path: Path, *, wait_s: float = 0.0, private: bool = True) -> "BaseFileLock":
    """Acquire the lock of this file, which is made with its folder if missing; release it yourself.

    LockTimeout after `wait_s` seconds; OSError where the file cannot be made or locked. Only the
    owner may use a `private` file; the rights of others are as the umask says.
    """
    library = importlib.import_module("filelock")  # 30 ms, which most commands do without
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
    lock: BaseFileLock = library.FileLock(path, **({"mode": 0o600} if private else {}))
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except library.Timeout as error:
        raise LockTimeout(str(path)) from error
    return lock
