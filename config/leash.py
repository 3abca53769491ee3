"""Runs a command that dies with the process that started it, even if that one is killed -9.

Started as a script, without the site packages, so that it costs some milliseconds only. It replaces
itself by the command: what the parent sees is the command's own process.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def leashed(command: tuple[str, ...]) -> list[str]:
    """The command line that runs `command` on a leash held by the calling process."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; end it if that has happened."""
    # Linux only; elsewhere the orderly stop by the parent is all there is.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the kernel was told.
    if os.getppid() != parent:
        sys.exit(1)


def main(parent: int, command: list[str]) -> None:
    """Die with the parent, and become the command."""
    die_with(parent)
    # The supervisor waits for its signals instead of being interrupted by them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
