"""PgBouncer in transaction mode before its own PostgreSQL."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from ops import ports
from tests.engines import packages, postgres
from tests.engines.engine import Running
from tests.engines.service import Service

PROGRAMS, PACKAGE = ("pgbouncer",), "pgbouncer"
VARIABLE = "STORE_TEST_PGBOUNCER"
CONFIGURATION = """[databases]
* = host=127.0.0.1 port={behind}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = 40
server_idle_timeout = 10
autodb_idle_timeout = 1
"""


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE) or postgres.missing()


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("pgbouncer")


def install(cache: Path) -> None:
    """Get the package, unless it is there."""
    packages.debian(PROGRAMS, PACKAGE, cache)
    postgres.install(cache)


@contextmanager
def running(home: Path, **more: str) -> Iterator[Running]:
    """Start both, more settings of the server in `more`; stop them at the end."""
    home.mkdir(exist_ok=True)
    with postgres.running(home, **more) as server:
        port, behind = ports.find_free_port(), urlsplit(server.url).port
        users, configuration = home / "users.txt", home / "pgbouncer.ini"
        users.write_text('"postgres" ""\n', encoding="utf-8")
        settings = CONFIGURATION.format(behind=behind, port=port, users=users)
        configuration.write_text(settings, encoding="utf-8")
        postgres.hand_over(home)
        command = postgres.as_account([packages.found("pgbouncer"), configuration])
        url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        log = home / "pgbouncer.log"
        with Service(url, command, log, lambda: _listens(port), end=signal.SIGTERM) as service:
            yield service


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
