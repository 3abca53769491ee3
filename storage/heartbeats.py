"""Files by which processes show that they make progress.

A file is locked as long as its process lives, and holds the time of its last heartbeat on the
machine's monotonic clock. So neither a reused process id nor a changed clock deceives a reader.
"""

import errno
import fcntl
import os
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_S = 5.0
"""Interval of heartbeats."""
_TIME_LENGTH = 20


@dataclass(frozen=True)
class Heartbeat:
    """A process that runs, and the age of its last heartbeat."""

    pid: int
    age_s: float


class HeartbeatFile:
    """The file of this process; `name` says what it does. OSError if it cannot be written."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_ended(folder)
        self._path = folder / f"{name}.{os.getpid()}"
        self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.beat()
            if not self._path.exists():
                # Another process that started took it for one of a process that has ended.
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        except BaseException:
            os.close(self._handle)
            raise

    def beat(self) -> None:
        """Write the current time."""
        os.pwrite(self._handle, f"{time.monotonic():0{_TIME_LENGTH}.3f}".encode(), 0)

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


def notify_systemd(address: str) -> None:
    """Tell systemd at this socket that the process has started and makes progress (sd_notify)."""
    path = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(b"READY=1\nWATCHDOG=1", path)


def require_writable(folder: Path) -> None:
    """Raise OSError if this folder, or the one in which it would be made, takes no heartbeats."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.TemporaryFile(dir=existing, buffering=0) as file:
        file.write(bytes(_TIME_LENGTH))


def read_heartbeats(folder: Path, name: str) -> list[Heartbeat]:
    """Return the heartbeats of all running processes of this name."""
    found = (_read_heartbeat(path, pid) for path, kind, pid in _list_files(folder) if kind == name)
    return [heartbeat for heartbeat in found if heartbeat is not None]


def _read_heartbeat(path: Path, pid: int) -> Heartbeat | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not _is_locked(handle):
            return None
        text = os.pread(handle, _TIME_LENGTH, 0)
    finally:
        os.close(handle)
    if len(text) < _TIME_LENGTH:
        # It is being created.
        return None
    written = float(text)
    return Heartbeat(pid, max(0.0, time.monotonic() - written))


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _list_files(folder: Path) -> list[tuple[Path, str, int]]:
    """Return path, name and process id of each file."""
    if not folder.is_dir():
        return []
    parts = [(path, *path.name.rpartition(".")) for path in folder.iterdir()]
    return [(path, name, int(pid)) for path, name, _, pid in parts if pid.isdecimal()]


def _remove_ended(folder: Path) -> None:
    """Remove files of killed processes, which are not locked.

    A process id says nothing: processes of other containers may share the folder.
    """
    for path, _, _ in _list_files(folder):
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if not _is_locked(handle):
                    path.unlink(missing_ok=True)
            finally:
                os.close(handle)
