"""A cache of bytes by key, bounded by their number; what was used last stays longest."""

from collections import OrderedDict
from threading import Lock


class ByteCache:
    """Shared by the threads of one process; it forgets whenever it likes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """What was put under a key, if it is still here."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Remember, and forget the oldest beyond the limit; too large a value is not kept."""
        if len(value) > self._limit:
            return
        with self._lock:
            self._size += len(value) - len(self._kept.pop(key, b""))
            self._kept[key] = value
            while self._size > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._size -= len(gone)
