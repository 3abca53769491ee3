"""Files in the home folder of a running store: lock, processes, readiness, first token.

The folder is its owner's alone (0700). Every file is replaced atomically.
"""

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCK = "run.lock"
READY = "ready.json"
PROCESSES = "processes.json"
ADMIN_TOKEN = "admin.token"


class HomeTaken(Exception):
    """Another supervisor runs on this home."""


class HomeExposed(Exception):
    """Another user can enter the home, and we may not change that; the text says what to do."""


def make_home(home: Path) -> None:
    """Make the home if it is not there; OSError says that it is STORE_HOME that is wrong."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise _build_error(home, errno.ENOTDIR) from error
    except OSError as error:
        raise _build_error(home, error.errno) from error
    require_writable(home)


def require_writable(home: Path) -> None:
    """OSError with the reason if the home takes no files; SQLite would not tell the reason."""
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise _build_error(home, error.errno) from error


def _build_error(home: Path, number: int | None) -> OSError:
    found = number or errno.EIO
    return OSError(found, os.strerror(found), f"STORE_HOME {home}")


@contextmanager
def lock_home(home: Path) -> Iterator[None]:
    """Be the only supervisor of this home; HomeTaken names the other. It ends with the process."""
    make_home(home)
    close_to_others(home)
    handle = os.open(home / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise HomeTaken(f"a store runs in {home} already (process {holder})") from error
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def close_to_others(home: Path) -> None:
    """Take away the permissions of group and others.

    Raise HomeExposed if that is not allowed, or if the folder belongs to another user.
    """
    found = home.stat()
    if found.st_uid != os.geteuid():
        raise HomeExposed(
            f"STORE_HOME: {home} belongs to another user (id {found.st_uid}), who can read and"
            f" replace everything in it: run the store as that user, or use a folder of your own"
        )
    mode = found.st_mode & 0o777
    if not mode & 0o077:
        return
    try:
        home.chmod(0o700)
    except OSError as error:
        raise HomeExposed(
            f"STORE_HOME: {home} is open to other users (mode {mode:04o}) and cannot be closed"
            f" ({error.strerror}): make it yours with mode 0700"
        ) from error


def write_json(home: Path, name: str, content: Mapping[str, Any]) -> None:
    """Replace a JSON file of the home."""
    write_text(home, name, json.dumps(content, indent=1) + "\n")


def try_write_json(home: Path, name: str, content: Mapping[str, Any]) -> bool:
    """The same, if the disk allows; False if it is full, for example."""
    try:
        write_json(home, name, content)
    except OSError:
        return False
    return True


def write_text(home: Path, name: str, text: str) -> None:
    """Replace a file of the home; at no time can another user read it."""
    draft = home / f".{name}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(draft, home / name)


def read_json(home: Path, name: str) -> dict[str, Any] | None:
    """A JSON file of the home, or None when it is not there."""
    try:
        found: dict[str, Any] = json.loads((home / name).read_text())
    except FileNotFoundError:
        return None
    return found


def remove_file(home: Path, name: str) -> None:
    """Take a file away; no error when it is gone already."""
    (home / name).unlink(missing_ok=True)
