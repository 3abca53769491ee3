"""One local file on its way out: its bytes, exactly as many as were announced, told as they go.

Hashing is checksums.py's; where the bytes go is known to whoever iterates.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from store_client.checksums import BLOCK
from store_client.errors import Damaged, Misused, StoreError


class Stopped(StoreError):
    """Somebody asked that the work stops."""

    def __init__(self) -> None:
        super().__init__("stopped", hint="the same command goes on where this one was")


class Changed(Damaged):
    """A local file changed while it was read: no good to send that again at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} changed while it was read", hint="send it once it is whole")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A local file, and what it is called in the area."""

    path: Path
    name: str
    content_type: str
    size: int


def read(path: Path, size: int, *, stop: Event) -> Iterator[bytes]:
    """Its bytes; Changed when it has no longer the size that was announced."""
    left = size
    try:
        with path.open("rb") as file:
            while left and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                # Before the last bytes are out: what is not all of them arrives nowhere.
                if not left:
                    _check(file, path, size=size)
                if stop.is_set():
                    raise Stopped
                yield block
            _check(file, path, size=size)
    except OSError as error:
        raise Misused(f"cannot read {path}: {error.strerror or error}") from error
    if left:
        raise Changed(path)


def _check(file: BinaryIO, path: Path, *, size: int) -> None:
    if os.fstat(file.fileno()).st_size != size:
        raise Changed(path)
