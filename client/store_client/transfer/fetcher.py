"""Fetch one file into the cache, large files in parallel ranges, and verify its digest.

The progress of each part is one number, rewritten in place. A power cut may leave it wrong: the
digest of the whole file decides.

Parts fail as if they were fetched one after another: each has its own quota, and the error is that
of the first failed part.
"""

import contextlib
import hashlib
import io
import logging
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from store_client.checksums import BLOCK, MB
from store_client.errors import Damaged, name_os_errors
from store_client.progress import TransferProgress
from store_client.transfer import streams
from store_client.transfer.cache import SHARED_FROM, ContentCache
from store_client.transfer.connections import BucketConnections, FailureQuota, TransferFailure
from store_client.transfer.engine import Stopped, StopSignal
from store_client.transfer.streams import (
    FileReader,
    PresignedUrl,
    RangesUnsupported,
    RemoteFile,
    StreamSlots,
    write_all,
)

PART_SIZE = 32 * MB
"""Bytes of one part: a stream takes one after the other."""

_MARK = b"store-parts-1\n"
_NUMBER = struct.Struct("<Q")


class PartMap:
    """Progress of the parts of one file, in a file beside it; reset if it does not match."""

    def __init__(self, path: Path, size: int, *, part: int = PART_SIZE) -> None:
        self.size = size
        self.part = part
        self.count = -(-size // part)
        self._lock = threading.Lock()
        kept = _read_map(path, self)
        self.done = [0] * self.count if kept is None else kept
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        if kept is None:
            self._file.truncate(0)
            self._file.write(_map_header(size, part) + b"".join(map(_NUMBER.pack, self.done)))

    def length(self, number: int) -> int:
        """Bytes of a part; the last may be shorter."""
        return min(self.part, self.size - number * self.part)

    def is_complete(self, number: int) -> bool:
        return self.done[number] >= self.length(number)

    def advance(self, number: int, count: int) -> None:
        """Record further bytes of a part."""
        with self._lock:
            self.done[number] += count
            self._file.seek(len(_map_header(0, 0)) + number * _NUMBER.size)
            self._file.write(_NUMBER.pack(self.done[number]))

    def contiguous_bytes(self) -> int:
        """Bytes from the start without a gap."""
        for number, done in enumerate(self.done):
            if done < self.length(number):
                return number * self.part + done
        return self.size

    def close(self) -> None:
        self._file.close()


def _map_header(size: int, part: int) -> bytes:
    return _MARK + _NUMBER.pack(size) + _NUMBER.pack(part)


def _read_map(path: Path, parts: PartMap) -> list[int] | None:
    """Read the recorded progress; None if it is of another file."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    head = _map_header(parts.size, parts.part)
    if not found.startswith(head) or len(found) != len(head) + parts.count * _NUMBER.size:
        return None
    done = [number for (number,) in _NUMBER.iter_unpack(found[len(head) :])]
    good = all(count <= parts.length(number) for number, count in enumerate(done))
    return done if good else None


LARGE_FROM = 64 * MB
"""Smaller files come in one stream."""
ALL_PARTS = -1
"""Stands for the number of a part in failures of the file as a whole."""


def _set_file_size(path: Path, size: int) -> bool:
    """Extend a file to its final size; whether it had that already."""
    with streams.open_unbuffered(path) as file:
        before = os.fstat(file.fileno()).st_size
        file.truncate(size)
    return before == size


class _PartFetcher:
    """Fetches one file in parallel parts, by several streams."""

    def __init__(
        self, shared: "FileFetcher", reader: FileReader, path: Path, parts: PartMap
    ) -> None:
        self._shared, self._reader, self._path, self._parts = shared, reader, path, parts
        self._open = [number for number in range(parts.count) if not parts.is_complete(number)]
        self._open.reverse()
        self._changed = threading.Condition()
        self._streams: list[threading.Thread] = []
        self._failures: dict[int, BaseException] = {}
        self._digest = hashlib.sha256()

    def run(self) -> str:
        """The digest of the complete file; raises the error of the first failed part.

        RangesUnsupported if the server sends no ranges.
        """
        hashing = threading.Thread(target=self._guard, args=(self._hash_file,), daemon=True)
        hashing.start()
        self._guard(self._run_stream)
        for stream in self._streams:
            stream.join()
        hashing.join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return self._digest.hexdigest()

    def _guard(self, work: Callable[[], None], part: int = ALL_PARTS) -> None:
        """Run `work`; record its error as a failure of this part."""
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._failures.setdefault(part, error)
                self._changed.notify_all()

    def _run_stream(self) -> None:
        """Fetch one part after another; start further streams while slots are free."""
        with open(self._path, "r+b", buffering=0) as file:
            while (number := self._next_part()) is not None:
                self._start_streams()
                self._guard(partial(self._fetch_part, file, number), number)

    def _run_extra_stream(self) -> None:
        """Fetch parts in a spare slot, released after each part."""
        held = True
        try:
            with open(self._path, "r+b", buffering=0) as file:
                while held and (number := self._next_part()) is not None:
                    self._guard(partial(self._fetch_part, file, number), number)
                    self._shared.slots.release()
                    held = self._shared.slots.try_acquire()
        finally:
            if held:
                self._shared.slots.release()

    def _start_streams(self) -> None:
        while len(self._open) > 0 and self._shared.slots.try_acquire():
            stream = threading.Thread(
                target=self._guard, args=(self._run_extra_stream,), daemon=True
            )
            self._streams.append(stream)
            stream.start()

    def _next_part(self) -> int | None:
        with self._changed:
            return self._open.pop() if self._open and not self._failures else None

    def _fetch_part(self, file: BinaryIO, number: int) -> None:
        """Fetch the missing bytes of a part."""
        parts, quota = self._parts, self._shared.new_quota()
        first, end = number * parts.part, number * parts.part + parts.length(number)
        file.seek(first + parts.done[number])
        while not parts.is_complete(number):
            self._check_earlier_parts(number)
            try:
                found = self._reader.read_blocks(first + parts.done[number], end, exact=True)
                with contextlib.closing(found) as blocks:
                    for _, block in blocks:
                        self._write_block(file, number, block)
                        quota.record_block(parts.done[number], last=parts.is_complete(number))
            except TransferFailure as trouble:
                quota.record_failure(trouble)

    def _check_earlier_parts(self, number: int) -> None:
        """Raise Stopped if an earlier part failed."""
        if any(failed < number for failed in tuple(self._failures)):
            raise Stopped

    def _write_block(self, file: BinaryIO, number: int, block: memoryview) -> None:
        self._check_earlier_parts(number)
        write_all(file, block)
        with self._changed:
            self._parts.advance(number, len(block))
            self._changed.notify_all()
        self._shared.tell.bytes(len(block))

    def _hash_file(self) -> None:
        """Hash the contiguous bytes behind the streams."""
        at, buffer = 0, memoryview(bytearray(BLOCK))
        with open(self._path, "rb", buffering=0) as file:
            while at < self._parts.size:
                with self._changed:
                    while not self._failures and (there := self._parts.contiguous_bytes()) == at:
                        self._changed.wait()
                    if self._failures:
                        return
                while at < there:
                    count = file.readinto(buffer[: min(BLOCK, there - at)])
                    self._digest.update(buffer[:count])
                    at += count


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileFetcher:
    """What all files of one download share; `url_of` requests a new presigned URL."""

    cache: ContentCache
    wire: BucketConnections
    url_of: Callable[[RemoteFile], str]
    new_quota: Callable[[], FailureQuota]
    tell: TransferProgress
    stop: StopSignal
    slots: StreamSlots
    large_from: int = LARGE_FROM
    part: int = PART_SIZE

    def fetch(self, wanted: RemoteFile) -> bool:
        """Fetch a file into the cache; whether it was missing.

        Raises the last error when the failure quota is used up; a later run resumes.
        """
        self.stop.check()
        if self.cache.has(wanted.sha256, wanted.size):
            return False
        with (
            name_os_errors(f"write {self.cache.root}"),
            self.cache.lock_content(wanted.sha256, wanted.size, self.stop.pause),
        ):
            # Another thread or process may have fetched it meanwhile.
            if self.cache.has(wanted.sha256, wanted.size):
                return False
            self.slots.acquire()
            reader = FileReader(self.wire, PresignedUrl(wanted, self.url_of), self.stop, wanted)
            try:
                small = wanted.size < SHARED_FROM
                (self._fetch_small if small else self._fetch_large)(reader)
            finally:
                self.slots.release()
        return True

    def add(self, wanted: RemoteFile, data: bytes) -> bool:
        """Store verified bytes that came with others; whether they were missing."""
        self.stop.check()
        with (
            name_os_errors(f"write {self.cache.root}"),
            self.cache.lock_content(wanted.sha256, wanted.size, self.stop.pause),
        ):
            if self.cache.has(wanted.sha256, wanted.size):
                return False
            self.cache.add(memoryview(data), wanted.sha256)
        self.tell.bytes(len(data))
        return True

    def _fetch_small(self, reader: FileReader) -> None:
        """Fetch in memory: an interrupted download leaves nothing behind."""
        wanted, quota = reader.wanted, self.new_quota()
        while True:
            file = io.BytesIO()
            digest = streams.fetch_stream(reader, file, quota, tell=self.tell)
            if digest == wanted.sha256:
                self.cache.add(file.getbuffer(), wanted.sha256)
                return
            self._record_damage(wanted, digest, quota)

    def _fetch_large(self, reader: FileReader) -> None:
        """Fetch into a file that a later run resumes."""
        wanted, quota = reader.wanted, self.new_quota()
        temporary = self.cache.part_path(wanted.sha256)
        try:
            while (digest := self._fill(reader, temporary, quota)) != wanted.sha256:
                temporary.unlink()
                self._record_damage(wanted, digest, quota)
            self.cache.adopt(temporary, wanted.sha256)
        finally:
            if temporary.exists() and not temporary.stat().st_size:
                temporary.unlink()

    def _record_damage(self, wanted: RemoteFile, digest: str, quota: FailureQuota) -> None:
        log.warning("%s arrived damaged and is fetched again", wanted.name)
        self.tell.bytes(-wanted.size)
        said = f"{wanted.name} arrived with the SHA-256 {digest}, not {wanted.sha256}"
        quota.record_failure(TransferFailure(Damaged(said)))

    def _fill(self, reader: FileReader, temporary: Path, quota: FailureQuota) -> str:
        """Fill the file by one stream or several; its digest."""
        wanted = reader.wanted
        map_path = self.cache.partial_path(wanted.sha256, "parts")
        if wanted.size >= self.large_from:
            with contextlib.suppress(RangesUnsupported):
                digest = self._fetch_parts(reader, temporary, map_path)
                map_path.unlink()
                return digest
        if map_path.exists():
            # The length of a file that came in parts does not tell how much is there.
            temporary.unlink(missing_ok=True)
            map_path.unlink()
        with streams.open_unbuffered(temporary) as file:
            return streams.fetch_stream(reader, file, quota, tell=self.tell)

    def _fetch_parts(self, reader: FileReader, temporary: Path, map_path: Path) -> str:
        if not _set_file_size(temporary, reader.wanted.size):
            map_path.unlink(missing_ok=True)
        with contextlib.closing(PartMap(map_path, reader.wanted.size, part=self.part)) as parts:
            self.tell.bytes(sum(parts.done))
            try:
                return _PartFetcher(self, reader, temporary, parts).run()
            except RangesUnsupported:
                self.tell.bytes(-sum(parts.done))
                raise
