"""Redis of the system package, without persistence."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops import ports
from tests.engines import packages
from tests.engines.engine import Running
from tests.engines.service import Service

PROGRAMS, PACKAGE = ("redis-server",), "redis-server"
VARIABLE = "STORE_TEST_REDIS"


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE)


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("redis-server")


def install(cache: Path) -> None:
    """Get the package, unless it is there."""
    packages.debian(PROGRAMS, PACKAGE, cache)


@contextmanager
def running(home: Path, **_settings: str) -> Iterator[Running]:
    """Start it; stop it at the end."""
    port = ports.find_free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [packages.found("redis-server"), *words, "--dir", str(home)]
    url = f"redis://127.0.0.1:{port}/0"
    with Service(url, command, home / "redis.log", lambda: _answers(port)) as service:
        yield service


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
