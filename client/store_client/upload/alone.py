"""One upload of a directory at a time on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store_client.errors import StoreError
from store_client.held_files import try_to_hold
from store_client.private_files import WRITABLE


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
        if not try_to_hold(descriptor):
            raise StoreError(
                "this directory is being uploaded already",
                hint="wait until the other upload ends",
            )
        yield
    finally:
        os.close(descriptor)
