"""Short messages between the processes of one home, by Unix datagram sockets in a folder of it.

Every receiver binds a socket of its own; a sender gives a message to all of a kind. Whoever was
killed leaves a socket that nobody reads: the next sender takes it away. A message may be lost, so
it can only ever say that there is something to look at.
"""

import errno
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from config.settings import SettingsError

log = logging.getLogger(__name__)

LONGEST: Final = 32_768
"""Bytes of one message."""
HELD: Final = 10
"""Messages that the kernel holds for a socket by default; what comes then is lost."""
_LONGEST_PATH: Final = 100
_GONE: Final = (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET)


def office(home: Path) -> "Office":
    """Where the processes of a store on one machine have their sockets."""
    return Office(home.absolute() / "run")


class Office:
    """A folder in which receivers have their sockets. It is its owner's alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def post(self, kind: str, message: bytes, *, but: str = "") -> int:
        """Give a message to every receiver of a kind, except one; how many were there to get it.

        Never raises for what the system refuses: a message may be lost.
        """
        names = [
            name for name in self._receivers() if f"{name}-".startswith(f"{kind}-") and name != but
        ]
        if not names:
            return 0
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                return sum(self._sent(sender, name, message) for name in names)
        except OSError as error:
            log.warning("no message was sent: %s", error)
            return 0

    def _receivers(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("the sockets in %s cannot be listed: %s", self.folder, error)
            return []

    def _sent(self, sender: socket.socket, name: str, message: bytes) -> bool:
        try:
            with self.address(name) as address:
                sender.sendto(message, address)
        except BlockingIOError:
            # It has so much to read that it will look for itself (Inbox).
            return True
        except OSError as error:
            if error.errno not in _GONE:
                log.warning("no message to %s: %s", name, error)
                return False
            # Its name is never used again, so nobody else's is taken away.
            (self.folder / name).unlink(missing_ok=True)
            return False
        return True

    @contextmanager
    def address(self, name: str) -> Iterator[str]:
        """The path of a socket, in a form that the kernel takes while the block runs."""
        path = os.path.join(self.folder, name)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            yield path
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            short = f"/proc/self/fd/{handle}"
            if not os.path.isdir(short):
                raise SettingsError(f"STORE_HOME: a socket cannot have so long a path: {path}")
            yield f"{short}/{name}"
        finally:
            os.close(handle)


class Inbox:
    """A socket for messages of a kind, and the thread that reads it: `take` gets each message,
    `missed` is called where some may have been lost."""

    def __init__(
        self, office: Office, kind: str, take: Callable[[bytes], None], missed: Callable[[], None]
    ) -> None:
        self.name = f"{kind}-{os.getpid()}-{secrets.token_hex(8)}"
        self._take, self._missed = take, missed
        self._office = office
        office.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Between the making of its file and the binding a sender would take it for a dead one.
        with office.address(f".{self.name}") as address:
            self._socket.bind(address)
        os.rename(office.folder / f".{self.name}", office.folder / self.name)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"inbox {kind}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read_all()
            except Exception:
                log.exception("a message was not understood")

    def _read_all(self) -> None:
        """Wait for a message, then read until there is none."""
        message: bytes | None = self._socket.recv(LONGEST)
        count = 0
        while message is not None and not self._stopped.is_set():
            count += 1
            if message:
                self._take(message)
            message = self._next()
        if count >= HELD:
            self._missed()

    def _next(self) -> bytes | None:
        try:
            return self._socket.recv(LONGEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Take the socket away and end the thread."""
        self._stopped.set()
        self._office.post(self.name, b"")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        (self._office.folder / self.name).unlink(missing_ok=True)
        self._socket.close()
