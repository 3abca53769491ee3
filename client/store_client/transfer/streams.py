"""Read a file from its presigned URL in one stream, resumed where it ended."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx

from store_client.checksums import BLOCK
from store_client.errors import Damaged, Unreachable
from store_client.progress import TransferProgress
from store_client.transfer.connections import (
    BucketConnections,
    FailureQuota,
    RangeResponse,
    TransferFailure,
)
from store_client.transfer.engine import StopSignal


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file version in the store; `url` is its presigned URL, "" when none was requested yet."""

    uuid: str
    version: str
    name: str
    sha256: str
    size: int
    indexed: bool = False
    url: str = ""


class StreamSlots:
    """Limits the number of streams; one for each file, spare ones for large files."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = 0
        self._changed = threading.Condition()

    def acquire(self) -> None:
        with self._changed:
            self._waiting += 1
            while not self._free:
                self._changed.wait()
            self._waiting -= 1
            self._free -= 1

    def try_acquire(self) -> bool:
        """Acquire a slot that no file waits for; whether there was one."""
        with self._changed:
            if self._free <= self._waiting:
                return False
            self._free -= 1
            return True

    def release(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify()


EXPIRED = frozenset({400, 401, 403, 404, 410})
"""Statuses of buckets for an expired URL."""

_BUFFERS = threading.local()


class RangesUnsupported(Exception):
    """The server ignores Range and sends the whole file."""


class PresignedUrl:
    """The presigned URL of a file, renewed after it has expired."""

    def __init__(self, wanted: RemoteFile, ask: Callable[[RemoteFile], str]) -> None:
        self._wanted = wanted
        self._ask = ask
        self._lock = threading.Lock()
        self._url = wanted.url

    def current(self) -> str:
        """A URL that was not refused yet."""
        with self._lock:
            self._url = self._url or self._ask(self._wanted)
            return self._url

    def mark_refused(self, url: str) -> None:
        """Note that the bucket refused this URL."""
        with self._lock:
            if self._url == url:
                self._url = ""


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads one file from its bucket."""

    wire: BucketConnections
    source: PresignedUrl
    stop: StopSignal
    wanted: RemoteFile

    def read_blocks(
        self, start: int, end: int, *, exact: bool
    ) -> Generator[tuple[int, memoryview], None, None]:
        """Yield blocks of [start, end) with their offsets, each valid until the next.

        TransferFailure if fewer bytes arrive. A server that ignores ranges sends all from offset 0:
        RangesUnsupported if `exact`.
        """
        size = self.wanted.size
        url = self.source.current()
        with self.wire.get(url, start=start, end=None if end == size else end) as answer:
            self._check_response(answer, url, start)
            at = answer.start
            if exact and at != start:
                raise RangesUnsupported
            buffer = _thread_buffer()
            while at < end:
                self.stop.check()
                count = self._read_some(answer, buffer[: min(BLOCK, end - at)])
                if not count:
                    said = f"{self.wanted.name}: only {at} of {size} bytes arrived"
                    raise TransferFailure(Damaged(said))
                yield at, buffer[:count]
                at += count

    def _check_response(self, answer: RangeResponse, url: str, start: int) -> None:
        """TransferFailure unless the response has these bytes."""
        if answer.status not in (200, 206):
            if answer.status in EXPIRED:
                self.source.mark_refused(url)
            said = f"{self.wanted.name}: the bucket answers {answer.status}"
            raise TransferFailure(Unreachable(said), retry_after_s=answer.retry_after_s)
        if answer.total is not None and answer.total != self.wanted.size:
            said = (
                f"{self.wanted.name}: the bucket has {answer.total} bytes, not {self.wanted.size}"
            )
            raise TransferFailure(Damaged(said))
        if answer.start not in (0, start) or (answer.start != start and answer.status == 206):
            raise TransferFailure(
                Damaged(f"{self.wanted.name}: the bucket sent other bytes than requested")
            )

    def _read_some(self, answer: RangeResponse, buffer: memoryview) -> int:
        try:
            return answer.readinto(buffer)
        except httpx.TimeoutException as error:
            said = f"{self.wanted.name}: the bucket stopped sending"
            raise TransferFailure(Unreachable(said)) from error
        except (httpx.HTTPError, httpx.StreamError, ValueError) as error:
            # ValueError: another thread closed the connection.
            raise TransferFailure(
                Damaged(f"{self.wanted.name}: the connection broke ({error})")
            ) from error


def _thread_buffer() -> memoryview:
    found: memoryview | None = getattr(_BUFFERS, "block", None)
    if found is None:
        found = _BUFFERS.block = memoryview(bytearray(BLOCK))
    return found


def fetch_stream(
    reader: FileReader, file: BinaryIO, quota: FailureQuota, *, tell: TransferProgress
) -> str:
    """Fetch a file in one stream, resumed where it ended; its SHA-256."""
    growing = _GrowingFile(file, reader.wanted.size, tell)
    while growing.at < reader.wanted.size:
        try:
            found = reader.read_blocks(growing.at, reader.wanted.size, exact=False)
            with contextlib.closing(found) as blocks:
                for offset, block in blocks:
                    growing.add(offset, block)
                    quota.record_block(growing.at, last=growing.at == reader.wanted.size)
        except TransferFailure as trouble:
            quota.record_failure(trouble)
    return growing.digest.hexdigest()


def open_unbuffered(path: Path) -> BinaryIO:
    """Open a file unbuffered, created if missing."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666), "r+b", buffering=0)


_BINARY = getattr(os, "O_BINARY", 0)


class _GrowingFile:
    """A file being filled, and its digest."""

    def __init__(self, file: BinaryIO, size: int, tell: TransferProgress) -> None:
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
        """Append a block; offset 0 means that the server starts again."""
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
    """Write a whole block: an unbuffered file may take less at once."""
    while block:
        block = block[file.write(block) :]
