"""Moving bytes between open files: all of them, and inside the kernel where it can."""

import errno
import os
from collections.abc import Callable, Iterator

from storage.errors import SourceChanged
from storage.protocols import BLOCK

CHUNK = 64 * 1024 * 1024
"""Bytes that one call of the kernel moves at most, so that progress is told in between."""

_TRY_ANOTHER_WAY = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}

sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def write_all(descriptor: int, data: bytes | memoryview, at: int) -> None:
    """Write every byte at an offset; the kernel may take fewer in one call."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def blocks(descriptor: int, start: int, length: int) -> Iterator[bytes]:
    """Stream a range of an open file; SourceChanged when it ends early."""
    end = start + length
    while start < end:
        block = os.pread(descriptor, min(BLOCK, end - start), start)
        if not block:
            raise SourceChanged("the file became shorter while it was read")
        yield block
        start += len(block)


def copy_range(source: int, target: int, length: int, *, start: int, at: int) -> Iterator[int]:
    """Copy a range from file to file, yielding the bytes copied so far after each chunk."""
    done, way = 0, _copy_in_kernel
    while done < length:
        count = min(CHUNK, length - done)
        try:
            done += way(source, target, count, start=start + done, at=at + done)
        except OSError as error:
            if way is _copy_through_us or error.errno not in _TRY_ANOTHER_WAY:
                raise
            way = _copy_through_us
            continue
        yield done


def _copy_in_kernel(source: int, target: int, count: int, *, start: int, at: int) -> int:
    """Shares blocks where the file system can; file systems that cannot copy raise."""
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "no copy_file_range")
    copied = os.copy_file_range(source, target, count, start, at)
    if copied == 0:
        raise SourceChanged("the file became shorter while it was copied")
    return copied


def _copy_through_us(source: int, target: int, count: int, *, start: int, at: int) -> int:
    done = 0
    for block in blocks(source, start, count):
        write_all(target, block, at + done)
        done += len(block)
    return done
