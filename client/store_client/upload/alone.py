"""One upload of a directory at a time on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store_client.errors import StoreError
from store_client.file_locks import LockTimeout, acquire_lock
from store_client.private_files import WRITABLE


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold this file for the length of a block; StoreError when somebody else does."""
    try:
        lock = acquire_lock(path)
    except LockTimeout as error:
        raise StoreError(
            "this directory is being uploaded already",
            hint="wait until the other upload ends",
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            hint=WRITABLE,
        ) from error
    try:
        yield
    finally:
        lock.release()
