"""A directory as a list of files, named as the bundle will name them; see `directories`."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from store_client.directories import below, status_of
from store_client.errors import Misused
from store_client.names import fault

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
    found = sorted((_file(*one) for one in below(str(source))), key=lambda file: file.name)
    if not found:
        raise Misused(f"there are no files in {source}")
    names = [file.name for file in found]
    _check_each(names)
    _check_together(names)
    return found


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of what was looked at."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


def _file(path: str, name: str) -> Local:
    found = status_of(path)
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
