"""What a running store leaves in its home: the lock, who runs, that all is ready, the first token.

Every file is replaced whole, so that whoever reads one never sees half of it.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCK = "run.lock"
READY = "ready.json"
PROCESSES = "processes.json"
ADMIN_TOKEN = "admin.token"


class Taken(Exception):
    """Another supervisor runs on this home."""


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """The only supervisor of this home; Taken names the other. It ends with the process."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(home / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise Taken(f"a store runs in {home} already (process {holder})") from error
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def write(home: Path, name: str, content: Mapping[str, Any]) -> None:
    """Replace a JSON file of the home."""
    write_text(home, name, json.dumps(content, indent=1) + "\n", mode=0o644)


def write_text(home: Path, name: str, text: str, *, mode: int) -> None:
    """Replace a file of the home; it never exists with other permissions."""
    draft = home / f".{name}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    os.replace(draft, home / name)


def read(home: Path, name: str) -> dict[str, Any] | None:
    """A JSON file of the home, or None when it is not there."""
    try:
        found: dict[str, Any] = json.loads((home / name).read_text())
    except FileNotFoundError:
        return None
    return found


def remove(home: Path, name: str) -> None:
    """Take a file away; no error when it is gone already."""
    (home / name).unlink(missing_ok=True)
