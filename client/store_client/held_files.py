"""Open files that one process at a time holds, by the system's own locks.

They end with the process that holds them, however that ends.
"""

import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def try_to_hold(descriptor: int) -> bool:
    """Whether nobody else holds it; it is held then until it is closed. OSError where files cannot
    be held at all, as on some network drives."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
