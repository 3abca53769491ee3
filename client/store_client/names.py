"""Names of files in bundles and areas, and where they lie on this machine.

The store decides which names are valid; the client ensures that none leads out of its folder. Names
that Windows forbids are percent-escaped there.
"""

import hashlib
import os
import re
import sys
import threading
import unicodedata
from pathlib import Path

from store_client.errors import Damaged, Misused

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_MAX_BYTES = 4096
_ESCAPED = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])\s*(\..*)?", re.I)
WINDOWS = os.name == "nt"
INSENSITIVE = sys.platform in ("win32", "darwin")
"""Whether file systems here usually take `a` and `A` for the same."""


def name_fault(name: str) -> str | None:
    """What is wrong with a file name, by the store's rule; None if it is valid."""
    if not name:
        return "a name must not be empty"
    if name.startswith(("/", "~/")) or "\\" in name:
        return "a name must be relative, without a leading '/' or '~/' and without a backslash"
    if _CONTROL.search(name):
        return "a name must not contain control characters"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a name must not have empty, '.' or '..' as a segment"
    return "a name is too long" if len(name.encode()) > _MAX_BYTES else None


def local_name(name: str, *, windows: bool = WINDOWS) -> str:
    """The spelling of a name on this machine; distinct names stay distinct."""
    return "/".join(_escape_windows_part(part) for part in name.split("/")) if windows else name


def safe_path(root: Path, name: str, *, windows: bool = WINDOWS) -> Path:
    """The path of a name below `root`; Damaged if invalid, Misused if a symlink is in the way."""
    wrong = name_fault(name)
    if wrong is not None:
        raise Damaged(f"the name {name!r} cannot be used: {wrong}")
    path = root / local_name(name, windows=windows)
    reject_links(root, path)
    return path


def reject_links(root: Path, path: Path) -> None:
    """Misused if a path below `root`, or a folder on the way to it, is a symbolic link."""
    current = root
    for part in path.relative_to(root).parts:
        current = current / part
        if current.is_symlink():
            raise Misused(
                f"{current} is a symbolic link; nothing is written through it",
                hint="remove it, or choose another directory",
            )


class LocalPaths:
    """The paths of files in one folder; names that differ only in case get a suffix."""

    def __init__(
        self, root: Path, *, windows: bool = WINDOWS, insensitive: bool = INSENSITIVE
    ) -> None:
        self.root = root
        self._windows = windows
        self._insensitive = insensitive
        self._files: dict[str, str] = {}
        self._folders: set[str] = set()
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        """The path of a name; the same for the same name."""
        with self._lock:
            return safe_path(self.root, self._distinct_name(name), windows=self._windows)

    def _distinct_name(self, name: str) -> str:
        if not self._insensitive or name_fault(name) is not None:
            return name
        for candidate in (name, _disambiguate(name)):
            key = fold_name(candidate)
            parents = parent_folders(key)
            taken = self._files.get(key, name) != name or key in self._folders
            if not taken and not parents & self._files.keys():
                self._files[key] = name
                self._folders |= parents
                return candidate
        raise Damaged(f"there is no valid local name for {name!r} next to the other names")


def fold_name(name: str) -> str:
    """Equal for names that a case-insensitive file system treats as equal."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _escape_windows_part(part: str) -> str:
    part = _ESCAPED.sub("%25", part)
    part = _NOT_ON_WINDOWS.sub(lambda found: _percent_escape(found[0]), part)
    if part[-1] in ". ":
        part = part[:-1] + _percent_escape(part[-1])
    if _DEVICE.fullmatch(part):
        part = _percent_escape(part[0]) + part[1:]
    return part


def _percent_escape(character: str) -> str:
    return f"%{ord(character):02X}"


def _disambiguate(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.partition(".")
    addition = hashlib.sha256(name.encode()).hexdigest()[:8]
    if folder:
        folder = f"{folder}~{addition}"
    return f"{folder}{slash}{stem}~{addition}{dot}{ending}"


def parent_folders(key: str) -> set[str]:
    """The names of all folders that a name lies in."""
    parts = key.split("/")[:-1]
    return {"/".join(parts[: count + 1]) for count in range(len(parts))}
