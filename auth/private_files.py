"""Files of `<home>/secrets`: each is made once, whole, with mode 0600. Of two processes that start
together one wins, and both use what it wrote. What is in them is for others to say.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import Unavailable

FOLDER = "secrets"


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
