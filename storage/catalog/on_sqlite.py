"""SQLite under the catalog: one writer at a time.

A writing unit of work first queues on a file lock, then begins IMMEDIATE: waiting in the kernel's
queue is fair, where SQLite's own busy time-out starves writers.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from storage.catalog.kinds import DURABLE, PASSING, Kind, Limits

OTHERS = 0o007
"""The bits of a file's mode that are for everybody."""

# Codes of SQLite: busy, locked, read-only, I/O error, full, cannot open.
_PASSING = frozenset({5, 6, 8, 10, 13, 14})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_SYNCHRONOUS: dict[Kind, str] = {
    DURABLE: "PRAGMA synchronous=FULL",
    PASSING: "PRAGMA synchronous=NORMAL",
}
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=OFF",
    "busy_timeout=30000",
    "cache_size=-32000",
    "mmap_size=268435456",
    "temp_store=MEMORY",
)


def engine(url: str, limits: Limits) -> Engine:
    """The engine of a file; nothing is opened yet."""
    # The errors of a statement end in logs and in what /health says of a parked row.
    made = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=limits.connections,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        hide_parameters=True,
    )
    event.listen(made, "do_connect", partial(_keep_private, made.url.database or ""), once=True)
    event.listen(made, "connect", _prepare)
    return made


def passes(error: DBAPIError) -> bool:
    """Whether waiting may help: the driver calls a misspelled statement operational too."""
    if not isinstance(error, OperationalError) or not isinstance(error.orig, sqlite3.Error):
        return False
    return error.orig.sqlite_errorcode & 0xFF in _PASSING


def is_disk_full(error: DBAPIError) -> bool:
    """Whether SQLite found no room on its disk."""
    found = error.orig
    return isinstance(found, sqlite3.Error) and found.sqlite_errorcode == sqlite3.SQLITE_FULL


def is_damaged(error: DBAPIError) -> bool:
    """Whether the file is no database, or its pages contradict each other."""
    found = error.orig
    return isinstance(found, sqlite3.Error) and found.sqlite_errorcode & 0xFF in _DAMAGED


class Turns:
    """Whose turn it is to write, over all threads and processes."""

    def __init__(self, of: Engine) -> None:
        self._path = f"{of.url.database}.lock"
        self._turn = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for ours, and hold it."""
        with self._turn:
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)


def _keep_private(database: str, *_: Any) -> None:
    """Hashes of passwords are in it: it is nobody else's to read. SQLite gives the files beside it
    the same mode."""
    if not database or database.startswith((":memory:", "file:")):
        return
    with suppress(OSError):
        os.close(os.open(database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    for path in (database, f"{database}-wal", f"{database}-shm"):
        # A group may be an operator's choice, others are nobody's.
        with suppress(OSError):
            mode = os.stat(path).st_mode & 0o777
            if mode & OTHERS:
                os.chmod(path, mode & ~OTHERS)


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver must not begin on its own: `begin` does, with the right kind of lock.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def begin(connection: Connection, kind: Kind) -> None:
    """Begin a unit of work, with the lock that its kind wants."""
    writes = _SYNCHRONOUS.get(kind)
    if writes:
        # Only between two units of work; what was not synced is with the next that is.
        driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        driver.execute(writes)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
