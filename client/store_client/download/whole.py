"""A file that comes in one stream: hashed as it is written, and taken up where it ended."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from store_client.checksums import BLOCK
from store_client.download.quota import Quota, Trouble
from store_client.download.reading import Reader
from store_client.telling import Tell


def bring(reader: Reader, file: BinaryIO, quota: Quota, *, tell: Tell) -> str:
    """Fill an unbuffered file, or bytes in memory; the SHA-256 of what it holds then."""
    growing = _Growing(file, reader.wanted.size, tell)
    while growing.at < reader.wanted.size:
        try:
            found = reader.blocks(growing.at, reader.wanted.size, exact=False)
            with contextlib.closing(found) as blocks:
                for offset, block in blocks:
                    growing.add(offset, block)
                    quota.block(growing.at, last=growing.at == reader.wanted.size)
        except Trouble as trouble:
            quota.failure(trouble)
    return growing.digest.hexdigest()


def opened(path: Path) -> BinaryIO:
    """The file at `path`, unbuffered, made if it is missing."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666), "r+b", buffering=0)


_BINARY = getattr(os, "O_BINARY", 0)


class _Growing:
    """What there is of the file, and its digest."""

    def __init__(self, file: BinaryIO, size: int, tell: Tell) -> None:
        self._file = file
        self._tell = tell
        self.digest = hashlib.sha256()
        self.at = 0
        if file.seek(0, os.SEEK_END) > size:
            file.truncate(0)
        file.seek(0)
        while block := file.read(BLOCK):
            self.digest.update(block)
            self.at += len(block)
        tell.bytes(self.at)

    def add(self, offset: int, block: memoryview) -> None:
        """The next block; or the first again, when the server begins anew."""
        if offset != self.at:
            self._tell.bytes(offset - self.at)
            self._file.seek(offset)
            self._file.truncate()
            self.digest = hashlib.sha256()
            self.at = offset
        write_all(self._file, block)
        self.digest.update(block)
        self.at += len(block)
        self._tell.bytes(len(block))


def write_all(file: BinaryIO, block: memoryview) -> None:
    """A file without a buffer may take less than it is given."""
    while block:
        block = block[file.write(block) :]
