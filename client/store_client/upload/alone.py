"""One upload of a directory at a time on this machine.

The lock is the system's own: it ends with its process, however that ends.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store_client.errors import StoreError
from store_client.private_files import WRITABLE

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold this file for the length of a block; StoreError when somebody else does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            hint=WRITABLE,
        ) from error
    try:
        _take(descriptor)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> None:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise StoreError(
            "this directory is being uploaded already", hint="wait until the other upload ends"
        ) from error
