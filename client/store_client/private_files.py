"""Small JSON files of the user's: written whole or not at all, by one writer at a time.

What cannot be read, or is no JSON object, counts as absent and is set aside, so that a damaged file
repairs itself.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from store_client.errors import StoreError
from store_client.file_locks import LockTimeout, acquire_lock
from store_client.replacing import replaced

PRIVATE = 0o600
WRITABLE = "set STORE_CLIENT_HOME to a folder that you may write to"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is none, or none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Put it in place of what was there, at one instant, readable by its owner alone."""
    # With an indent, json encodes in Python, which takes ten times as long for a definition.
    write_private(path, json.dumps(value, ensure_ascii=False).encode() + b"\n")


def write_private(path: Path, data: bytes) -> None:
    """The same with bytes; StoreError when the folder cannot be written to."""

    def put(temporary: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(temporary, flags, PRIVATE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replaced(path, put)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}", hint=WRITABLE
        ) from error


def remove(path: Path) -> bool:
    """Whether there was a file to remove."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path, *, wait_s: float = 10.0) -> Iterator[None]:
    """Hold the lock of a file that is read and then written; StoreError when it cannot be had.

    The lock is a file of its own beside `path` and stays there: removing it would let two processes
    hold locks of the same name.
    """
    place = path.with_name(f".{path.name}.lock")
    try:
        lock = acquire_lock(place, wait_s=wait_s)
    except LockTimeout as error:
        raise StoreError(
            f"{path} is in use by another process", hint="wait until that one ends, then try again"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {place}: {error.strerror or error}", hint=WRITABLE
        ) from error
    try:
        yield
    finally:
        lock.release()
