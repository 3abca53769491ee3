"""Files written atomically, private JSON files, and locks between processes.

A private JSON file that is missing or invalid counts as empty, so a damaged file repairs itself.
The operating system releases a lock when its process ends, so no lock gets stale.
"""

import contextlib
import importlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_client.errors import StoreError, name_os_errors

if TYPE_CHECKING:
    from filelock import BaseFileLock

PRIVATE_MODE = 0o600
HOME_HINT = "set STORE_CLIENT_HOME to a folder that you may write to"


def parse_json_object(data: bytes | str) -> dict[str, Any] | None:
    """Parse a JSON object that may come from anywhere; None if it is anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object of a file; empty if the file is missing or invalid."""
    try:
        return parse_json_object(path.read_bytes()) or {}
    except OSError:
        return {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, readable by its owner only."""
    # With an indent, json encodes in Python, which takes ten times as long for a definition.
    write_private_bytes(path, json.dumps(value, ensure_ascii=False).encode() + b"\n")


def write_private_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically, readable by their owner only; StoreError if that fails."""

    def put(temporary: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(temporary, flags, PRIVATE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    with name_os_errors(f"write {path}", hint=HOME_HINT):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_atomically(path, put)


def remove_file(path: Path) -> bool:
    """Remove a file; whether it existed."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def lock_file(path: Path, *, wait_s: float = 10.0) -> contextlib.AbstractContextManager[None]:
    """Lock a file that is read and then written; StoreError after the time-out.

    The lock is a separate file beside `path` and is never removed: otherwise two processes could
    hold locks of the same name.
    """
    busy = f"{path} is in use by another process"
    return hold_lock(path.with_name(f".{path.name}.lock"), busy, wait_s=wait_s)


@contextlib.contextmanager
def hold_lock(place: Path, busy: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file; StoreError with the text `busy` after the time-out."""
    try:
        with name_os_errors(f"write {place}", hint=HOME_HINT):
            lock = acquire_lock(place, wait_s=wait_s)
    except LockTimeout as error:
        raise StoreError(busy, hint="wait until the other process ends, then try again") from error
    try:
        yield
    finally:
        lock.release()


POLL_S = 0.02
"""Interval between attempts at a lock that another process holds."""


class LockTimeout(Exception):
    """Another process held the lock until the time-out."""


def acquire_lock(path: Path, *, wait_s: float = 0.0, private: bool = True) -> "BaseFileLock":
    """Acquire the lock of this file, which is created with its folder; the caller releases it.

    LockTimeout after `wait_s` seconds; OSError if the file cannot be created or locked. Only the
    owner may use a `private` file; otherwise the umask decides.
    """
    library = importlib.import_module("filelock")  # 30 ms, which most commands do without
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
    lock: BaseFileLock = library.FileLock(path, **({"mode": 0o600} if private else {}))
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except library.Timeout as error:
        raise LockTimeout(str(path)) from error
    return lock


def replace_atomically(target: Path, put: Callable[[Path], object]) -> None:
    """Let `put` write a temporary file, and rename it to the target.

    Raises OSError, and whatever `put` raises; nothing is left behind then.
    """
    # Not made of the target's name, which may be as long as names can be.
    temporary = target.with_name(f".store-{secrets.token_hex(8)}")
    try:
        put(temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write bytes atomically; StoreError if they cannot be written."""
    with name_os_errors(f"write {path}"):
        replace_atomically(path, lambda temporary: temporary.write_bytes(data))
