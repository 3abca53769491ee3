"""Compute the four checksums of a file, with the multipart ETag, and compare declared ones.

`ChecksumHasher.hash_blocks` yields the very buffers that it hashes, so the caller uploads those.
Large inputs are hashed by two threads, MD5 in one and the others in the second;
hashlib and the CRC library release the interpreter's lock while they work.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Protocol

from pipelines.limits import ETAG_CHUNK, ETAG_CHUNK_MAX_SIZE, ETAG_MAX_PARTS, MB
from storage import crc32c
from storage.errors import SourceChanged, TooLarge, Unprocessable
from storage.model import CHECKSUM_NAMES, Checksums

METADATA_PREFIX = "store-"
"""Prefix of the metadata names that declare checksums."""

THREADS_MIN_BYTES = 4 * MB
"""Size below which starting threads costs more than it saves."""
BLOCKS_AHEAD = 8
"""Blocks that the slower thread may lag behind; bounds the memory."""

_PATTERNS = {
    "sha1": re.compile(r"[0-9a-f]{40}"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "crc32c": re.compile(r"[0-9a-f]{8}"),
    "s3_etag": re.compile(r"[0-9a-f]{32}(?:-[1-9][0-9]{0,4})?"),
}


@dataclass(frozen=True, slots=True)
class ComputedChecksums:
    """Size and checksums of a file; at exactly 64 MB the ETag has a second accepted form."""

    size: int
    checksums: Checksums
    alternate_etag: str | None = None


def part_size(size: int) -> int:
    """Return the part size, in bytes, of the ETag of a file (File: `store-s3_etag`)."""
    if size <= ETAG_CHUNK_MAX_SIZE:
        return ETAG_CHUNK
    return -(-size // (ETAG_MAX_PARTS * MB)) * MB


def split_parts(blocks: Iterable[bytes], size: int) -> Iterator[Iterator[bytes]]:
    """Split blocks into parts of `size` bytes; read each part to its end before the next."""
    rest = filter(None, blocks)
    pending = [block for block in (next(rest, b""),) if block]
    while pending:
        yield _take_part(pending, rest, size)


def parse_declared(
    metadata: Mapping[str, str], prefixes: Iterable[str] = (METADATA_PREFIX,)
) -> Checksums:
    """Return the declared checksums in lower case; raise Unprocessable if one is missing or bad."""
    lower = {name.lower(): value for name, value in metadata.items()}
    known_prefixes = [prefix.lower() for prefix in prefixes]
    declared: dict[str, str | None] = {}
    for field in CHECKSUM_NAMES:
        # The first prefix that has a value.
        values_by_prefix = (lower.get(prefix + field) for prefix in known_prefixes)
        declared[field] = next(filter(None, values_by_prefix), None)
    missing = {
        f"{METADATA_PREFIX}{field}": ["is missing"]
        for field in CHECKSUM_NAMES
        if declared[field] is None
    }
    values = {field: value.lower() for field, value in declared.items() if value is not None}
    invalid = {
        f"{METADATA_PREFIX}{field}": [f"is not a {field}"]
        for field, value in values.items()
        if not _PATTERNS[field].fullmatch(value)
    }
    if missing or invalid:
        code = "missing_checksum" if missing else "invalid_checksum"
        problem = "; ".join(f"{name} {why[0]}" for name, why in (missing | invalid).items())
        raise Unprocessable(f"the source's {problem}", code=code, errors=missing | invalid)
    return Checksums(**values)


def find_mismatches(declared: Checksums, computed: ComputedChecksums) -> list[tuple[str, str, str]]:
    """Return (field, declared, computed) of each checksum that differs."""
    pairs = [(f, getattr(declared, f), getattr(computed.checksums, f)) for f in CHECKSUM_NAMES]
    return [
        (field, expected, actual)
        for field, expected, actual in pairs
        if expected != actual and not (field == "s3_etag" and expected == computed.alternate_etag)
    ]


class ChecksumHasher:
    """Hashes one file in one pass.

    A known `size` must turn out to be right. Above 640,000 MB it is required, because the parts of
    the ETag depend on it.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self._read = 0
        self._etag = _EtagParts(part_size(size or 0))
        self._others = _OtherDigests()

    def hash_blocks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each block while it is hashed; at the end all blocks are."""
        lanes: list[_HashThread] = []
        try:
            for block in blocks:
                if not lanes and max(self._read + len(block), self._size or 0) > THREADS_MIN_BYTES:
                    lanes = [_HashThread(self._etag.update), _HashThread(self._others.update)]
                self._read += len(block)
                self._hash(block, lanes)
                yield block
        finally:
            for lane in lanes:
                lane.finish()
        for lane in lanes:
            lane.check()

    def result(self) -> ComputedChecksums:
        """Return the checksums after `hash_blocks`; raise SourceChanged for a wrong size."""
        if self._size is not None and self._read != self._size:
            raise SourceChanged(f"read {self._read} bytes of {self._size}")
        if self._read > ETAG_CHUNK_MAX_SIZE and self._size is None:
            raise TooLarge("the size of so large a file has to be known before it is read")
        etag, other = self._etag.tags(self._read)
        sha1, sha256, crc32c = self._others.digests()
        return ComputedChecksums(self._read, Checksums(sha1, sha256, crc32c, etag), other)

    def _hash(self, block: bytes, lanes: list["_HashThread"]) -> None:
        if not lanes:
            self._etag.update(block)
            self._others.update(block)
        for lane in lanes:
            lane.put(block)


def hash_in_thread(blocks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    """Yield each block, which another thread hashes meanwhile; all are hashed when it ends."""
    lane = _HashThread(update)
    try:
        for block in blocks:
            lane.put(block)
            yield block
    finally:
        lane.finish()
    lane.check()


def compute_checksums(blocks: Iterable[bytes], size: int | None = None) -> ComputedChecksums:
    """Return the checksums of a file that is read only to be hashed."""
    hashing = ChecksumHasher(size)
    for _ in hashing.hash_blocks(blocks):
        pass
    return hashing.result()


class _Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _EtagParts:
    """MD5 of each part; with a single part it is the MD5 of the file."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._done: list[bytes] = []
        self._current: _Digest = hashlib.md5(usedforsecurity=False)

    def update(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            if not self._left:
                self._done.append(self._current.digest())
                self._current, self._left = hashlib.md5(usedforsecurity=False), self._size
            head, view = view[: self._left], view[self._left :]
            self._current.update(head)
            self._left -= len(head)

    def tags(self, size: int) -> tuple[str, str | None]:
        digests = [*self._done, self._current.digest()]
        whole = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
        multipart = f"{whole}-{len(digests)}"
        if size < ETAG_CHUNK:
            return digests[0].hex(), None
        return multipart, digests[0].hex() if size == ETAG_CHUNK else None


class _OtherDigests:
    """SHA-1, SHA-256 and CRC-32C together cost about what MD5 does."""

    def __init__(self) -> None:
        self._sha1 = hashlib.sha1(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self._crc = 0

    def update(self, block: bytes) -> None:
        self._sha1.update(block)
        self._sha256.update(block)
        self._crc = crc32c.extend(self._crc, block)

    def digests(self) -> tuple[str, str, str]:
        return self._sha1.hexdigest(), self._sha256.hexdigest(), f"{self._crc:08x}"


class _HashThread:
    """A thread that hashes blocks in order, at most BLOCKS_AHEAD behind."""

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self._update = update
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._room = BoundedSemaphore(BLOCKS_AHEAD)
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="hashing", daemon=True)
        self._thread.start()

    def put(self, block: bytes) -> None:
        self._room.acquire()
        self._queue.put(block)

    def finish(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def check(self) -> None:
        if self._error:
            raise self._error

    def _run(self) -> None:
        while (block := self._queue.get()) is not None:
            try:
                if not self._error:
                    self._update(block)
            except BaseException as error:
                # `check` raises it; until then the caller must not block.
                self._error = error
            self._room.release()


def _take_part(pending: list[bytes], rest: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the blocks of one part; put the rest of the last block back into `pending`."""
    while pending and size:
        block = pending.pop()
        if len(block) > size:
            pending.append(block[size:])
            block = block[:size]
        size -= len(block)
        yield block
        if not pending:
            pending.extend(block for block in (next(rest, b""),) if block)
