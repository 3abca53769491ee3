"""A file that is read once: whole into memory, or part by part while parts before are on their way.

The very buffers that were hashed are sent. A file that is another one at the end than it was at the
beginning counts as damaged, and nothing of it is deposited.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock

from store_client.checksums import (
    BLOCK,
    Checksums,
    Hashing,
    InOrder,
    Lane,
    compute,
    etag,
    md5,
    part_size,
)
from store_client.errors import Damaged
from store_client.upload.sharing import Shared
from store_client.upload.walking import Local, stamp_of

Send = Callable[[int, bytes, bytes], None]
"""Takes a part's number, its bytes and their MD5, and returns when they have arrived."""


class Changed(Damaged):
    """A file was written to while it was read."""


@contextmanager
def opened(file: Local) -> Iterator[io.FileIO]:
    """The file, to be read from its beginning to its end; Changed unless it stays the same."""
    try:
        with io.FileIO(file.path) as source:
            _same(file, os.fstat(source.fileno()))
            yield source
            _same(file, os.fstat(source.fileno()))
            _same(file, os.stat(file.path))
    except FileNotFoundError as error:
        raise _changed(file) from error


def whole(file: Local) -> bytes:
    """A file that fits into memory."""
    with opened(file) as source:
        return _exactly(source, file.size, file)


def hashed(data: bytes) -> Checksums:
    """The checksums of what is in memory."""
    return compute([data], len(data))


def blocks(file: Local, hashing: Hashing) -> Iterator[bytes]:
    """The file's bytes as they are hashed; Changed at the end, too."""
    with opened(file) as source:
        rest = iter(lambda: source.read(BLOCK), b"")
        yield from hashing.over(rest)
        if hashing.read != file.size:
            raise _changed(file)


def read_only(file: Local, shared: Shared) -> Checksums:
    """The checksums of a file that nobody is sent."""
    hashing = Hashing(file.size)
    for _ in blocks(file, hashing):
        shared.check()
    return hashing.result()


def in_parts(
    file: Local, shared: Shared, send: Send, *, arrived: Mapping[int, bytes] | None = None
) -> Checksums:
    """Send a file in the parts of its entity tag, those left out that arrived with this MD5."""
    leaving = _Leaving(shared, send, arrived or {})
    try:
        with opened(file) as source:
            for number, size in enumerate(_sizes(file.size), 1):
                leaving.take(size)
                leaving.part(number, _exactly(source, size, file))
    finally:
        leaving.end()
    return leaving.checksums(file.size)


class _Leaving:
    """Parts of one file: hashed in order by one thread, and each by the one that sends it."""

    def __init__(self, shared: Shared, send: Send, arrived: Mapping[int, bytes]) -> None:
        self._shared, self._send, self._arrived = shared, send, arrived
        self._order = InOrder()
        self._lane = Lane(self._in_order)
        self._waiting: deque[_Lease] = deque()
        self._sent: list[Future[bytes]] = []
        self._failed = False

    def take(self, size: int) -> None:
        """Room for the next part, unless one before it failed."""
        if self._failed:
            for future in self._sent:
                future.result()
        self._shared.take(size)

    def part(self, number: int, data: bytes) -> None:
        """The next part; its room was taken."""
        lease = _Lease(self._shared, len(data))
        self._waiting.append(lease)
        self._lane.put(data)
        self._sent.append(self._shared.parts.submit(self._one, number, data, lease))

    def end(self) -> None:
        """Nothing is under way any more."""
        self._lane.finish()
        for future in self._sent:
            if not future.cancelled():
                future.exception()

    def checksums(self, size: int) -> Checksums:
        """Of the whole; raises what a part failed with."""
        self._lane.check()
        return self._order.checksums(etag([future.result() for future in self._sent], size))

    def _in_order(self, data: bytes) -> None:
        self._order.update(data)
        self._waiting.popleft().end()

    def _one(self, number: int, data: bytes, lease: "_Lease") -> bytes:
        try:
            self._shared.check()
            found = md5(data)
            if self._arrived.get(number) == found:
                self._shared.tell.bytes(len(data))
            else:
                self._send(number, data, found)
        except BaseException:
            self._failed = True
            raise
        finally:
            lease.end()
        return found


class _Lease:
    """Room that two threads use, and that is given back by the one that is done last."""

    def __init__(self, shared: Shared, size: int) -> None:
        self._shared, self._size = shared, size
        self._users = 2
        self._lock = Lock()

    def end(self) -> None:
        """One of them is done."""
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            self._shared.give(self._size)


def _sizes(size: int) -> Iterator[int]:
    step = part_size(size)
    for start in range(0, size, step):
        yield min(step, size - start)


def _exactly(source: io.FileIO, size: int, file: Local) -> bytes:
    """So many bytes, in one buffer if the system gives them at once."""
    data = source.read(size) or b""
    if len(data) == size:
        return data
    pieces = [data]
    while (missing := size - sum(map(len, pieces))) and (more := source.read(missing)):
        pieces.append(more)
    if missing:
        raise _changed(file)
    return b"".join(pieces)


def _same(file: Local, found: os.stat_result) -> None:
    if stamp_of(found) != file.stamp:
        raise _changed(file)


def _changed(file: Local) -> Changed:
    return Changed(
        f"{file.path} was changed while it was uploaded",
        hint="run the same command again when nobody writes to it",
    )
