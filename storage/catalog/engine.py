"""The catalog's connection: reading and writing units of work, on SQLite and on PostgreSQL.

SQLite takes one writer at a time. A writing unit of work first queues on a file lock, then begins
IMMEDIATE: waiting in the kernel's queue is fair, where SQLite's own busy time-out starves writers.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from storage.errors import Unavailable

# Codes of SQLite: busy, locked, read-only, I/O error, full, cannot open.
_PASSING = frozenset({5, 6, 8, 10, 13, 14})

_SYNCHRONOUS = {"full": "PRAGMA synchronous=FULL", "passing": "PRAGMA synchronous=NORMAL"}

Tx = Connection
"""A unit of work in progress; opaque outside of `storage.catalog`."""


class Catalog:
    """Answers every question about what exists. Build it after forking: it holds connections."""

    def __init__(self, url: str, *, pool_size: int = 40) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        self._engine = _sqlite_engine(url, pool_size) if self.sqlite else _engine(url, pool_size)
        self._lock_path = f"{self._engine.url.database}.lock" if self.sqlite else ""
        self._turn = threading.Lock()

    @property
    def engine(self) -> Engine:
        """For migrations only."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A consistent view; never held over input or output."""
        with _translated(), self._engine.connect() as tx, tx.begin():
            yield tx

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Tx]:
        """All of it or nothing; committed when the block is left, and `durable` unless it is
        something that a power cut ends anyway, such as a claim: nobody waits for the disk then."""
        level = "full" if durable else "passing"
        with _translated(), self._writing_turn(), self._engine.connect() as connection:
            tx = connection.execution_options(store_writes=level)
            with tx.begin():
                yield tx

    @contextmanager
    def _writing_turn(self) -> Iterator[None]:
        if not self.sqlite:
            yield
            return
        with self._turn:
            handle = os.open(self._lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)

    def ping(self) -> str:
        """The engine's name and version; Unavailable when it cannot be reached."""
        query = "SELECT 'SQLite ' || sqlite_version()" if self.sqlite else "SHOW server_version"
        with self.read() as tx:
            return str(tx.execute(text(query)).scalar_one())

    def close(self) -> None:
        """Give every pooled connection back."""
        self._engine.dispose()


@lru_cache(maxsize=512)
def sql(statement: str) -> TextClause:
    """A statement in SQL, taken apart once: that costs more than most of them take to run."""
    return text(statement)


def now_us(tx: Tx) -> int:
    """The catalog's clock, microseconds since 1970 UTC."""
    if tx.dialect.name == "sqlite":
        return time.time_ns() // 1000
    micros = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")
    return int(tx.execute(micros).scalar_one())


@contextmanager
def _translated() -> Iterator[None]:
    """The engine being away, or busy, is Unavailable; everything else flies on."""
    try:
        yield
    except PoolTimeoutError as error:
        raise Unavailable("The catalog is too busy.", retry_after_s=1) from error
    except DBAPIError as error:
        if error.connection_invalidated or _is_passing(error):
            raise Unavailable("The catalog cannot be reached.", retry_after_s=1) from error
        raise


def _is_passing(error: DBAPIError) -> bool:
    """SQLite's driver calls a misspelled statement operational too; that will not pass."""
    if not isinstance(error, OperationalError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode & 0xFF in _PASSING
    return True


def _engine(url: str, pool_size: int) -> Engine:
    engine = create_engine(
        url, pool_size=pool_size, max_overflow=10, pool_pre_ping=True, hide_parameters=True
    )
    event.listen(engine, "begin", _begin_elsewhere)
    return engine


def _begin_elsewhere(connection: Connection) -> None:
    if connection.get_execution_options().get("store_writes") == "passing":
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def _sqlite_engine(url: str, pool_size: int) -> Engine:
    # The errors of a statement end in logs and in what /health says of a parked row.
    engine = create_engine(
        url, poolclass=QueuePool, pool_size=pool_size, max_overflow=20, hide_parameters=True
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver must not begin on its own: `_begin` does, with the right kind of lock.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=OFF",
        "busy_timeout=30000",
        "cache_size=-32000",
        "mmap_size=268435456",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("store_writes")
    if writes:
        # Only between two units of work; what was not synced is with the next that is.
        driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        driver.execute(_SYNCHRONOUS[writes])
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
