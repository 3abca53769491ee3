"""Find local files to upload, and check their names.

Symbolic links to files are followed. Links to directories are not, for they may form cycles; each
is logged as a warning.
"""

import logging
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from store_client.errors import Misused, name_os_errors
from store_client.names import name_fault, parent_folders

log = logging.getLogger(__name__)


def _log_left_out(path: str, message: str) -> None:
    log.warning("left out: %s %s", path, message)


def walk_files(
    root: str,
    *,
    leave_out: Callable[[str, str], None] = _log_left_out,
    fail: Callable[[str, Misused], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield path and name of each file, in no order; Misused for a directory that is not readable.

    leave_out: gets path and reason of what is not followed.
    fail: gets the path and the error of such a directory instead.
    """
    folders = [(root, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            with name_os_errors(f"read the directory {folder}", Misused):
                entries = list(os.scandir(folder))
        except Misused as error:
            if fail is None:
                raise
            fail(folder, error)
            continue
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, f"{name}/"))
            elif entry.is_symlink() and entry.is_dir():
                leave_out(entry.path, "is a link to a directory")
            else:
                yield entry.path, name


def stat_file(path: str) -> os.stat_result:
    """Stat a regular file; Misused if it cannot be read, or is none."""
    with name_os_errors(f"read {path}", Misused):
        found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Misused(f"{path} is not a file", hint="move it out of the directory")
    return found


_SHOWN = 5
"""Names that one error shows."""


class FileStamp(NamedTuple):
    """Size, time and inode, which change when a file does."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class LocalFile:
    """One file of a directory."""

    name: str
    path: str
    stamp: FileStamp

    @property
    def size(self) -> int:
        return self.stamp.size


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A local file, and its name in an upload area; `stamp` is how it looked when it was listed."""

    path: Path
    name: str
    content_type: str
    size: int
    stamp: FileStamp | None = None

    def local(self) -> LocalFile:
        """The file as it is read; Misused when it cannot be."""
        stamp = self.stamp or file_stamp(stat_file(str(self.path)))
        # Of another size now, it counts as changed when it is read.
        return LocalFile(self.name, str(self.path), stamp._replace(size=self.size))


def list_files(source: Path) -> list[LocalFile]:
    """List all files of a directory by name; Misused names what cannot be uploaded."""
    found = sorted(
        (_local_file(*one) for one in walk_files(str(source))), key=lambda file: file.name
    )
    if not found:
        raise Misused(f"there are no files in {source}")
    names = [file.name for file in found]
    _check_names(names)
    if fault := find_collision(names):
        raise Misused(fault, hint="rename one of them")
    return found


def group_by_folder(names: Iterable[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Group names of files by the folders that become bundles; also the names that are in none.

    A bundle is the topmost folder that has files, and everything below it; "" is the
    directory itself. Hidden folders are none, and hidden files make none of a folder above others:
    systems and programs leave them anywhere.
    """
    folders = {name: name.rpartition("/")[0] for name in names}
    above = {upper for folder in set(folders.values()) for upper in _upper_folders(folder)}
    bundles = {
        folder
        for name, folder in folders.items()
        if not _is_hidden(folder)
        and (folder not in above or (folder and not _is_hidden(name[len(folder) + 1 :])))
    }
    grouped: dict[str, list[str]] = {}
    stray = []
    for name, folder in folders.items():
        found = next((one for one in (*_upper_folders(folder), folder) if one in bundles), None)
        if found is None:
            stray.append(name)
        else:
            grouped.setdefault(found, []).append(name)
    return grouped, stray


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def describe_stray(names: Sequence[str]) -> str:
    """The error for files that are in none of the folders that become bundles."""
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
    files = "1 file lies" if len(names) == 1 else f"{len(names)} files lie"
    return f"{files} beside the folders that become bundles: {shown}"


def _upper_folders(folder: str) -> list[str]:
    """The folders above a folder, from the directory itself on."""
    return ["", *sorted(parent_folders(folder))] if folder else []


def file_stamp(found: os.stat_result) -> FileStamp:
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def _local_file(path: str, name: str) -> LocalFile:
    found = stat_file(path)
    if not os.access(path, os.R_OK):
        raise Misused(f"{path} is not readable", hint="change its permissions or move it away")
    return LocalFile(name, path, file_stamp(found))


def _check_names(names: Sequence[str]) -> None:
    faulty = [(name, wrong) for name in names if (wrong := name_fault(name)) is not None]
    if faulty:
        name, wrong = faulty[0]
        more = f" (and {len(faulty) - 1} more)" if len(faulty) > 1 else ""
        raise Misused(f"a bundle cannot have the name {name!r}{more}: {wrong}", hint="rename it")


def find_collision(names: Iterable[str]) -> str | None:
    """Which names some file systems cannot hold side by side; None if they can hold all."""
    first: dict[str, str] = {}
    for name in names:
        twin = first.setdefault(unicodedata.normalize("NFC", name), name)
        if twin is not name:
            return f"{twin!r} and {name!r} differ only in their Unicode normalization"
    nested = sorted(name for name in first if parent_folders(name) & first.keys())
    if nested:
        return f"a file has the name of a folder of {', '.join(map(repr, nested[:_SHOWN]))}"
    return None
