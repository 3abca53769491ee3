"""A directory as a list of files, named as the bundle will name them.

Links to files are followed, wherever they lead: their content is what is uploaded. Links to
directories are not: they may lead in circles. Each is told as a warning.
"""

import logging
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from store_client.errors import Misused
from store_client.names import fault

log = logging.getLogger(__name__)

_SHOWN = 5
"""Names that one error shows."""


class Stamp(NamedTuple):
    """What changes when a file does."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Local:
    """One file of the directory."""

    name: str
    path: str
    stamp: Stamp

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stamp.size


def walk(source: Path) -> list[Local]:
    """All files below a directory, by name; Misused names what cannot be uploaded."""
    found = sorted(_below(str(source)), key=lambda file: file.name)
    if not found:
        raise Misused(f"there are no files in {source}")
    names = [file.name for file in found]
    _check_each(names)
    _check_together(names)
    return found


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of what was looked at."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


def _below(source: str) -> Iterator[Local]:
    """In no order; folder by folder, so that depth costs no stack."""
    folders = [(source, "")]
    while folders:
        folder, prefix = folders.pop()
        for entry in _entries(folder):
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, f"{name}/"))
            elif entry.is_symlink() and entry.is_dir():
                log.warning("left out: %s is a link to a directory", entry.path)
            else:
                yield _file(entry.path, name)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise Misused(f"cannot read the directory {folder}: {error.strerror}") from error


def _file(path: str, name: str) -> Local:
    try:
        found = os.stat(path)
    except OSError as error:
        raise Misused(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise Misused(f"{path} is no file", hint="move it out of the directory")
    if not os.access(path, os.R_OK):
        raise Misused(f"{path} may not be read", hint="mend its permissions or move it away")
    return Local(name, path, stamp_of(found))


def _check_each(names: Sequence[str]) -> None:
    faulty = [(name, wrong) for name in names if (wrong := fault(name)) is not None]
    if faulty:
        name, wrong = faulty[0]
        more = f" (and {len(faulty) - 1} more)" if len(faulty) > 1 else ""
        raise Misused(f"a bundle cannot have the name {name!r}{more}: {wrong}", hint="rename it")


def _check_together(names: Sequence[str]) -> None:
    """Two that some file systems take for one; whole names, and folders that are files there."""
    first: dict[str, str] = {}
    for name in names:
        twin = first.setdefault(unicodedata.normalize("NFC", name), name)
        if twin is not name:
            raise Misused(
                f"{twin!r} and {name!r} differ only in how letters with marks are written",
                hint="rename one of them",
            )
    nested = sorted(name for name in first if any(up in first for up in _folders(name)))
    if nested:
        shown = ", ".join(map(repr, nested[:_SHOWN]))
        raise Misused(f"a file has the name of a folder of {shown}", hint="rename one of them")


def _folders(name: str) -> Iterable[str]:
    parts = name.split("/")[:-1]
    return ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
