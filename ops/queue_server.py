"""The private queue of an embedded store: redis-server if installed, else an in-memory server.

It listens on a Unix socket in the home folder, which only the owner may enter, and wants a
password. No TCP port is opened (docs/decisions/0008).
"""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ops import home as homes
from ops.procfile import ProcessLine

NAME = "redis"
SOCKET = "queue.sock"
CONFIG = "queue.conf"
LONGEST_PATH = 100
"""Bytes of a socket's path: the kernel takes 107, redis-server binds a longer name first."""


@dataclass(frozen=True)
class PrivateQueue:
    """Where one run's queue listens, and its password."""

    folder: Path
    password: str

    @property
    def socket(self) -> Path:
        """The path of its Unix socket."""
        return self.folder / SOCKET

    @property
    def url(self) -> str:
        """What the other processes connect to."""
        return f"unix://:{self.password}@{quote(str(self.socket))}?db=0"

    def line(self, *, path: str) -> ProcessLine:
        """The process that serves the queue; programs are looked up in `path`."""
        found = shutil.which("redis-server", path=path)
        command = (found, str(self._write_config())) if found else _embedded()
        return ProcessLine(NAME, command, "Carries messages; the to-do table is what remembers.")

    def listens(self) -> bool:
        """Whether a server accepts connections on the socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def _write_config(self) -> Path:
        # A file, since other users can read the arguments of a process.
        options = {
            "port": "0",
            "unixsocket": _quoted(str(self.socket)),
            "unixsocketperm": "600",
            "requirepass": self.password,
            "save": '""',
            "appendonly": "no",
            "loglevel": "warning",
        }
        text = "".join(f"{name} {value}\n" for name, value in options.items())
        homes.write_text(self.folder, CONFIG, text)
        return self.folder / CONFIG


@contextmanager
def private(home: Path) -> Iterator[PrivateQueue]:
    """A queue with a new password, in the home or, if that path is too long, a temporary folder."""
    password = secrets.token_urlsafe(32)
    if len(os.fsencode(home.absolute() / SOCKET)) > LONGEST_PATH:
        with tempfile.TemporaryDirectory(prefix="store-queue-") as folder:
            yield PrivateQueue(Path(folder), password)
        return
    try:
        yield PrivateQueue(home.absolute(), password)
    finally:
        homes.remove(home, CONFIG)
        homes.remove(home, SOCKET)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _embedded() -> tuple[str, ...]:
    return (sys.executable, "-m", "ops.fakeredis_server")
