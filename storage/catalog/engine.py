"""Connection pool and transactions of the catalog, on SQLite and on PostgreSQL.

A write transaction on SQLite first waits for a file lock, then begins IMMEDIATE: the kernel's queue
is fair, while SQLite's own busy timeout starves writers.

On PostgreSQL, session settings are sent once per connection. Behind a pooler, which may assign
another session to every transaction, they are sent with each BEGIN.
"""

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from sqlalchemy import Connection, Engine, RootTransaction, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from config import SettingsError
from storage.catalog.sql import Answer, Tx, now_us, upsert
from storage.catalog.standby import CatalogStandby
from storage.catalog.tables.jobs import meta
from storage.errors import CatalogDamagedError, Unavailable
from storage.metrics import (
    CATALOG_CONNECTIONS,
    CATALOG_POOL_USED,
    CATALOG_READS,
    find_process,
    sample_gauge,
)

log = logging.getLogger(__name__)
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


def _create_sqlite_engine(url: str, limits: PoolLimits) -> Engine:
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
    # The driver must not begin by itself: `_begin_on_sqlite` does, with the right lock.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_on_sqlite(connection: Connection, kind: TransactionKind) -> None:
    """Begin a transaction with the lock of its kind."""
    writes = _SYNCHRONOUS.get(kind)
    if writes:
        # Only possible between transactions; the next durable one syncs what this one did not.
        driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        driver.execute(writes)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


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
# A dead standby is noticed sooner, since the primary answers in its place.
_STANDBY_OPTIONS = {"application_name": "store reads", "connect_timeout": "3"} | {
    "tcp_user_timeout": "5000"
}
_STANDBY_WAIT_S = 1.0
"""Longest wait for a connection to the standby."""
RECYCLE_S = 3600
"""Age at which a connection is replaced, so that load spreads over servers behind one name."""

# Classes: connection, rollback (deadlock), resources, object not ready, operator intervention
# (shutdown, start, cancel), system. States of class 25: a standby, and our own timeout.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
_TRANSIENT_STATES = frozenset({"25006", "25P03"})


def _create_postgresql_engine(
    url: str, limits: PoolLimits, more_options: Mapping[str, str] = MappingProxyType({})
) -> Engine:
    """Return the engine of a server, without connecting; SettingsError for an invalid URL."""
    address, options = _parse_postgresql_url(url), {**_CONNECT_OPTIONS, **more_options}
    engine = create_engine(
        address,
        pool_size=limits.connections,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        pool_recycle=RECYCLE_S,
        pool_use_lifo=True,
        hide_parameters=True,
        # Autocommit: the driver must not send a BEGIN itself; `_begin_on_postgresql` does.
        connect_args={"autocommit": True}
        | {name: value for name, value in options.items() if name not in address.query},
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


def _begin_on_postgresql(connection: Connection, kind: TransactionKind) -> None:
    """Begin a transaction in one message."""
    connection.exec_driver_sql((_BEGIN if is_direct_session(connection) else _BEGIN_POOLED)[kind])


class PoolSampler:
    """Samples a pool for its metrics as long as a catalog refers to it.

    A bundle takes dozens of connections from the pool.
    """

    def __init__(self, engine: Engine, limits: PoolLimits) -> None:
        self._engine, self._limit = engine, limits.connections + limits.overflow
        CATALOG_CONNECTIONS.labels("limit").set(self._limit)
        sample_gauge(CATALOG_CONNECTIONS.labels("in_use"), self.count_used)
        sample_gauge(CATALOG_CONNECTIONS.labels("idle"), self.count_idle)
        sample_gauge(CATALOG_POOL_USED.labels(find_process()), self.measure_share)

    @property
    def _pool(self) -> QueuePool:
        """The pool of now: `dispose` replaces it."""
        return cast(QueuePool, self._engine.pool)

    def count_used(self) -> float:
        """Return the number of connections in use."""
        return self._pool.checkedout()

    def count_idle(self) -> float:
        """Return the number of idle connections."""
        return self._pool.checkedin()

    def measure_share(self) -> float:
        """Return the share of connections in use."""
        return self.count_used() / self._limit


def _open_standby(url: str, primary_url: str, limits: PoolLimits, lag_s: float) -> CatalogStandby:
    """Return the standby at this URL, without connecting; SettingsError unless it can be one."""
    if primary_url.startswith("sqlite"):
        raise SettingsError(
            "STORE_CATALOG_READ_URL: needs a catalog on PostgreSQL (STORE_CATALOG_URL is SQLite)"
        )
    one = PoolLimits(1, 1, _STANDBY_WAIT_S)
    # While a standby hangs, threads wait for it: never so many that none is left for the primary.
    some = PoolLimits(max(1, limits.connections // 2), limits.overflow // 2, _STANDBY_WAIT_S)
    try:
        engine = _create_postgresql_engine(url, some, _STANDBY_OPTIONS)
        measured = _create_postgresql_engine(url, one, _STANDBY_OPTIONS)
    except SettingsError as error:
        raise SettingsError(f"STORE_CATALOG_READ_URL: {error}") from error
    primary = _create_postgresql_engine(primary_url, one)
    return CatalogStandby(engine, measured=measured, primary=primary, max_lag_s=lag_s)


class Catalog:
    """The catalog's database. Create it after forking, since it holds connections.

    `read_url` is a standby, from which `read_stale` reads while it is at most `max_lag_s` behind.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 40,
        overflow: int = 10,
        wait_s: float = 30.0,
        read_url: str = "",
        max_lag_s: float = 5.0,
    ) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        limits = PoolLimits(connections, overflow, wait_s)
        if self.sqlite:
            self._engine = _create_sqlite_engine(url, limits)
        else:
            self._engine = _create_postgresql_engine(url, limits)
        self._reader = self._engine
        self.standby = _open_standby(read_url, url, limits, max_lag_s) if read_url else None
        self._sampler: PoolSampler | None = PoolSampler(self._engine, limits)
        self._begin_with = _begin_on_sqlite if self.sqlite else _begin_on_postgresql
        self._turn = WriterLock(self._engine).acquire if self.sqlite else nullcontext

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for migrations only."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Open a read transaction with one consistent snapshot; never hold it over I/O."""
        with _translate_errors():
            transaction = self._begin(READ, self._reader)
            with transaction.connection as tx, transaction:
                yield tx

    def run_query(self, question: Callable[[Tx], Answer]) -> Answer:
        """Run a single query, which sees a snapshot without a transaction."""
        # What fails on a standby is retried on the primary.
        is_again = self._reader is not self._engine
        with _translate_errors():
            while True:
                try:
                    with self._reader.connect() as tx:
                        if self.sqlite or not is_direct_session(tx):
                            self._begin_with(tx, READ)
                        return question(tx)
                except DBAPIError as error:
                    if not error.connection_invalidated or is_again:
                        raise
                # The connection died while idle, and the pool has discarded all of them.
                is_again = True

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Tx]:
        """Open a write transaction, committed at the end of the block.

        Without `durable`, the commit does not wait for the disk: for changes such as claims, which
        a power failure voids anyway.
        """
        kind: TransactionKind = DURABLE_WRITE if durable else VOLATILE_WRITE
        with _translate_errors(), self._turn():
            transaction = self._begin(kind, self._engine)
            # A standby does not know yet what was written.
            self._reader = self._engine
            with transaction.connection as tx, transaction:
                yield tx

    def _begin(self, kind: TransactionKind, engine: Engine) -> RootTransaction:
        """Begin, once more if the idle connection had died: nothing is lost yet.

        This spares a liveness check before each transaction.
        """
        # What fails on a standby is retried on the primary.
        is_again = engine is not self._engine
        while True:
            connection = engine.connect()
            try:
                transaction: RootTransaction = connection.begin()
                # Not as an event: with one listener SQLAlchemy looks for others at every statement.
                self._begin_with(connection, kind)
                return transaction
            except BaseException as error:
                connection.close()
                if is_again or not (isinstance(error, DBAPIError) and error.connection_invalidated):
                    raise
            # The pool has discarded all connections: the next one is new.
            is_again = True

    def read_stale(
        self, ask: Callable[["Catalog"], Answer], *, is_complete: Callable[[Answer], bool]
    ) -> Answer:
        """Ask for what may be a little old: the standby, or the primary.

        `ask` reads from the catalog that it is given. What fails on the standby or is not complete
        there is retried on the primary, which may have it already.
        """
        standby = self.standby
        if standby is None:
            return ask(self)
        if not standby.is_usable():
            CATALOG_READS.labels("primary").inc()
            return ask(self)
        lagging = copy(self)
        lagging._reader = standby.engine
        try:
            answer = ask(lagging)
        except Exception as error:
            log.debug("retried on the primary, after the standby: %s", error)
        else:
            if is_complete(answer):
                CATALOG_READS.labels("standby").inc()
                return answer
        CATALOG_READS.labels("both").inc()
        return ask(self)

    def ping(self) -> str:
        """Return the engine's name and version; Unavailable when it cannot be reached."""
        query = "SELECT 'SQLite ' || sqlite_version()" if self.sqlite else "SHOW server_version"
        with self.read() as tx:
            return str(tx.execute(text(query)).scalar_one())

    def probe(self) -> None:
        """Write one row, always the same; Unavailable when writes fail."""
        with self.write() as tx:
            upsert(tx, meta, {"key": "probe", "value": str(now_us(tx))})

    def close(self) -> None:
        """Close all pooled connections, and stop showing them in metrics."""
        self._sampler = None
        self._engine.dispose()
        if self.standby is not None:
            self.standby.close()


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate driver errors to Unavailable (unreachable, busy) and CatalogDamagedError."""
    try:
        yield
    except PoolTimeoutError as error:
        raise Unavailable("The catalog is too busy.", retry_after_s=1) from error
    except DBAPIError as error:
        if _sqlite_code(error) == sqlite3.SQLITE_FULL:
            detail = "The catalog cannot write: its disk is full."
            raise Unavailable(detail, retry_after_s=5) from error
        if error.connection_invalidated or _is_transient(error):
            raise Unavailable("The catalog cannot be reached.", retry_after_s=1) from error
        if _sqlite_code(error) in _DAMAGED_CODES:
            raise CatalogDamagedError("The catalog is damaged.") from error
        raise


def _sqlite_code(error: DBAPIError) -> int | None:
    """Return the primary error code of SQLite; None on PostgreSQL."""
    cause = error.orig
    return cause.sqlite_errorcode & 0xFF if isinstance(cause, sqlite3.Error) else None


def _is_transient(error: DBAPIError) -> bool:
    """Return whether a retry may help; without a state the connection failed."""
    if (code := _sqlite_code(error)) is not None:
        # The driver also calls misspelled SQL an OperationalError.
        return isinstance(error, OperationalError) and code in _TRANSIENT_CODES
    cause: Any = error.orig
    if not hasattr(cause, "sqlstate"):
        return False
    state: str | None = cause.sqlstate
    if state is None:
        return isinstance(error, OperationalError)
    return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES
