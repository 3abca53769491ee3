"""The four checksums of a file: computed in one pass over its bytes, declared by its depositor, and
the difference between the two.

What is hashed is what is kept: `Hashing.over` yields the very buffers that it hashes, so the caller
uploads those. Large inputs are hashed by two threads, MD5 in one and the others in the second;
hashlib and the CRC library release the interpreter's lock while they work.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Protocol

from pipelines.limits import ETAG_CHUNK, ETAG_CHUNK_UNTIL, ETAG_MAX_PARTS, MB
from storage import crc32c
from storage.errors import SourceChanged, TooLarge, Unprocessable
from storage.model import CHECKSUMS, Checksums

PREFIX = "store-"
"""What the names of declared checksums begin with."""

THREADS_FROM = 4 * MB
"""Below, starting threads costs more than it saves."""
BLOCKS_AHEAD = 8
"""Blocks that the slower thread may lag behind: what bounds the memory."""

_FORMS = {
    "sha1": re.compile(r"[0-9a-f]{40}"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "crc32c": re.compile(r"[0-9a-f]{8}"),
    "s3_etag": re.compile(r"[0-9a-f]{32}(?:-[1-9][0-9]{0,4})?"),
}


@dataclass(frozen=True, slots=True)
class Hashed:
    """What the bytes are. At exactly 64 MB the etag has two accepted forms, else one."""

    size: int
    checksums: Checksums
    other_etag: str | None = None


def part_size(size: int) -> int:
    """Bytes of one part of the entity tag of a file of this size (File: `store-s3_etag`)."""
    if size <= ETAG_CHUNK_UNTIL:
        return ETAG_CHUNK
    return -(-size // (ETAG_MAX_PARTS * MB)) * MB


def parts(blocks: Iterable[bytes], size: int) -> Iterator[Iterator[bytes]]:
    """The same bytes as consecutive parts of `size`; each is read to its end before the next."""
    rest = filter(None, blocks)
    pending = [block for block in (next(rest, b""),) if block]
    while pending:
        yield _one_part(pending, rest, size)


def parse_declared(metadata: Mapping[str, str], prefixes: Iterable[str] = (PREFIX,)) -> Checksums:
    """The checksums an object's metadata declares, in lower case; Unprocessable names the bad."""
    given = {name.lower(): value for name, value in metadata.items()}
    found = {field: _declared(given, field, tuple(prefixes)) for field in CHECKSUMS}
    missing = {f"{PREFIX}{field}": ["is missing"] for field in CHECKSUMS if found[field] is None}
    values = {field: value.lower() for field, value in found.items() if value is not None}
    invalid = {
        f"{PREFIX}{field}": [f"is not a {field}"]
        for field, value in values.items()
        if not _FORMS[field].fullmatch(value)
    }
    if missing or invalid:
        code = "missing_checksum" if missing else "invalid_checksum"
        problem = "; ".join(f"{name} {why[0]}" for name, why in (missing | invalid).items())
        raise Unprocessable(f"the source's {problem}", code=code, errors=missing | invalid)
    return Checksums(**values)


def mismatches(declared: Checksums, computed: Hashed) -> list[tuple[str, str, str]]:
    """(field, declared, computed) of every checksum that differs; declared etags of either form."""
    pairs = [(f, getattr(declared, f), getattr(computed.checksums, f)) for f in CHECKSUMS]
    return [
        (field, said, found)
        for field, said, found in pairs
        if said != found and not (field == "s3_etag" and said == computed.other_etag)
    ]


class Hashing:
    """One pass over one file. `size`, when it is known, must turn out to be right; it has to be
    given for more than 640,000 MB, because the etag's parts depend on it."""

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self._read = 0
        self._etag = _EtagParts(part_size(size or 0))
        self._others = _Others()

    def over(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each block, hashed or being hashed; all are when it ends."""
        lanes: list[_Lane] = []
        try:
            for block in blocks:
                if not lanes and max(self._read + len(block), self._size or 0) > THREADS_FROM:
                    lanes = [_Lane(self._etag.update), _Lane(self._others.update)]
                self._read += len(block)
                self._hash(block, lanes)
                yield block
        finally:
            for lane in lanes:
                lane.finish()
        for lane in lanes:
            lane.check()

    def result(self) -> Hashed:
        """The checksums, once `over` has ended; SourceChanged if the size was another."""
        if self._size is not None and self._read != self._size:
            raise SourceChanged(f"read {self._read} bytes of {self._size}")
        if self._read > ETAG_CHUNK_UNTIL and self._size is None:
            raise TooLarge("the size of so large a file has to be known before it is read")
        etag, other = self._etag.tags(self._read)
        sha1, sha256, crc32c = self._others.digests()
        return Hashed(self._read, Checksums(sha1, sha256, crc32c, etag), other)

    def _hash(self, block: bytes, lanes: list["_Lane"]) -> None:
        if not lanes:
            self._etag.update(block)
            self._others.update(block)
        for lane in lanes:
            lane.put(block)


def hashed_beside(blocks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    """Yield each block, which another thread hashes meanwhile; all are hashed when it ends."""
    lane = _Lane(update)
    try:
        for block in blocks:
            lane.put(block)
            yield block
    finally:
        lane.finish()
    lane.check()


def compute(blocks: Iterable[bytes], size: int | None = None) -> Hashed:
    """The checksums of bytes that nobody else wants."""
    hashing = Hashing(size)
    for _ in hashing.over(blocks):
        pass
    return hashing.result()


class _Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _EtagParts:
    """MD5 of each part. The first part's is the whole file's as long as there is no second."""

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


class _Others:
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


class _Lane:
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
            except BaseException as error:  # kept for the caller, who must not block meanwhile
                self._error = error
            self._room.release()


def _one_part(pending: list[bytes], rest: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Blocks of one part; what is left of the last one goes back to `pending`."""
    while pending and size:
        block = pending.pop()
        if len(block) > size:
            pending.append(block[size:])
            block = block[:size]
        size -= len(block)
        yield block
        if not pending:
            pending.extend(block for block in (next(rest, b""),) if block)


def _declared(given: Mapping[str, str], field: str, prefixes: tuple[str, ...]) -> str | None:
    """The value under the first prefix that has it."""
    names = (f"{prefix}{field}".lower() for prefix in prefixes)
    return next((given[name] for name in names if given.get(name)), None)
