"""Empty catalogs for tests: SQLite, and PostgreSQL where the environment names it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, Table, create_engine, text
from sqlalchemy.engine import make_url

from storage.catalog import Catalog, Tx, migrate, partitions
from storage.catalog.tables import metadata
from tests.waiting import PATIENCE_S

POSTGRES = os.environ.get("STORE_TEST_POSTGRES", "")
PGBOUNCER = os.environ.get("STORE_TEST_PGBOUNCER", "")
"""In transaction mode, for any database of its server, with the rights to create some."""

PARTS = int(os.environ.get("STORE_TEST_PARTS", "1"))
"""Parts of each table that can be partitioned, in all catalogs on servers that are lent."""

SERVERS = {"postgresql": POSTGRES, "pgbouncer": PGBOUNCER}
ENGINES = ["sqlite", *(name for name, url in SERVERS.items() if url)]


class Spares:
    """Migrated catalogs. Databases are emptied and lent again: to make one, and more so to drop
    one, waits for a checkpoint of its server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: dict[str, list[str]] = {name: [] for name in SERVERS}
        self._emptying: dict[str, Engine] = {}
        """A connection to each database: a new one knows no table yet, and would look for each."""

    @contextmanager
    def lend(self, engine: str, folder: Path) -> Iterator[str]:
        """The URL of a migrated, empty catalog that lasts as long as the block."""
        if engine == "sqlite":
            yield _copied(self._file(), folder)
            return
        idle = self._idle[engine]
        name = idle.pop() if idle else _made(SERVERS[engine])
        url = database(SERVERS[engine], name)
        yield url
        if url not in self._emptying:
            self._emptying[url] = _engine(url, pool_pre_ping=True)
        _execute(self._emptying[url], *EMPTYING)
        idle.append(name)

    def _file(self) -> Path:
        path = self._folder / "catalog.sqlite"
        if not path.exists():
            _migrate(f"sqlite:///{path}")
        return path

    def close(self) -> None:
        """Forget them."""
        for server in self._emptying.values():
            server.dispose()
        for engine, names in self._idle.items():
            _run(SERVERS[engine], *(f"DROP DATABASE {name} WITH (FORCE)" for name in names))


def _made(server: str) -> str:
    name = f"test_{uuid4().hex}"
    _run(server, f"CREATE DATABASE {name} TEMPLATE template0")
    _migrate(database(server, name))
    if PARTS > 1:
        partition_all(database(server, name), PARTS)
    return name


def partition_all(url: str, parts: int) -> None:
    """Give each table that can be partitioned so many parts."""
    catalog = Catalog(url)
    for table in partitions.PARTITION_KEYS:
        # The sessions of others that were closed end a little later.
        partitions.convert(catalog, table, parts, lock_timeout_s=PATIENCE_S)
    catalog.close()


def _made_later(table: Table) -> str:
    """What a migration made stays."""
    return " WHERE NOT built_in" if "built_in" in table.columns else ""


_OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
EMPTYING = (
    f"SELECT pg_terminate_backend(pid) FROM ({_OTHERS} AND pid <> pg_backend_pid()) AS other",
    "; ".join(
        f"DELETE FROM {table.name}{_made_later(table)}"
        for table in reversed(metadata.sorted_tables)
    ),
)
"""Whoever still holds anything there has had his time."""


@contextmanager
def fresh(server: str, *, more: str = "") -> Iterator[str]:
    """The URL of a new database on that server, without tables."""
    name = f"test_{uuid4().hex}"
    _run(server, f"CREATE DATABASE {name} TEMPLATE template0 {more}")
    try:
        yield database(server, name)
    finally:
        _run(server, f"DROP DATABASE {name} WITH (FORCE)")


def database(url: str, name: str) -> str:
    """The same server's other database."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _copied(path: Path, folder: Path) -> str:
    shutil.copy(path, folder / "catalog.sqlite")
    return f"sqlite:///{folder / 'catalog.sqlite'}"


def _migrate(url: str) -> None:
    catalog = Catalog(url)
    migrate.upgrade(catalog)
    catalog.close()


def _run(url: str, *statements: str) -> None:
    if not statements:
        return
    server = _engine(url)
    try:
        _execute(server, *statements)
    finally:
        server.dispose()


def _engine(url: str, **more: bool) -> Engine:
    plain = {"prepare_threshold": None}
    return create_engine(url, isolation_level="AUTOCOMMIT", connect_args=plain, **more)


def _execute(server: Engine, *statements: str) -> None:
    with server.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))


def list_differences(catalog: Catalog) -> list[Any]:
    """The differences between the tables and the schema of the code."""
    with catalog.read() as tx:
        names = list_partitions(tx)

        def include_name(name: str | None, kind: str, _parents: Any) -> bool:
            return kind != "table" or name not in names

        context = MigrationContext.configure(tx, opts={"include_name": include_name})
        return list(compare_metadata(context, metadata))


def list_partitions(tx: Tx) -> set[Any]:
    """The names of all partitions, which are tables of their own on PostgreSQL."""
    if tx.dialect.name == "sqlite":
        return set()
    return {*tx.execute(text("SELECT relname FROM pg_class WHERE relispartition")).scalars()}
