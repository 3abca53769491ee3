"""Try what a confined process must not do; print the error of each attempt as JSON."""

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

CLONE_NEWUSER = 0x1000_0000
WRITABLE_CODE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library; OSError if it fails."""
    if getattr(_LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def attempt(action: Callable[[], object]) -> str | None:
    """Return the name of the error; None if it is allowed."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0)
    return None


def main() -> None:
    """Print one line."""
    home = Path(os.environ["STORE_HOME"])
    results = {
        "write code": attempt(lambda: Path("attempt").write_text("")),
        "write settings": attempt(lambda: Path("/etc/attempt").write_text("")),
        "read settings": attempt(lambda: Path("/etc/store/environment").read_text()),
        "write home": attempt(lambda: (home / "attempt").write_text("")),
        "write temporary file": attempt(lambda: Path("/tmp/attempt").write_text("")),
        "writable code": attempt(lambda: mmap.mmap(-1, 4096, prot=WRITABLE_CODE).close()),
        "raw socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
        "user namespace": attempt(lambda: call("unshare", CLONE_NEWUSER)),
        "become root": attempt(lambda: os.setuid(0)),
        "priority": attempt(lambda: os.nice(1)),
        "mount": attempt(lambda: call("mount", None, None, None, 0, None)),
        "processes seen": sum(name.isdecimal() for name in os.listdir("/proc")),
    }
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
