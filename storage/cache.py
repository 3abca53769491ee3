"""LRU cache of bytes, bounded by total size."""

from collections import OrderedDict
from threading import Lock


class ByteCache:
    """Shared by the threads of one process; may drop any value at any time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Store a value, and evict the least recently used; ignore too large ones."""
        if len(value) > self._limit:
            return
        with self._lock:
            self._size += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._size > self._limit:
                _, dropped = self._values.popitem(last=False)
                self._size -= len(dropped)
