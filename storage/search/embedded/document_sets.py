"""Sets of documents as integers: bit n stands for document n.

Python's integers intersect 100,000 documents in a microsecond and count them in six.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from functools import reduce
from operator import or_

DocumentSet = int

FLAGS_TO_DIGITS = bytes.maketrans(b"\0\1", b"01")
DIGITS_TO_FLAGS = bytes.maketrans(b"01", b"\0\1")
MAX_CACHED_BYTES = 32 * 1024 * 1024
ENTRY_BYTES = 500
"""Estimate of what an entry of the cache takes besides its set."""


def make_set(rows: Iterable[tuple[int]], last: int) -> DocumentSet:
    """Return the set of the documents of the rows; their numbers are at most `last`."""
    flags = bytearray(last + 1)
    for (number,) in rows:
        flags[number] = 1
    # Linear, as the base is a power of two.
    return int(flags.translate(FLAGS_TO_DIGITS)[::-1], 2)


def make_sparse_set(documents: Sequence[int]) -> DocumentSet:
    """Return the set of some documents, in order; slower than `make_set` if they are many."""
    bits = bytearray(documents[-1] // 8 + 1)
    for number in documents:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def list_flags(found: DocumentSet, last: int) -> bytes:
    """Return a byte for each document up to number `last`: 1 if it is in the set, else 0."""
    return f"{found:0{last + 1}b}".encode()[::-1].translate(DIGITS_TO_FLAGS)


def list_documents(flags: bytes) -> list[int]:
    """Return the documents with a flag, in order."""
    found = []
    at = flags.find(1)
    while at >= 0:
        found.append(at)
        at = flags.find(1, at + 1)
    return found


def unite(sets: Iterable[DocumentSet]) -> DocumentSet:
    """Return what is in any of the sets."""
    return reduce(or_, sets, 0)


def find_weighty(weighted: Iterable[tuple[DocumentSet, int]], needed: int) -> DocumentSet:
    """Return the documents whose sets have a total weight of at least `needed`, at least 1.

    The weights are added for all documents at once: `digits` are the binary digits of their totals.
    """
    digits: list[DocumentSet] = []
    for found, weight in weighted:
        for place in range(weight.bit_length()):
            carry = found if weight >> place & 1 else 0
            at = place
            while carry:
                digits += [0] * (at + 1 - len(digits))
                digits[at], carry = digits[at] ^ carry, digits[at] & carry
                at += 1
    if needed.bit_length() > len(digits):
        return 0
    above, equal = 0, unite(digits)
    for place in reversed(range(len(digits))):
        if needed >> place & 1:
            equal &= digits[place]
        else:
            above |= equal & digits[place]
            equal &= ~digits[place]
    return above | equal


class SetCache:
    """Sets that were used last, shared by the threads of a process."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._lock = threading.Lock()
        self._sets: OrderedDict[Hashable, DocumentSet] = OrderedDict()
        self.live: dict[str, tuple[int, DocumentSet]] = {}
        """By file the number of its last document, and which documents were live then."""

    def get(self, key: Hashable) -> DocumentSet | None:
        """Return a set that was kept; None if it was not, or was dropped."""
        with self._lock:
            found = self._sets.get(key)
            if found is not None:
                self._sets.move_to_end(key)
            return found

    def set_live(self, file: str, last: int, live: DocumentSet) -> None:
        """Keep which documents are live, and drop all sets: they were of another last document."""
        with self._lock:
            self.live = {file: (last, live)}
            self._sets.clear()
            self._bytes = 0

    def put(self, key: Hashable, found: DocumentSet) -> None:
        """Keep a set instead of those not used for longest."""
        with self._lock:
            if key in self._sets:
                return
            self._sets[key] = found
            self._bytes += ENTRY_BYTES + sys.getsizeof(found)
            while self._bytes > self._max_bytes:
                _, dropped = self._sets.popitem(last=False)
                self._bytes -= ENTRY_BYTES + sys.getsizeof(dropped)
