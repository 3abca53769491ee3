"""Files that take their place whole and at one instant, or not at all."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from store_client.errors import StoreError


def replaced(target: Path, put: Callable[[Path], object]) -> None:
    """Have `put` make a file beside the target, and that take its place; OSError, and whatever
    `put` raises, with nothing left behind."""
    # Not made of the target's name, which may be as long as names can be.
    temporary = target.with_name(f".store-{secrets.token_hex(8)}")
    try:
        put(temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_whole(path: Path, data: bytes) -> None:
    """The same with bytes; StoreError when they cannot be written there."""
    try:
        replaced(path, lambda temporary: temporary.write_bytes(data))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
