"""The four checksums of a file, computed in the one pass over its bytes that a transfer makes.

MD5, the slowest, has a thread of its own; SHA-1, SHA-256 and CRC-32C share another. Whoever sends a
file in parts has the MD5 of each part from elsewhere (`md5`), and needs only the others in order.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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

PREFIX = "store-"
"""What the names of checksums begin with where they are an object's metadata."""


@dataclass(frozen=True, slots=True)
class Checksums:
    """Lower-case hexadecimal; `s3_etag` may end with `-<parts>`."""

    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str

    def metadata(self) -> dict[str, str]:
        """As the object metadata that the store wants of a source (put_file)."""
        return {f"{PREFIX}{name}": value for name, value in asdict(self).items()}


def part_size(size: int) -> int:
    """Bytes of one part of the entity tag of a file of this size."""
    if size <= ETAG_CHUNK_UNTIL:
        return ETAG_CHUNK
    return -(-size // (ETAG_MAX_PARTS * MB)) * MB


def md5(data: bytes) -> bytes:
    """What one part adds to an entity tag."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def etag(parts: Sequence[bytes], size: int) -> str:
    """The entity tag of a file whose parts have these MD5s."""
    if size < ETAG_CHUNK:
        return parts[0].hex()
    return f"{md5(b''.join(parts)).hex()}-{len(parts)}"


class InOrder:
    """SHA-1, SHA-256 and CRC-32C of bytes that come in order; together they cost what MD5 does."""

    def __init__(self) -> None:
        self._sha1 = hashlib.sha1(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self._crc = 0

    def update(self, block: bytes) -> None:
        """Take the next bytes in."""
        self._sha1.update(block)
        self._sha256.update(block)
        self._crc = google_crc32c.extend(self._crc, block)

    def checksums(self, tag: str) -> Checksums:
        """All four, with the entity tag that was found otherwise."""
        sha1, sha256 = self._sha1.hexdigest(), self._sha256.hexdigest()
        return Checksums(sha1, sha256, f"{self._crc:08x}", tag)


class Hashing:
    """One pass over one file of `size` bytes; a wrong size makes a wrong entity tag, no error."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._etag = _Etag(part_size(size))
        self._others = InOrder()
        self.read = 0

    def over(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each block, hashed or being hashed; all are when it ends."""
        lanes: list[Lane] = []
        if self._size > THREADS_FROM:
            lanes = [Lane(self._etag.update), Lane(self._others.update)]
        try:
            for block in blocks:
                self.read += len(block)
                self._hash(block, lanes)
                yield block
        finally:
            for lane in lanes:
                lane.finish()
        for lane in lanes:
            lane.check()

    def result(self) -> Checksums:
        """The checksums, once `over` has ended."""
        return self._others.checksums(self._etag.tag(self.read))

    def _hash(self, block: bytes, lanes: list["Lane"]) -> None:
        if not lanes:
            self._etag.update(block)
            self._others.update(block)
        for lane in lanes:
            lane.put(block)


def compute(blocks: Iterable[bytes], size: int) -> Checksums:
    """The checksums of bytes that nobody else wants."""
    hashing = Hashing(size)
    for _ in hashing.over(blocks):
        pass
    return hashing.result()


class _Etag:
    """MD5 of each part; of a file below 64 MB the one MD5 is the tag itself."""

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
        return etag([*self._done, self._current.digest()], size)


class Lane:
    """A thread that takes blocks in order, at most BLOCKS_AHEAD behind."""

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self._update = update
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._room = BoundedSemaphore(BLOCKS_AHEAD)
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="hashing", daemon=True)
        self._thread.start()

    def put(self, block: bytes) -> None:
        """The next block; waits when too many do."""
        self._room.acquire()
        self._queue.put(block)

    def finish(self) -> None:
        """Wait for all of them."""
        self._queue.put(None)
        self._thread.join()

    def check(self) -> None:
        """Raise what went wrong in the thread."""
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
