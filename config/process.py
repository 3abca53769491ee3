"""Process tuning: heap, garbage collector, open files, and dying with the parent process.

Run as a script without site packages, so it starts in milliseconds. It calls exec: the parent
sees the command's own process.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
from pathlib import Path

MB = 1024 * 1024
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
"""Options of mallopt(3)."""
MALLOPT_OPTIONS = ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 2 * MB), (_TRIM_THRESHOLD, 16 * MB))


def bound_heap() -> None:
    """Keep few freed blocks; call it before the process starts threads.

    By default each thread may get its own heap, and blocks of up to 32 MB stay in it: 80
    refused bodies of 20 MB left 1.1 GB in the process.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        for name, value in MALLOPT_OPTIONS:
            set_option(name, value)


def release_memory() -> None:
    """Collect garbage and return free memory to the operating system."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


GC_THRESHOLDS = (50_000, 20, 50)


def pause_gc() -> None:
    """Disable GC until `relax_gc`: imports make many objects but little garbage."""
    gc.disable()


def relax_gc() -> None:
    """Freeze present objects and collect rarely; call it after startup.

    A manifest of 20,000 entries makes hundreds of thousands of objects without cycles: by
    default the collector would scan them, and all modules, a hundred times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def raise_open_files_limit(count: int) -> None:
    """Raise this process's limit to `count`, or to the hard limit if lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


PR_SET_PDEATHSIG = 1


def bind_command_to_parent(command: tuple[str, ...]) -> list[str]:
    """Return a command line that runs `command` and dies with this process."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; end it if that has happened."""
    # Linux only; elsewhere only the parent's orderly stop ends it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before prctl.
    if os.getppid() != parent:
        sys.exit(1)


def exec_bound_command(parent: int, command: list[str]) -> None:
    """Die with the parent and exec the command."""
    die_with_parent(parent)
    # Unblock the signals that the supervisor blocks to wait for them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    exec_bound_command(int(sys.argv[1]), sys.argv[2:])
