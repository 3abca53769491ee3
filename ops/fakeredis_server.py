"""The queue of a machine without redis-server: an in-memory one, spoken to over TCP.

Nothing is kept: the to-do table refills the queues of an emptied one at once.
"""

import sys

from fakeredis import TcpFakeServer


class QueueServer(TcpFakeServer):
    """Threads of clients that are still connected do not hold up the end of the process."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port))
        self.daemon_threads = True


def main(host: str, port: int) -> None:
    """Serve until the process is told to end."""
    QueueServer(host, port).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
