"""Files of `<home>/secrets`: each is made once, whole, with mode 0600. Of two processes that start
together one wins, and both use what it wrote. What is in them is for others to say, but for the
store's own secret.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import Invalid, Unavailable
from storage.model import MIN_SECRET

FOLDER = "secrets"
SECRET_FILE = "store"

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def private_folder(home: Path) -> Path:
    """The folder, made when it is not there."""
    folder = home / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable("The folder of secrets cannot be made") from error
    return folder


def once(path: Path, make: Callable[[], str]) -> str:
    """The file's text; whoever finds it absent makes it, and the first to finish wins."""
    try:
        if not path.exists():
            _create(path, make())
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"The secret {path.name} cannot be read") from error


def given(home: Path, name: str) -> str:
    """What an operator put there under this name; empty when there is none."""
    try:
        return (home / FOLDER / name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def secret(home: Path, name: str = SECRET_FILE, *, given: str = "") -> bytes:
    """The secret that the operator gave, else the one kept under this name, made on first use."""
    if given:
        if len(given) < MIN_SECRET:
            raise Invalid(f"STORE_SECRET_KEY is shorter than {MIN_SECRET} characters")
        return given.encode()
    if not _NAME.fullmatch(name):
        raise ValueError("not a name of a secret")
    # Kept as text, so that an operator can move it into STORE_SECRET_KEY and nothing changes.
    text = once(private_folder(home) / name, lambda: secrets.token_hex(32) + "\n").strip()
    if len(text) < MIN_SECRET:
        raise Unavailable("The secret of this store cannot be used")
    return text.encode()


def replace(path: Path, text: str) -> None:
    """Another text instead of the present one, for whoever reads from now on."""
    os.replace(_temporary(path, text), path)
    _sync(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One who replaces at a time, over all processes of this machine."""
    with open(os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(path: Path, text: str) -> None:
    """Publish a whole file under a free name; a name already taken is left as it is."""
    temporary = _temporary(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    _sync(path.parent)


def _temporary(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
