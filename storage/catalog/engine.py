"""The catalog's connection: reading and writing units of work, on SQLite and on PostgreSQL.

What each engine wants is in `on_sqlite` and `on_postgresql`; here is what both have in common.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, RootTransaction, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from storage.catalog import on_postgresql, on_sqlite
from storage.catalog.kinds import DURABLE, PASSING, READING, Kind, Limits
from storage.errors import CatalogDamaged, Unavailable

Tx = Connection
"""A unit of work in progress; opaque outside of `storage.catalog`."""
Answer = TypeVar("Answer")


class Catalog:
    """Answers every question about what exists. Build it after forking: it holds connections."""

    def __init__(
        self, url: str, *, connections: int = 40, overflow: int = 10, wait_s: float = 30.0
    ) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        limits = Limits(connections, overflow, wait_s)
        made = on_sqlite.engine if self.sqlite else on_postgresql.engine
        self._engine = made(url, limits)
        self._begin_with = on_sqlite.begin if self.sqlite else on_postgresql.begin
        self._turn = on_sqlite.Turns(self._engine).take if self.sqlite else nullcontext

    @property
    def engine(self) -> Engine:
        """For migrations only."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A consistent view; never held over input or output."""
        with _translated():
            transaction = self._begun(READING)
            with transaction.connection as tx, transaction:
                yield tx

    def ask(self, question: Callable[[Tx], Answer]) -> Answer:
        """What one statement answers: it sees one state of the catalog by itself."""
        is_again = False
        with _translated():
            while True:
                try:
                    with self._engine.connect() as tx:
                        if self.sqlite or not on_postgresql.is_direct(tx):
                            self._begin_with(tx, READING)
                        return question(tx)
                except DBAPIError as error:
                    if not error.connection_invalidated or is_again:
                        raise
                # The connection died while it was idle; the pool forgot all that it held.
                is_again = True

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Tx]:
        """All of it or nothing; committed when the block is left, and `durable` unless it is
        something that a power cut ends anyway, such as a claim: nobody waits for the disk then."""
        kind: Kind = DURABLE if durable else PASSING
        with _translated(), self._turn():
            transaction = self._begun(kind)
            with transaction.connection as tx, transaction:
                yield tx

    def _begun(self, kind: Kind) -> RootTransaction:
        """A connection that was idle may have died: beginning finds out, when nothing is lost
        yet. That spares every unit of work a question whether its connection lives."""
        try:
            return self._begin(kind)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        # The pool forgot all that it held: this one is new.
        return self._begin(kind)

    def _begin(self, kind: Kind) -> RootTransaction:
        connection = self._engine.connect()
        try:
            transaction: RootTransaction = connection.begin()
            # Not as an event: for one listener SQLAlchemy looks for more at every statement.
            self._begin_with(connection, kind)
            return transaction
        except BaseException:
            connection.close()
            raise

    def ping(self) -> str:
        """The engine's name and version; Unavailable when it cannot be reached."""
        query = "SELECT 'SQLite ' || sqlite_version()" if self.sqlite else "SHOW server_version"
        with self.read() as tx:
            return str(tx.execute(text(query)).scalar_one())

    def probe(self) -> None:
        """Write one row, always the same; Unavailable when the catalog takes no writes."""
        with self.write() as tx:
            tx.execute(
                sql(
                    "INSERT INTO meta (key, value) VALUES ('probe', :now) ON CONFLICT (key)"
                    " DO UPDATE SET value = excluded.value"
                ),
                {"now": str(now_us(tx))},
            )

    def close(self) -> None:
        """Give every pooled connection back."""
        self._engine.dispose()


@lru_cache(maxsize=512)
def sql(statement: str) -> TextClause:
    """A statement in SQL, taken apart once: that costs more than most of them take to run."""
    return text(statement)


def execute_sql(
    tx: Tx, statement: str, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> CursorResult[Any]:
    """Run a statement in SQL with `:name` for each parameter; many times with a list of them.

    sqlite3 understands such names itself, which halves what SQLAlchemy takes for each statement.
    """
    if tx.dialect.name == "sqlite":
        return tx.exec_driver_sql(statement, parameters)
    return tx.execute(sql(statement), parameters)


def now_us(tx: Tx) -> int:
    """The catalog's clock, microseconds since 1970 UTC."""
    if tx.dialect.name == "sqlite":
        return time.time_ns() // 1000
    return int(tx.execute(sql(f"SELECT {on_postgresql.CLOCK}")).scalar_one())


def execute_now(tx: Tx, statement: str, parameters: Mapping[str, Any]) -> CursorResult[Any]:
    """Run a statement in which `:now` is the catalog's clock, without asking for it beforehand."""
    if tx.dialect.name == "sqlite":
        now = time.time_ns() // 1000
        return tx.exec_driver_sql(statement, {**parameters, "now": now})
    return tx.execute(sql(statement.replace(":now", on_postgresql.CLOCK)), parameters)


@contextmanager
def _translated() -> Iterator[None]:
    """The engine being away, or busy, is Unavailable; a file that is no catalog is CatalogDamaged;
    everything else flies on."""
    try:
        yield
    except PoolTimeoutError as error:
        raise Unavailable("The catalog is too busy.", retry_after_s=1) from error
    except DBAPIError as error:
        if on_sqlite.is_disk_full(error):
            detail = "The catalog takes no writes: its disk is full."
            raise Unavailable(detail, retry_after_s=5) from error
        if error.connection_invalidated or _passes(error):
            raise Unavailable("The catalog cannot be reached.", retry_after_s=1) from error
        if on_sqlite.is_damaged(error):
            raise CatalogDamaged("The catalog is damaged.") from error
        raise


def _passes(error: DBAPIError) -> bool:
    return on_sqlite.passes(error) or on_postgresql.passes(error)
