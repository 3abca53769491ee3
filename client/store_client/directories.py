"""The files below a directory, by the names that they have there.

Links to files are followed, wherever they lead: their content is what is meant. Links to
directories are not, for they may lead in circles; each is told as a warning.
"""

import logging
import os
import stat
from collections.abc import Iterator

from store_client.errors import Misused

log = logging.getLogger(__name__)


def below(root: str) -> Iterator[tuple[str, str]]:
    """Path and name of each, in no order; folder by folder, so that depth costs no stack."""
    folders = [(root, "")]
    while folders:
        folder, prefix = folders.pop()
        for entry in _entries(folder):
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, f"{name}/"))
            elif entry.is_symlink() and entry.is_dir():
                log.warning("left out: %s is a link to a directory", entry.path)
            else:
                yield entry.path, name


def status_of(path: str) -> os.stat_result:
    """What the system says of a file; Misused when it cannot, or when it is something else."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise Misused(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise Misused(f"{path} is no file", hint="move it out of the directory")
    return found


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise Misused(f"cannot read the directory {folder}: {error.strerror or error}") from error
