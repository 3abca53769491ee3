"""PostgreSQL of the system package, with default durability."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from ops import ports
from tests.engines import packages
from tests.engines.engine import Running
from tests.engines.service import Service

PROGRAMS, PACKAGE = ("initdb", "postgres", "pg_isready"), "postgresql"
VARIABLE = "STORE_TEST_POSTGRES"
ACCOUNT = "postgres"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    # The bench of partitions makes 64 of a table with one index.
    "max_locks_per_transaction": "128",
    "shared_buffers": "256MB",
    "log_lock_waits": "on",
    # Tests make and drop databases; a checkpoint for each would wait for a busy disk.
    "max_wal_size": "4GB",
}


def missing() -> str | None:
    """What this machine lacks, or None."""
    return packages.lacking(PROGRAMS, PACKAGE)


def there() -> str | None:
    """Which version is installed, or None."""
    return packages.version("postgres")


def install(cache: Path) -> None:
    """Get the package, unless it is there."""
    packages.debian(PROGRAMS, PACKAGE, cache)


def as_account(command: Sequence[str | Path]) -> list[str | Path]:
    """The server refuses to run as root: then it runs as the package's account."""
    if os.geteuid() != 0:
        return list(command)
    alone = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]
    return [*alone, *command]


def hand_over(folder: Path) -> None:
    """Give a folder to the account, which must be able to get there."""
    if os.geteuid() == 0:
        shutil.chown(folder, ACCOUNT, ACCOUNT)
        for parent in folder.parents:
            if parent.owner() == "root" and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)


@contextmanager
def running(home: Path, **more: str) -> Iterator[Running]:
    """Start an empty server, more settings in `more`; stop it at the end."""
    data, port = home / "postgres", ports.find_free_port()
    data.mkdir(mode=0o700)
    hand_over(data)
    initdb: list[str | Path] = [
        packages.found("initdb"),
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
    ]
    made = as_account([*initdb, "--locale=C.UTF-8"])
    subprocess.run(made, cwd="/", check=True, stdout=subprocess.DEVNULL)
    with _serve(home, data, port, more) as service:
        yield service


@contextmanager
def standby(home: Path, primary: str, **more: str) -> Iterator[Running]:
    """Start a standby of that server, more settings in `more`; stop it at the end."""
    data, port, followed = home / "standby", ports.find_free_port(), urlsplit(primary)
    data.mkdir(mode=0o700)
    hand_over(data)
    copied: list[str | Path] = [packages.found("pg_basebackup"), "-D", data, "-U", "postgres"]
    copied += ["-h", str(followed.hostname), "-p", str(followed.port)]
    # Write what it needs to follow, and do not wait for the next checkpoint.
    copied += ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    subprocess.run(as_account(copied), cwd="/", check=True)
    with _serve(home, data, port, more) as service:
        yield service


@contextmanager
def _serve(home: Path, data: Path, port: int, more: Mapping[str, str]) -> Iterator[Service]:
    settings = {**SETTINGS, "port": str(port), "unix_socket_directories": "", **more}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = as_account([packages.found("postgres"), "-D", data, *words])
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    log = home / f"{data.name}.log"
    ready = [packages.found("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    # Smart shutdown would wait for pooled connections; fast is what a service does.
    with Service(url, command, log, lambda: _runs(ready), end=signal.SIGINT) as service:
        yield service


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command).returncode == 0
