"""Read a local file once, part by part, while earlier parts are being sent.

The buffers that are hashed are the ones that are sent. A file that changes meanwhile counts as
damaged, and nothing of it is deposited.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock

from store_client.checksums import (
    BLOCK,
    EtagHasher,
    FileChecksums,
    FileHasher,
    HashThread,
    SequentialHasher,
    combine_etags,
    md5_digest,
    part_size,
)
from store_client.errors import Damaged, Misused
from store_client.local_files import LocalFile, file_stamp
from store_client.transfer.engine import TransferContext

Send = Callable[[int, bytes, bytes], None]
"""Takes a part's number, its bytes and their MD5, and returns when they have arrived."""
IsStored = Callable[[int, bytes], bool]
"""Whether the part of this number and MD5 need not be sent."""


class FileChanged(Damaged):
    """A file changed while it was read."""


@contextmanager
def open_unchanged(file: LocalFile) -> Iterator[io.FileIO]:
    """Open a file to be read once; FileChanged unless it stays as it was listed."""
    try:
        source = io.FileIO(file.path, opener=_open_at_once)
    except FileNotFoundError as error:
        raise _changed_error(file) from error
    except OSError as error:
        raise Misused(f"cannot read {file.path}: {error.strerror or error}") from error
    with source:
        _check_unchanged(file, os.fstat(source.fileno()))
        yield source
        _check_unchanged(file, os.fstat(source.fileno()))
    try:
        _check_unchanged(file, os.stat(file.path))
    except FileNotFoundError as error:
        raise _changed_error(file) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file that may be a pipe by now, which would otherwise wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_whole(file: LocalFile) -> bytes:
    with open_unchanged(file) as source:
        return _read_exactly(source, file.size, file)


def hash_file_blocks(file: LocalFile, hashing: FileHasher) -> Iterator[bytes]:
    """Yield the blocks of a file while they are hashed; FileChanged."""
    with open_unchanged(file) as source:
        rest = iter(lambda: source.read(BLOCK), b"")
        yield from hashing.hash_blocks(rest)
        if hashing.bytes_read != file.size:
            raise _changed_error(file)


def hash_file(file: LocalFile, context: TransferContext) -> FileChecksums:
    hashing = FileHasher(file.size)
    for _ in hash_file_blocks(file, hashing):
        context.stop.check()
    return hashing.checksums()


def send_parts(
    file: LocalFile,
    context: TransferContext,
    send: Send,
    *,
    size: int = 0,
    is_stored: IsStored = lambda number, digest: False,
) -> FileChecksums:
    """Send a file in parts, in parallel, but for those stored already; the checksums of the whole.

    `size` is the size of a part in bytes, by default that of the entity tag.
    """
    usual = part_size(file.size)
    # Where parts are not those of the entity tag, their MD5s do not make it.
    etag = None if size in (0, usual) else EtagHasher(usual)
    sender = _PartSender(context, send, is_stored, etag=etag)
    try:
        with open_unchanged(file) as source:
            step = size or usual
            for number, start in enumerate(range(0, file.size, step), 1):
                length = min(step, file.size - start)
                sender.reserve(length)
                sender.send(number, _read_exactly(source, length, file))
    finally:
        sender.finish()
    return sender.checksums(file.size)


class _PartSender:
    """Hashes the parts of one file in order in one thread, and sends them in others."""

    def __init__(
        self,
        context: TransferContext,
        send: Send,
        is_stored: IsStored,
        *,
        etag: EtagHasher | None,
    ) -> None:
        self._context, self._send, self._is_stored = context, send, is_stored
        self._order = SequentialHasher()
        self._etag = etag
        self._lane = HashThread(self._hash_in_order)
        self._waiting: deque[_MemoryLease] = deque()
        self._sent: list[Future[bytes]] = []
        self._failed = False

    def reserve(self, size: int) -> None:
        """Reserve memory for the next part, unless an earlier one failed."""
        if self._failed:
            for future in self._sent:
                future.result()
        self._context.memory.reserve(size)

    def send(self, number: int, data: bytes) -> None:
        """Send the next part; its memory is reserved."""
        lease = _MemoryLease(self._context, len(data))
        self._waiting.append(lease)
        self._lane.put(data)
        self._sent.append(self._context.part_pool.submit(self._send_one, number, data, lease))

    def finish(self) -> None:
        self._lane.finish()
        for future in self._sent:
            if not future.cancelled():
                future.exception()

    def checksums(self, size: int) -> FileChecksums:
        """The checksums of the whole; raises the error of a part that failed."""
        self._lane.raise_error()
        digests = [future.result() for future in self._sent]
        return self._order.finish(
            combine_etags(digests, size) if self._etag is None else self._etag.tag(size)
        )

    def _hash_in_order(self, data: bytes) -> None:
        self._order.update(data)
        if self._etag is not None:
            self._etag.update(data)
        self._waiting.popleft().release()

    def _send_one(self, number: int, data: bytes, lease: "_MemoryLease") -> bytes:
        try:
            self._context.stop.check()
            found = md5_digest(data)
            if self._is_stored(number, found):
                self._context.tell.bytes(len(data))
            else:
                self._send(number, data, found)
        except BaseException:
            self._failed = True
            raise
        finally:
            lease.release()
        return found


class _MemoryLease:
    """Memory of a part, released by the last of two threads that use it."""

    def __init__(self, context: TransferContext, size: int) -> None:
        self._context, self._size = context, size
        self._users = 2
        self._lock = Lock()

    def release(self) -> None:
        """One of the threads is done."""
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            self._context.memory.release(self._size)


def _read_exactly(source: io.FileIO, size: int, file: LocalFile) -> bytes:
    """Read so many bytes; FileChanged if there are fewer."""
    data = source.read(size) or b""
    if len(data) == size:
        return data
    pieces = [data]
    while (missing := size - sum(map(len, pieces))) and (more := source.read(missing)):
        pieces.append(more)
    if missing:
        raise _changed_error(file)
    return b"".join(pieces)


def _check_unchanged(file: LocalFile, found: os.stat_result) -> None:
    if file_stamp(found) != file.stamp:
        raise _changed_error(file)


def _changed_error(file: LocalFile) -> FileChanged:
    return FileChanged(
        f"{file.path} was changed while it was uploaded",
        hint="run the same command again when it no longer changes",
    )
