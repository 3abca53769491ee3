"""Unix datagram messages between the processes of one home.

Every receiver binds its own socket; a message goes to all receivers of a kind. A killed process
leaves a dead socket, which the next sender removes. Messages may be lost, so they only say that
there is something to look at.
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

from config import SettingsError

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 32_768
"""Bytes of one message."""
KERNEL_QUEUE_LENGTH: Final = 10
"""Messages that the kernel queues for a socket by default; more are lost."""
_MAX_PATH_BYTES: Final = 100
_GONE_ERRORS: Final = (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET)


def open_socket_folder(home: Path) -> "SocketFolder":
    """Return the folder for the sockets of a store's processes on one machine."""
    return SocketFolder(home.absolute() / "run")


class SocketFolder:
    """A folder of sockets, private to its owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def post(self, kind: str, message: bytes, *, but: str = "") -> int:
        """Send a message to all receivers of a kind except `but`; return how many received it.

        Never raises for what the system refuses: a message may be lost.
        """
        names = [
            name
            for name in self._list_receivers()
            if f"{name}-".startswith(f"{kind}-") and name != but
        ]
        if not names:
            return 0
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                return sum(self._send_to(sender, name, message) for name in names)
        except OSError as error:
            log.warning("message not sent: %s", error)
            return 0

    def _list_receivers(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("the sockets in %s cannot be listed: %s", self.folder, error)
            return []

    def _send_to(self, sender: socket.socket, name: str, message: bytes) -> bool:
        try:
            with self.address(name) as address:
                sender.sendto(message, address)
        except BlockingIOError:
            # A full queue: the receiver will call `missed` anyway.
            return True
        except OSError as error:
            if error.errno not in _GONE_ERRORS:
                log.warning("message to %s not sent: %s", name, error)
                return False
            # Names are never reused, so this cannot be the socket of another process.
            (self.folder / name).unlink(missing_ok=True)
            return False
        return True

    @contextmanager
    def address(self, name: str) -> Iterator[str]:
        """Yield a path of a socket that is short enough for the kernel."""
        path = os.path.join(self.folder, name)
        if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
            yield path
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            short = f"/proc/self/fd/{handle}"
            if not os.path.isdir(short):
                raise SettingsError(f"STORE_HOME: the path of a socket is too long: {path}")
            yield f"{short}/{name}"
        finally:
            os.close(handle)


class DatagramInbox:
    """A socket for messages of a kind, and the thread that reads it.

    `take` gets each message; `missed` is called if some may have been lost.
    """

    def __init__(
        self,
        sockets: SocketFolder,
        kind: str,
        take: Callable[[bytes], None],
        missed: Callable[[], None],
    ) -> None:
        self.name = f"{kind}-{os.getpid()}-{secrets.token_hex(8)}"
        self._on_message, self._on_missed = take, missed
        self._sockets = sockets
        sockets.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Bind under a hidden name: before the bind a sender would take the file for a dead socket.
        with sockets.address(f".{self.name}") as address:
            self._socket.bind(address)
        os.rename(sockets.folder / f".{self.name}", sockets.folder / self.name)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"inbox {kind}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read_all()
            except Exception:
                log.exception("handling a message failed")

    def _read_all(self) -> None:
        """Wait for a message, then read until there is none."""
        message: bytes | None = self._socket.recv(MAX_MESSAGE_BYTES)
        count = 0
        while message is not None and not self._stopped.is_set():
            count += 1
            if message:
                self._on_message(message)
            message = self._receive_next()
        if count >= KERNEL_QUEUE_LENGTH:
            self._on_missed()

    def _receive_next(self) -> bytes | None:
        try:
            return self._socket.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Remove the socket and end the thread."""
        self._stopped.set()
        self._sockets.post(self.name, b"")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        (self._sockets.folder / self.name).unlink(missing_ok=True)
        self._socket.close()
