"""Whether there is room for what is to come, asked before it comes."""

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from store_client.errors import StoreError
from store_client.telling import size

KEPT_FREE = 16 * 1024 * 1024
"""What is not counted: directories, and what others write meanwhile."""


def free_bytes(path: Path) -> int:
    """What may still be written where a directory is, or will be."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


class Space:
    """Of one directory; what was promised and has not come yet is counted."""

    def __init__(self, directory: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
        self._directory = directory
        self._free = free
        self._lock = threading.Lock()
        self._coming: dict[str, int] = {}

    def claim(self, needed: Mapping[str, int]) -> None:
        """Promise bytes of contents, each once; StoreError with numbers when there is no room."""
        with self._lock:
            coming = {**self._coming, **needed}
            wanted, free = sum(coming.values()), self._free(self._directory)
            if sum(needed.values()) and wanted + KEPT_FREE > free:
                raise StoreError(
                    f"{size(wanted)} are to come to {self._directory.absolute()}, and"
                    f" {size(free)} are free",
                    hint="make room, fetch fewer files, or run the command on another disk",
                )
            self._coming = coming

    def came(self, content: str) -> None:
        """It is there now, and takes its room."""
        with self._lock:
            self._coming.pop(content, None)
