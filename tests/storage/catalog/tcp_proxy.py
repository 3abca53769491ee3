"""A TCP proxy to the database server that can be cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.engine import make_url


class Wire:
    """Carries bytes between clients and one server. `cut_after` names what is still carried to the
    server before the connection is closed, its answer lost."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_after: bytes | None = None
        self.up = True
        self.carried: list[bytes] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self.up:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._carry, args=(*pair, pair[1] is server), daemon=True
                    ).start()

    def _carry(self, source: socket.socket, target: socket.socket, forth: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if forth:
                    self._hear(data, source)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def _hear(self, data: bytes, client: socket.socket) -> None:
        self.carried.append(data)
        if self.cut_after is not None and self.cut_after in data:
            self.cut_after = None
            # The server gets this last message; its answer is dropped.
            client.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Close every connection that is open now."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def close(self) -> None:
        """Carry nothing any more."""
        self._listener.close()
        self.cut()


@contextmanager
def wired(url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to the server of a URL, and the URL at its near end."""
    far = make_url(url)
    wire = Wire(far.host or "127.0.0.1", far.port or 5432)
    near = far.set(host="127.0.0.1", port=wire.port)
    try:
        yield wire, near.render_as_string(hide_password=False)
    finally:
        wire.close()
