"""Small JSON files of the user's: written whole or not at all, by one writer at a time.

What cannot be read, or is no JSON object, counts as absent and is set aside, so that a damaged file
repairs itself.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from store_client.errors import StoreError
from store_client.replacing import replaced

PRIVATE = 0o600
WRITABLE = "set STORE_CLIENT_HOME to a folder that you may write to"
LOCK_STALE_S = 30.0
"""Age at which the lock of a writer that died is taken over."""


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
    write_private(path, json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")


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
    """One who reads and then writes this file at a time, over all processes of this machine."""
    lock = path.with_name(f".{path.name}.lock")
    _take(lock, wait_s)
    try:
        yield
    finally:
        remove(lock)


def _take(lock: Path, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
        except FileExistsError:
            if _stale(lock):
                remove(lock)
            elif time.monotonic() > until:
                raise StoreError(
                    f"{lock} is held by another process", hint="remove it if there is none"
                ) from None
            else:
                time.sleep(0.02)
        except OSError as error:
            raise StoreError(
                f"cannot write {lock}: {error.strerror or error}", hint=WRITABLE
            ) from error
        else:
            return


def _stale(lock: Path) -> bool:
    try:
        return time.time() - lock.stat().st_mtime > LOCK_STALE_S
    except OSError:
        return False
