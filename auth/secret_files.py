"""Files of the secrets folder, each created once, atomically, with mode 0600."""

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import Invalid, Unavailable
from storage.model import MIN_SECRET_LENGTH

SECRETS_FOLDER = "secrets"
STORE_SECRET_NAME = "store"

_SECRET_NAME_REGEX = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def ensure_secrets_folder(home: Path) -> Path:
    """Create the folder if it is missing."""
    folder = home / SECRETS_FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable("The folder of secrets cannot be made") from error
    return folder


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """Read a file, creating it if missing; of concurrent writers the first wins."""
    try:
        if not path.exists():
            _create_file(path, make())
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"The secret {path.name} cannot be read") from error


def read_operator_secret(home: Path, name: str) -> str:
    """Read a secret that an operator stored; empty if there is none."""
    try:
        return (home / SECRETS_FOLDER / name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def load_secret(home: Path, name: str = STORE_SECRET_NAME, *, given: str = "") -> bytes:
    """Return the operator's secret, else the stored one, created on first use."""
    if given:
        if len(given) < MIN_SECRET_LENGTH:
            raise Invalid(f"STORE_SECRET_KEY is shorter than {MIN_SECRET_LENGTH} characters")
        return given.encode()
    if not _SECRET_NAME_REGEX.fullmatch(name):
        raise ValueError("not a name of a secret")
    # Stored as text, so that an operator can move it unchanged into STORE_SECRET_KEY.
    text = read_or_create(
        ensure_secrets_folder(home) / name, lambda: secrets.token_hex(32) + "\n"
    ).strip()
    if len(text) < MIN_SECRET_LENGTH:
        raise Unavailable("The secret of this store cannot be used")
    return text.encode()


def replace_file(path: Path, text: str) -> None:
    """Replace a file's text atomically and durably."""
    os.replace(_write_temporary(path, text), path)
    _sync_folder(path.parent)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes of this machine."""
    with open(os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create_file(path: Path, text: str) -> None:
    """Publish a complete file atomically; an existing file is left unchanged."""
    temporary = _write_temporary(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    _sync_folder(path.parent)


def _write_temporary(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
