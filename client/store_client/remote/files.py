"""File objects of files in the store: read-only, seekable, buffered."""

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from store_client.remote.content import RemoteContent
from store_client.transfer.streams import RemoteFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 64 * 1024
LEAST_AHEAD = 256 * 1024
MOST_AHEAD = 8 * 1024 * 1024
"""Bytes requested at once: few after a jump, twice as many each time that reading continues."""


class RemoteRawFile(io.RawIOBase):
    """A file in the store, unbuffered but for what is read ahead."""

    def __init__(self, content: RemoteContent, on_close: Callable[[], None]) -> None:
        self._content = content
        self._on_close = on_close
        self._at = 0
        self._ahead = LEAST_AHEAD // 2
        self._window = memoryview(b"")
        self._window_start = 0

    @property
    def file(self) -> RemoteFile:
        """The file version."""
        return self._content.file

    @property
    def name(self) -> str:
        """The name in the bundle, or uuid and version."""
        return self.file.name

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The position."""
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, also beyond the end; ValueError before the beginning."""
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.size}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence: {whence}")
        if base + offset < 0:
            raise ValueError(f"negative seek position: {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill a buffer; fewer bytes at the end of what was read ahead, 0 at the end."""
        self._check_open()
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self._content.size - self._at)]
        inside = self._at - self._window_start
        if view and not 0 <= inside < len(self._window):
            if len(view) >= MOST_AHEAD:
                self._content.read_into(self._at, view)
                self._at += len(view)
                return len(view)
            self._read_ahead(len(view))
            inside = 0
        piece = self._window[inside : inside + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        self._check_open()
        found = self._content.read(self._at, self._content.size)
        self._at += len(found)
        return found

    def close(self) -> None:
        """Close it, and the connections that were opened for it."""
        if not self.closed:
            super().close()
            self._window = memoryview(b"")
            self._on_close()

    def _read_ahead(self, wanted: int) -> None:
        goes_on = self._at == self._window_start + len(self._window)
        self._ahead = min(self._ahead * 2, MOST_AHEAD) if goes_on else LEAST_AHEAD
        found = self._content.read(self._at, self._at + max(wanted, self._ahead))
        self._window, self._window_start = memoryview(found), self._at

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class RemoteBufferedFile(io.BufferedReader):
    """A file in the store, open for bytes."""

    def __init__(self, raw: RemoteRawFile) -> None:
        super().__init__(raw, BUFFER)
        self.file = raw.file
        """Uuid, version, name, size and SHA-256 of what is read."""
