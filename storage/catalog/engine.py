"""Connection pool and transactions of the catalog, on SQLite and on PostgreSQL.

`dialects` has the differences between the two.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from inspect import signature
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    CursorResult,
    Engine,
    Executable,
    RootTransaction,
    Row,
    Table,
    TextClause,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from storage.catalog import dialects
from storage.catalog.dialects import (
    DURABLE_WRITE,
    READ,
    VOLATILE_WRITE,
    PoolLimits,
    TransactionKind,
)
from storage.errors import CatalogDamagedError, Unavailable

Tx = Connection
"""An open transaction; opaque outside of `storage.catalog`."""
Answer = TypeVar("Answer")


class Catalog:
    """The catalog's database. Create it after forking, since it holds connections."""

    def __init__(
        self, url: str, *, connections: int = 40, overflow: int = 10, wait_s: float = 30.0
    ) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        limits = PoolLimits(connections, overflow, wait_s)
        create = dialects.create_sqlite_engine if self.sqlite else dialects.create_postgresql_engine
        self._engine = create(url, limits)
        self._begin_with = dialects.begin_on_sqlite if self.sqlite else dialects.begin_on_postgresql
        self._turn = dialects.WriterLock(self._engine).acquire if self.sqlite else nullcontext

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for migrations only."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """Open a read transaction with one consistent snapshot; never hold it over I/O."""
        with _translate_errors():
            transaction = self._begin_with_retry(READ)
            with transaction.connection as tx, transaction:
                yield tx

    def run_query(self, question: Callable[[Tx], Answer]) -> Answer:
        """Run a single query, which sees a snapshot without a transaction."""
        is_again = False
        with _translate_errors():
            while True:
                try:
                    with self._engine.connect() as tx:
                        if self.sqlite or not dialects.is_direct_session(tx):
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
            transaction = self._begin_with_retry(kind)
            with transaction.connection as tx, transaction:
                yield tx

    def _begin_with_retry(self, kind: TransactionKind) -> RootTransaction:
        """Begin, once more if the idle connection had died: nothing is lost yet.

        This spares a liveness check before each transaction.
        """
        try:
            return self._begin_transaction(kind)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        # The pool has discarded all connections: this one is new.
        return self._begin_transaction(kind)

    def _begin_transaction(self, kind: TransactionKind) -> RootTransaction:
        connection = self._engine.connect()
        try:
            transaction: RootTransaction = connection.begin()
            # Not as an event: with one listener SQLAlchemy looks for others at every statement.
            self._begin_with(connection, kind)
            return transaction
        except BaseException:
            connection.close()
            raise

    def ping(self) -> str:
        """Return the engine's name and version; Unavailable when it cannot be reached."""
        query = "SELECT 'SQLite ' || sqlite_version()" if self.sqlite else "SHOW server_version"
        with self.read() as tx:
            return str(tx.execute(text(query)).scalar_one())

    def probe(self) -> None:
        """Write one row, always the same; Unavailable when writes fail."""
        with self.write() as tx:
            statement = (
                "INSERT INTO meta (key, value) VALUES ('probe', :time) ON CONFLICT (key)"
                " DO UPDATE SET value = excluded.value"
            )
            execute_sql(tx, statement, {"time": str(now_us(tx))})

    def close(self) -> None:
        """Close all pooled connections."""
        self._engine.dispose()


@lru_cache(maxsize=512)
def sql(statement: str) -> TextClause:
    """Return a parsed statement, cached: parsing costs more than running most of them."""
    return text(statement)


def execute_sql(
    tx: Tx, statement: str, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> CursorResult[Any]:
    """Run a SQL statement with `:name` parameters, several times for a list of them.

    On SQLite the driver binds such names itself, which halves the overhead of SQLAlchemy.
    """
    if tx.dialect.name == "sqlite":
        return tx.exec_driver_sql(statement, parameters)
    return tx.execute(sql(statement), parameters)


def now_us(tx: Tx) -> int:
    """Return the time of the catalog's clock, in microseconds since 1970 UTC."""
    if tx.dialect.name == "sqlite":
        return time.time_ns() // 1000
    return int(tx.execute(sql(f"SELECT {dialects.POSTGRESQL_CLOCK}")).scalar_one())


def execute_now(tx: Tx, statement: str, parameters: Mapping[str, Any]) -> CursorResult[Any]:
    """Run a SQL statement in which `:now` is the catalog's clock."""
    if tx.dialect.name == "sqlite":
        now = time.time_ns() // 1000
        return tx.exec_driver_sql(statement, {**parameters, "now": now})
    return tx.execute(sql(statement.replace(":now", dialects.POSTGRESQL_CLOCK)), parameters)


def make_mapper(make: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return a function of a row that calls `make` with the columns named like its parameters.

    Keyword arguments of that function take the place of columns.
    """
    names = tuple(signature(make).parameters)

    def map_row(row: Row[Any], **given: Any) -> Answer:
        columns = row._mapping
        return make(**{name: columns[name] for name in names if name not in given}, **given)

    return map_row


def list_columns(table: Table, name: str) -> str:
    """Return the columns of `table AS name`: a prepared `*` fails once there is another column."""
    return ", ".join(f"{name}.{column.name}" for column in table.columns)


def find_row(
    tx: Tx,
    mapper: Callable[[Row[Any]], Answer],
    query: Executable,
    parameters: Mapping[str, Any] | None = None,
) -> Answer | None:
    """Return the first row of a query, mapped; None without rows."""
    row: Row[Any] | None = tx.execute(query, parameters).first()
    return None if row is None else mapper(row)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate driver errors to Unavailable (unreachable, busy) and CatalogDamagedError."""
    try:
        yield
    except PoolTimeoutError as error:
        raise Unavailable("The catalog is too busy.", retry_after_s=1) from error
    except DBAPIError as error:
        if dialects.is_disk_full(error):
            detail = "The catalog cannot write: its disk is full."
            raise Unavailable(detail, retry_after_s=5) from error
        if error.connection_invalidated or _is_transient(error):
            raise Unavailable("The catalog cannot be reached.", retry_after_s=1) from error
        if dialects.is_damaged(error):
            raise CatalogDamagedError("The catalog is damaged.") from error
        raise


def _is_transient(error: DBAPIError) -> bool:
    return dialects.is_transient_on_sqlite(error) or dialects.is_transient_on_postgresql(error)
