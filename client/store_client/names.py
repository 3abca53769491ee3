"""Names of files in bundles and areas, and where they lie on this machine.

What a name may be is the store's rule; that no name leads out of its folder is ours, whatever the
store says. What cannot be a name on Windows is percent-escaped there.
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


def fault(name: str) -> str | None:
    """What is wrong with a name, None when nothing is; the store's own rule."""
    if not name:
        return "a name must not be empty"
    if name.startswith(("/", "~/")) or "\\" in name:
        return "a name must be relative, without a leading '/' or '~/' and without a backslash"
    if _CONTROL.search(name):
        return "a name must not hold control characters"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a name must not have empty, '.' or '..' as a segment"
    return "a name is too long" if len(name.encode()) > _MAX_BYTES else None


def local_name(name: str, *, windows: bool = WINDOWS) -> str:
    """How a good name is spelled on this machine; no two names are spelled the same."""
    return "/".join(_on_windows(part) for part in name.split("/")) if windows else name


def safe_path(root: Path, name: str, *, windows: bool = WINDOWS) -> Path:
    """Where a file of this name lies below `root`; Damaged when the name is none, Misused when a
    symbolic link lies in the way."""
    wrong = fault(name)
    if wrong is not None:
        raise Damaged(f"the name {name!r} cannot be used: {wrong}")
    path = root
    for part in local_name(name, windows=windows).split("/"):
        path = path / part
        if path.is_symlink():
            raise Misused(
                f"{path} is a symbolic link; nothing is written through it",
                hint="remove it, or choose another directory",
            )
    return path


class Places:
    """The paths of one folder's files. Where case makes no difference, the later one of two names
    that differ in nothing else, or in how marks are written, gets an addition."""

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
        """Where the file lies; the same for the same name."""
        with self._lock:
            return safe_path(self.root, self._distinct(name), windows=self._windows)

    def _distinct(self, name: str) -> str:
        if not self._insensitive or fault(name) is not None:
            return name
        for candidate in (name, _with_addition(name)):
            key = _alike(candidate)
            parents = _folders_of(key)
            taken = self._files.get(key, name) != name or key in self._folders
            if not taken and not parents & self._files.keys():
                self._files[key] = name
                self._folders |= parents
                return candidate
        raise Damaged(f"there is no place for {name!r} beside the other names")


def _alike(name: str) -> str:
    """The same for names that a file system without case takes for one: those of Apple's take
    letters with marks for the same, however they are written."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _on_windows(part: str) -> str:
    part = _ESCAPED.sub("%25", part)
    part = _NOT_ON_WINDOWS.sub(lambda found: _escape(found[0]), part)
    if part[-1] in ". ":
        part = part[:-1] + _escape(part[-1])
    if _DEVICE.fullmatch(part):
        part = _escape(part[0]) + part[1:]
    return part


def _escape(character: str) -> str:
    return f"%{ord(character):02X}"


def _with_addition(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.partition(".")
    addition = hashlib.sha256(name.encode()).hexdigest()[:8]
    if folder:
        folder = f"{folder}~{addition}"
    return f"{folder}{slash}{stem}~{addition}{dot}{ending}"


def _folders_of(key: str) -> set[str]:
    parts = key.split("/")[:-1]
    return {"/".join(parts[: count + 1]) for count in range(len(parts))}
