"""How far each part of a large file is, kept beside it so that a later run goes on there.

One number for each part, rewritten in place as blocks arrive. What a power cut leaves of it may be
wrong: the digest of the whole file is what is believed in the end.
"""

import os
import struct
import threading
from pathlib import Path

from store_client.checksums import MB

PART = 32 * MB
"""Bytes of one part: a stream takes one after the other."""

_MARK = b"store-parts-1\n"
_NUMBER = struct.Struct("<Q")


class PartMap:
    """Of one file of `size` bytes; begins anew when what is kept does not fit it."""

    def __init__(self, path: Path, size: int, *, part: int = PART) -> None:
        self.size = size
        self.part = part
        self.count = -(-size // part)
        self._lock = threading.Lock()
        kept = _read(path, self)
        self.done = [0] * self.count if kept is None else kept
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        if kept is None:
            self._file.truncate(0)
            self._file.write(_head(size, part) + b"".join(map(_NUMBER.pack, self.done)))

    def length(self, number: int) -> int:
        """Bytes of a part; the last may have fewer."""
        return min(self.part, self.size - number * self.part)

    def whole(self, number: int) -> bool:
        """Whether all bytes of a part are there."""
        return self.done[number] >= self.length(number)

    def advance(self, number: int, count: int) -> None:
        """More bytes of a part are in the file."""
        with self._lock:
            self.done[number] += count
            self._file.seek(len(_head(0, 0)) + number * _NUMBER.size)
            self._file.write(_NUMBER.pack(self.done[number]))

    def prefix(self) -> int:
        """Bytes from the beginning without a gap."""
        for number, done in enumerate(self.done):
            if done < self.length(number):
                return number * self.part + done
        return self.size

    def close(self) -> None:
        """Nothing is noted any more."""
        self._file.close()


def _head(size: int, part: int) -> bytes:
    return _MARK + _NUMBER.pack(size) + _NUMBER.pack(part)


def _read(path: Path, parts: PartMap) -> list[int] | None:
    """What was kept, None when that is not about this file."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    head = _head(parts.size, parts.part)
    if not found.startswith(head) or len(found) != len(head) + parts.count * _NUMBER.size:
        return None
    done = [number for (number,) in _NUMBER.iter_unpack(found[len(head) :])]
    good = all(count <= parts.length(number) for number, count in enumerate(done))
    return done if good else None
