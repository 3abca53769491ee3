"""The most memory that a block takes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    """Fail if the block takes so many bytes of memory at any time, or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
