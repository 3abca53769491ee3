"""SQLite and PostgreSQL: create engines, begin transactions, classify errors.

A write transaction on SQLite first waits for a file lock, then begins IMMEDIATE: the kernel's queue
is fair, while SQLite's own busy timeout starves writers.

On PostgreSQL, session settings are sent once per connection. Behind a pooler, which may assign
another session to every transaction, they are sent with each BEGIN.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from config import SettingsError

TransactionKind = Literal["reading", "durable", "passing"]
READ: Final = "reading"
DURABLE_WRITE: Final = "durable"
VOLATILE_WRITE: Final = "passing"
"""A write that a power failure may undo."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Pool size, extra connections under load, and the longest wait for one."""

    connections: int
    overflow: int
    wait_s: float


_OTHERS_MODE_BITS = 0o007
"""Permission bits of other users."""

# SQLite codes: busy, locked, read-only, I/O error, full, cannot open.
_TRANSIENT_CODES = frozenset({5, 6, 8, 10, 13, 14})
_DAMAGED_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_SYNCHRONOUS: dict[TransactionKind, str] = {
    DURABLE_WRITE: "PRAGMA synchronous=FULL",
    VOLATILE_WRITE: "PRAGMA synchronous=NORMAL",
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


def create_sqlite_engine(url: str, limits: PoolLimits) -> Engine:
    """Return the engine of a file, without opening it."""
    # Parameters are hidden because errors end in logs and in dead jobs on /health.
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=limits.connections,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        hide_parameters=True,
    )
    event.listen(
        engine, "do_connect", partial(_restrict_permissions, engine.url.database or ""), once=True
    )
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def is_transient_on_sqlite(error: DBAPIError) -> bool:
    """Return whether a retry may help; the driver also calls misspelled SQL an OperationalError."""
    if not isinstance(error, OperationalError) or not isinstance(error.orig, sqlite3.Error):
        return False
    return error.orig.sqlite_errorcode & 0xFF in _TRANSIENT_CODES


def is_disk_full(error: DBAPIError) -> bool:
    """Return whether SQLite found its disk full."""
    cause = error.orig
    return isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode == sqlite3.SQLITE_FULL


def is_damaged(error: DBAPIError) -> bool:
    """Return whether the file is not a database, or is corrupt."""
    cause = error.orig
    return isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode & 0xFF in _DAMAGED_CODES


class WriterLock:
    """Serializes write transactions over all threads and processes."""

    def __init__(self, of: Engine) -> None:
        self._path = f"{of.url.database}.lock"
        self._turn = threading.Lock()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for the lock and hold it."""
        with self._turn:
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)


def _restrict_permissions(database: str, *_: Any) -> None:
    """Restrict the files to their owner and group: they contain password hashes.

    SQLite creates the files beside a database with the same mode.
    """
    if not database or database.startswith((":memory:", "file:")):
        return
    with suppress(OSError):
        os.close(os.open(database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    for path in (database, f"{database}-wal", f"{database}-shm"):
        # An operator may choose a group; access of other users is removed.
        with suppress(OSError):
            mode = os.stat(path).st_mode & 0o777
            if mode & _OTHERS_MODE_BITS:
                os.chmod(path, mode & ~_OTHERS_MODE_BITS)


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver must not begin by itself: `begin_on_sqlite` does, with the right lock.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def begin_on_sqlite(connection: Connection, kind: TransactionKind) -> None:
    """Begin a transaction with the lock of its kind."""
    writes = _SYNCHRONOUS.get(kind)
    if writes:
        # Only possible between transactions; the next durable one syncs what this one did not.
        driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        driver.execute(writes)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


POSTGRESQL_CLOCK = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
"""Start of the statement, constant within it, so that an index applies."""

POSTGRESQL_DRIVER = "postgresql+psycopg"
LOCK_S, IDLE_S = 30, 60
"""Longest wait for a lock; longest time that a vanished client may hold one."""

# The planner overestimates look-ups of many keys, and JIT costs more than it saves. A plan made for
# a small table is reused while the table grows: it must use an index from the start, in index
# order, since a bitmap of what seemed one row may become the whole table.
_SETTINGS = (
    f"idle_in_transaction_session_timeout TO '{IDLE_S}s'",
    f"lock_timeout TO '{LOCK_S}s'",
    "jit TO off",
    "enable_seqscan TO off",
    "enable_bitmapscan TO off",
)
_SET_SESSION = "; ".join(f"SET {setting}" for setting in _SETTINGS)
# REPEATABLE READ: a reader sees one snapshot, as on SQLite.
_BEGIN: dict[TransactionKind, str] = {
    READ: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    DURABLE_WRITE: "BEGIN ISOLATION LEVEL READ COMMITTED",
    VOLATILE_WRITE: "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO off",
}
# One message each.
_BEGIN_POOLED = {
    kind: "; ".join((begin, *(f"SET LOCAL {setting}" for setting in _SETTINGS)))
    for kind, begin in _BEGIN.items()
}
_DIRECT = "direct"

# Options of libpq unless the URL sets them: a dead server or network is noticed within a minute,
# not after two hours.
_CONNECT_OPTIONS = {
    "application_name": "store",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
RECYCLE_S = 3600
"""Age at which a connection is replaced, so that load spreads over servers behind one name."""

# Classes: connection, rollback (deadlock), resources, object not ready, operator intervention
# (shutdown, start, cancel), system. States of class 25: a standby, and our own timeout.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
_TRANSIENT_STATES = frozenset({"25006", "25P03"})


def create_postgresql_engine(url: str, limits: PoolLimits) -> Engine:
    """Return the engine of a server, without connecting; SettingsError for an invalid URL."""
    address = _parse_postgresql_url(url)
    engine = create_engine(
        address,
        pool_size=limits.connections,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        pool_recycle=RECYCLE_S,
        pool_use_lifo=True,
        hide_parameters=True,
        # Autocommit: the driver must not send a BEGIN itself; `begin_on_postgresql` does.
        connect_args={"autocommit": True}
        | {name: value for name, value in _CONNECT_OPTIONS.items() if name not in address.query},
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _parse_postgresql_url(url: str) -> URL:
    """Parse the URL without repeating it in errors: it may contain a password."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError("the catalog's URL is invalid") from error
    if address.drivername != POSTGRESQL_DRIVER:
        raise SettingsError(
            f"the catalog's URL must begin with {POSTGRESQL_DRIVER}:// or sqlite:///"
        )
    return address


def is_transient_on_postgresql(error: DBAPIError) -> bool:
    """Return whether a retry may help; errors without a state are connection failures."""
    cause: Any = error.orig
    if not hasattr(cause, "sqlstate"):
        return False
    state: str | None = cause.sqlstate
    if state is None:
        return isinstance(error, OperationalError)
    return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES


def _prepare_postgresql(connection: Any, record: ConnectionPoolEntry) -> None:
    """Detect a pooler, and prepare the session unless there is one.

    A pooler invents the backend process id, and assigns a session to each transaction, which keeps
    neither prepared statements nor settings.
    """
    served_by = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
    record.info[_DIRECT] = served_by == connection.info.backend_pid
    if record.info[_DIRECT]:
        connection.execute(_SET_SESSION)
    else:
        connection.prepare_threshold = None


def is_direct_session(connection: Connection) -> bool:
    """Return whether the session is direct, so that a single statement needs no BEGIN."""
    return bool(connection.info[_DIRECT])


def begin_on_postgresql(connection: Connection, kind: TransactionKind) -> None:
    """Begin a transaction in one message."""
    connection.exec_driver_sql((_BEGIN if is_direct_session(connection) else _BEGIN_POOLED)[kind])


def lock_clause(connection: Connection, *, of: str = "", skip_locked: bool = False) -> str:
    """Return the FOR UPDATE clause of a query; empty on SQLite, whose writers lock the catalog.

    `of` is the alias of the one table to lock.
    """
    if connection.dialect.name == "sqlite":
        return ""
    return " FOR UPDATE" + (f" OF {of}" if of else "") + (" SKIP LOCKED" if skip_locked else "")
