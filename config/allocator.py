"""The C allocator: give freed memory back to the operating system. Only glibc has these calls."""

import ctypes
import gc

MB = 1024 * 1024
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
"""Parameters of mallopt(3)."""
OPTIONS = ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 2 * MB), (_TRIM_THRESHOLD, 16 * MB))


def bound_heap() -> None:
    """Keep few freed blocks; call it before the process starts threads.

    By default each thread may get a heap of its own, and blocks of up to 32 MB stay in it: 80
    refused bodies of 20 MB left 1.1 GB in the process.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        for name, value in OPTIONS:
            set_option(name, value)


def release_memory() -> None:
    """Collect garbage and give free memory back, after something large is done."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
