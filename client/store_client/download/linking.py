"""Files of the cache under their names in a directory: hard links, or copies where links fail."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from store_client.download.cache import digest_of
from store_client.errors import StoreError
from store_client.replacing import replaced

log = logging.getLogger(__name__)

Put = Callable[[Path, Path], None]
"""Makes the second path lead to what the first holds; FileExistsError when it leads anywhere."""


def lay(source: Path, target: Path, *, sha256: str, link: Put = os.link) -> None:
    """Let `target` hold what `source` does. What is there and the same stays; what is there and
    differs is replaced at one instant."""
    try:
        _put(source, target, link)
    except FileExistsError:
        if not _same(source, target, sha256):
            log.warning("%s was something else, and is replaced", target)
            _replace(source, target, link)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error


def same_disk(directory: Path, other: Path) -> bool:
    """Whether links between them can be hoped for; of a directory that is not there yet, its
    nearest parent that is decides."""
    return _existing(directory).stat().st_dev == _existing(other).stat().st_dev


def _put(source: Path, target: Path, link: Put) -> None:
    try:
        link(source, target)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        _put_there(source, target, link)
    except FileExistsError:
        raise
    except OSError:
        _copy(source, target)


def _put_there(source: Path, target: Path, link: Put) -> None:
    try:
        link(source, target)
    except FileExistsError:
        raise
    except OSError:
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all. Another file system, too many links, or one that knows no links."""
    if os.path.lexists(target):
        raise FileExistsError
    replaced(target, lambda temporary: shutil.copyfile(source, temporary))


def _replace(source: Path, target: Path, link: Put) -> None:
    def put(temporary: Path) -> None:
        try:
            link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    if target.is_dir() and not target.is_symlink():
        raise StoreError(f"{target} is a directory", hint="remove it, or choose another one")
    try:
        replaced(target, put)
    except OSError as error:
        raise StoreError(f"cannot replace {target}: {error.strerror or error}") from error


def _same(source: Path, target: Path, sha256: str) -> bool:
    if target.is_symlink() or not target.is_file():
        return False
    if os.path.samefile(source, target):
        return True
    return source.stat().st_size == target.stat().st_size and digest_of(target) == sha256


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
