"""The four checksums of a file, computed in the one pass over its bytes that a transfer makes.

MD5, the slowest, has its own thread; SHA-1, SHA-256 and CRC-32C share another. A file sent in parts
gets the MD5 of each part from the thread that sends it (`md5_digest`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread

import google_crc32c

MB = 1024 * 1024
BLOCK = MB
"""Bytes of one block of every stream."""
ETAG_CHUNK = 64 * MB
"""Chunks of the entity tag (File: `store-s3_etag`) …"""
ETAG_CHUNK_UNTIL = 640_000 * MB
"""… of files of at most this size; beyond it, chunks are made as large as needed …"""
ETAG_MAX_PARTS = 10_000
"""… to be at most so many."""
THREADS_FROM = 4 * MB
"""Below, starting threads costs more than it saves."""
BLOCKS_AHEAD = 8
"""Blocks that the slower thread may lag behind: what bounds the memory."""

METADATA_PREFIX = "store-"
"""What the names of checksums begin with where they are an object's metadata."""


@dataclass(frozen=True, slots=True)
class FileChecksums:
    """The four checksums in lower-case hex; `s3_etag` may end with `-<parts>`."""

    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str

    def metadata(self) -> dict[str, str]:
        """The checksums as object metadata, as the store expects them of a source."""
        return {f"{METADATA_PREFIX}{name}": value for name, value in asdict(self).items()}


def part_size(size: int) -> int:
    """Bytes of one part in the entity tag of a file of this size."""
    if size <= ETAG_CHUNK_UNTIL:
        return ETAG_CHUNK
    return -(-size // (ETAG_MAX_PARTS * MB)) * MB


def md5_digest(data: bytes) -> bytes:
    """The MD5 of one part."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combine_etags(parts: Sequence[bytes], size: int) -> str:
    """The multipart ETag of a file whose parts have these MD5s."""
    if size < ETAG_CHUNK:
        return parts[0].hex()
    return f"{md5_digest(b''.join(parts)).hex()}-{len(parts)}"


class SequentialHasher:
    """SHA-1, SHA-256 and CRC-32C of consecutive blocks."""

    def __init__(self) -> None:
        self._sha1 = hashlib.sha1(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self._crc = 0

    def update(self, block: bytes) -> None:
        """Add the next block."""
        self._sha1.update(block)
        self._sha256.update(block)
        self._crc = google_crc32c.extend(self._crc, block)

    def finish(self, tag: str) -> FileChecksums:
        """All four checksums, with this entity tag."""
        sha1, sha256 = self._sha1.hexdigest(), self._sha256.hexdigest()
        return FileChecksums(sha1, sha256, f"{self._crc:08x}", tag)


class FileHasher:
    """Hashes one file of `size` bytes in one pass; a wrong size gives a wrong entity tag."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._etag = EtagHasher(part_size(size))
        self._others = SequentialHasher()
        self.bytes_read = 0

    def hash_blocks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each block while it is hashed; all are hashed at the end."""
        lanes: list[HashThread] = []
        if self._size > THREADS_FROM:
            lanes = [HashThread(self._etag.update), HashThread(self._others.update)]
        try:
            for block in blocks:
                self.bytes_read += len(block)
                self._update(block, lanes)
                yield block
        finally:
            for lane in lanes:
                lane.finish()
        for lane in lanes:
            lane.raise_error()

    def checksums(self) -> FileChecksums:
        """The checksums, after `hash_blocks` has ended."""
        return self._others.finish(self._etag.tag(self.bytes_read))

    def _update(self, block: bytes, lanes: list["HashThread"]) -> None:
        if not lanes:
            self._etag.update(block)
            self._others.update(block)
        for lane in lanes:
            lane.put(block)


def hash_bytes(data: bytes) -> FileChecksums:
    hashing = FileHasher(len(data))
    for _ in hashing.hash_blocks([data]):
        pass
    return hashing.checksums()


class EtagHasher:
    """The multipart ETag of consecutive blocks; below 64 MB it is the plain MD5."""

    def __init__(self, part: int) -> None:
        self._part = part
        self._left = part
        self._done: list[bytes] = []
        self._current = hashlib.md5(usedforsecurity=False)

    def update(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            if not self._left:
                self._done.append(self._current.digest())
                self._current, self._left = hashlib.md5(usedforsecurity=False), self._part
            head, view = view[: self._left], view[self._left :]
            self._current.update(head)
            self._left -= len(head)

    def tag(self, size: int) -> str:
        return combine_etags([*self._done, self._current.digest()], size)


class HashThread:
    """A thread that hashes blocks in order, at most BLOCKS_AHEAD behind."""

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self._update = update
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._room = BoundedSemaphore(BLOCKS_AHEAD)
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="hashing", daemon=True)
        self._thread.start()

    def put(self, block: bytes) -> None:
        """Add a block; waits if the thread is too far behind."""
        self._room.acquire()
        self._queue.put(block)

    def finish(self) -> None:
        """Wait until all blocks are hashed."""
        self._queue.put(None)
        self._thread.join()

    def raise_error(self) -> None:
        if self._error:
            raise self._error

    def _run(self) -> None:
        while (block := self._queue.get()) is not None:
            try:
                if not self._error:
                    self._update(block)
            except BaseException as error:  # kept for the caller, who must not block meanwhile
                self._error = error
            self._room.release()
