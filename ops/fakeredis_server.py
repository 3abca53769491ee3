"""The queue of a machine without redis-server: an in-memory one, spoken to over TCP.

Nothing is kept: the to-do table refills the queues of an emptied one at once. fakeredis brings the
commands; its own TCP server closes a connection after any error reply and looks at each connection
a hundred times a second, so the connections are ours: each blocks until its client speaks, and what
is published goes out at once.
"""

import socket
import struct
import sys
import threading
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from fakeredis import FakeServer
from fakeredis._clients._sync import FakeRedisConnection
from fakeredis._clients._tcp_server import encode_reply

CHUNK = 65_536
SEND_TIMEOUT_S = 2
"""A client that does not read is dropped: a publisher would wait for it."""
SWITCH_S = 0.0005
"""What a command has to do takes less; by default a thread that wakes up waits ten times as long
for its turn, and every command wakes one up."""


class QueueServer(ThreadingTCPServer):
    """Threads of clients that are still connected do not hold up the end of the process."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), Client)
        self.data = FakeServer(server_type="redis", version=(7, 4))

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nothing to report."""


class Client(BaseRequestHandler):
    """One connection."""

    server: QueueServer
    request: socket.socket

    def handle(self) -> None:
        """Pass on what the client says until it hangs up; replies are sent as they arise."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = struct.pack("ll", SEND_TIMEOUT_S, 0)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.sending = threading.Lock()
        # Every connection begins with the older protocol and may ask for the newer one.
        connection: Any = FakeRedisConnection(server=self.server.data, protocol=2)
        self.commands = connection.get_socket()
        self.commands.put_response = self.reply
        try:
            while data := self.request.recv(CHUNK):
                self.commands.sendall(data)
        finally:
            connection.disconnect()

    def reply(self, value: Any) -> None:
        """Send one reply or one published message; called from any client's thread."""
        encoded = encode_reply(value, self.commands._client_info.protocol_version)
        try:
            with self.sending:
                self.request.sendall(encoded)
        except OSError:
            # Whoever publishes to a client that is gone must not fail for it; its own thread ends.
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)


def main(host: str, port: int) -> None:
    """Serve until the process is told to end."""
    sys.setswitchinterval(SWITCH_S)
    QueueServer(host, port).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
