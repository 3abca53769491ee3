"""Migrations of catalogs in use lose nothing and run once."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, MetaData, event, text

from storage.catalog import Catalog, migrate, revisions
from storage.errors import Invalid, Unavailable
from tests.catalogs import list_differences

pytestmark = pytest.mark.spec("OPS-05")

ROWS = 3


def upgraded(catalog: Catalog, revision: str) -> None:
    config = migrate._alembic_config()
    with catalog.write() as tx:
        config.attributes["connection"] = tx
        command.upgrade(config, revision)


def reflected(catalog: Catalog) -> MetaData:
    """The tables as they are now, whatever this code expects of them."""
    found = MetaData()
    with catalog.read() as tx:
        found.reflect(tx)
    return found


def fill(catalog: Catalog) -> dict[str, list[dict[str, Any]]]:
    """A few rows in every table, by what the tables say of themselves."""
    tables = [
        table for table in reflected(catalog).sorted_tables if table.name != "alembic_version"
    ]
    with catalog.write() as tx:
        for table in tables:
            for number in range(1, ROWS + 1):
                row = {column.name: _value(column, number) for column in table.columns}
                names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
                tx.execute(text(f"INSERT INTO {table.name} ({names}) VALUES ({places})"), row)
    return rows(catalog, [table.name for table in tables])


def _value(column: Any, number: int) -> Any:
    if isinstance(column.type, Boolean) or column.name in ("diverged", "indexed"):
        return number % 2 == 0
    if isinstance(column.type, LargeBinary):
        return b"\x00" * number
    if isinstance(column.type, BigInteger | Integer | Float):
        return number
    return f"{column.name} {number} é"


def rows(catalog: Catalog, tables: list[str]) -> dict[str, list[dict[str, Any]]]:
    with catalog.read() as tx:
        return {
            name: sorted(
                (dict(row) for row in tx.execute(text(f"SELECT * FROM {name}")).mappings()),
                key=str,
            )
            for name in tables
        }


def test_data_survives_every_migration(blank_url: str) -> None:
    catalog = Catalog(blank_url)
    upgraded(catalog, "0001")
    before = fill(catalog)
    assert {len(held) for held in before.values()} == {ROWS}
    migrate.upgrade(catalog)
    after = rows(catalog, list(before))
    for name, held in before.items():
        kept = [{key: row[key] for key in held[0]} for row in after[name]]
        assert kept == held, name
    assert list_differences(catalog) == []
    catalog.close()


def test_revisions_match_alembic() -> None:
    scripts = ScriptDirectory.from_config(migrate._alembic_config())
    assert revisions.expected_revision() == scripts.get_current_head()
    assert {
        one.revision
        for one in scripts.walk_revisions()
        if revisions.is_known_revision(one.revision)
    } == {path.name[:4] for path in (revisions.MIGRATIONS_FOLDER / "versions").glob("*.py")}


_MIGRATE = """
import sys
from storage.catalog import Catalog, migrate
catalog = Catalog(sys.argv[1])
print(migrate.upgrade(catalog))
catalog.close()
"""


def test_processes_that_migrate_at_once_migrate_once(blank_url: str) -> None:
    def run(_: int) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", _MIGRATE, blank_url], capture_output=True, text=True, check=False
        )
        return ended.stdout.strip() or ended.stderr

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [revisions.expected_revision()] * 3
    catalog = Catalog(blank_url)
    assert list_differences(catalog) == []
    catalog.close()


@pytest.fixture
def migrated(blank_url: str) -> Iterator[Catalog]:
    catalog = Catalog(blank_url)
    migrate.upgrade(catalog)
    yield catalog
    catalog.close()


def test_additions_are_undone_and_made_again(migrated: Catalog) -> None:
    kept = set(reflected(migrated).tables) - {"quotas", "quota_usage", "quota_reservations"}
    assert migrate.downgrade(migrated, "0021") == "0021"
    assert set(reflected(migrated).tables) == kept
    assert migrate.upgrade(migrated) == revisions.expected_revision()
    assert list_differences(migrated) == []


@pytest.mark.parametrize(("revision", "reason"), [("0020", "cannot be undone"), ("x", "never")])
def test_what_cannot_be_undone_changes_nothing(
    migrated: Catalog, revision: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        migrate.downgrade(migrated, revision)
    assert revisions.read_current_revision(migrated) == revisions.expected_revision()


def test_migration_gives_up_instead_of_blocking(server: Catalog) -> None:
    def migrating() -> None:
        with server.write() as tx:
            migrate._lock_migrations(tx)
            tx.execute(text("SET LOCAL lock_timeout TO '100ms'"))
            tx.execute(text("ALTER TABLE todo ADD COLUMN more bigint"))

    with server.read() as reader:
        reader.execute(text("SELECT count(*) FROM todo"))
        with pytest.raises(Unavailable):
            migrating()


def test_a_migration_waits_for_locks_a_while_only(server: Catalog) -> None:
    with server.write() as tx:
        migrate._lock_migrations(tx)
        assert tx.execute(text("SHOW lock_timeout")).scalar_one() == f"{migrate.LOCK_TIMEOUT_S}s"


_HOLDS_UP = ("CREATE INDEX", "CREATE UNIQUE INDEX", " TYPE ", "ADD CONSTRAINT", "SET NOT NULL")


def test_long_locks_are_logged(server_blank_url: str) -> None:
    catalog = Catalog(server_blank_url)
    upgraded(catalog, "0001")
    said: list[str] = []
    event.listen(catalog.engine, "before_cursor_execute", lambda *told: said.append(told[2]))
    scripts = ScriptDirectory.from_config(migrate._alembic_config())
    for script in reversed(list(scripts.iterate_revisions("head", "0001"))):
        said.clear()
        upgraded(catalog, script.revision)
        slow = [line for line in said if any(word in line for word in _HOLDS_UP)]
        # A table that the same revision creates is not in use yet.
        fresh = {found[1] for line in said if (found := re.search(r"CREATE TABLE (\w+)", line))}
        slow = [line for line in slow if not re.search(rf"\bON ({'|'.join(fresh) or '-'})\b", line)]
        assert not slow or getattr(script.module, "locks", ""), f"{script.revision}: {slow}"
    catalog.close()


def test_announces_locks_before_migration(blank_url: str, caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog(blank_url)
    upgraded(catalog, "0002")
    migrate.upgrade(catalog)
    assert "migration 0003 locks presence" in caplog.text
    catalog.close()
