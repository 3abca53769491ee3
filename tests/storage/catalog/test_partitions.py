"""Large tables on PostgreSQL are partitioned by hash, and made one table again."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, PrimaryKeyConstraint, UniqueConstraint, text
from sqlalchemy.engine import make_url

from storage.catalog import Catalog, Tx, migrate, partitions, recovery, versions
from storage.catalog.partitions import PARTITION_KEYS
from storage.catalog.tables import metadata
from storage.errors import DomainError, Invalid, Unavailable
from storage.model import REPLICAS
from tests.builders import new_uuid
from tests.catalogs import (
    EMPTYING,
    POSTGRES,
    fresh,
    list_differences,
    list_partitions,
    partition_all,
)
from tests.ops.commands import run_json, typed
from tests.storage.catalog import test_bundles, test_concurrency
from tests.storage.catalog.bulk_rows import fill, some
from tests.storage.catalog.query_plans import plans_of
from tests.storage.catalog.test_query_plans import CALLS, SMALL
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spec("OPS-63")

PARTS = 4
UNIQUE = PrimaryKeyConstraint, UniqueConstraint
ON_POSTGRES = [POSTGRES] if POSTGRES else []


@pytest.fixture(scope="module", params=ON_POSTGRES, ids=["postgresql"][: len(ON_POSTGRES)])
def filled(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """Something of everything, in plain tables before and after each test."""
    with fresh(request.param) as url:
        catalog = Catalog(url)
        migrate.upgrade(catalog)
        fill(catalog, files=4_000, bundles=400)
        yield catalog
        catalog.close()


def end_sessions(catalog: Catalog) -> None:
    """Close all sessions of the catalog except one."""

    def is_alone() -> bool:
        with catalog.read() as tx:
            return not tx.execute(text(_SESSIONS)).scalar_one()

    catalog.engine.dispose()
    until(is_alone)


_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def convert(catalog: Catalog, table: str, parts: int) -> int:
    """Convert a table, after the other sessions of the catalog have ended."""
    catalog.engine.dispose()
    return partitions.convert(catalog, table, parts, lock_timeout_s=PATIENCE_S)


@contextmanager
def partitioned(catalog: Catalog) -> Iterator[None]:
    """All tables have parts within the block."""
    for table in PARTITION_KEYS:
        convert(catalog, table, PARTS)
    try:
        yield
    finally:
        for table in PARTITION_KEYS:
            convert(catalog, table, 1)


@contextmanager
def other_role(catalog: Catalog, *grants: str) -> Iterator[Catalog]:
    """The catalog, for a role that has these privileges only."""
    role = f"other_{new_uuid().replace('-', '')}"
    execute(
        catalog,
        f"CREATE ROLE {role} LOGIN PASSWORD '{role}'",
        *(f"GRANT {grant} TO {role}" for grant in grants),
    )
    url = make_url(catalog.url).set(username=role, password=role)
    opened = Catalog(url.render_as_string(hide_password=False))
    try:
        yield opened
    finally:
        opened.close()
        execute(catalog, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def fingerprint(catalog: Catalog) -> list[object]:
    """What `ops fingerprint` prints, and all rows of the tables that have parts."""
    with catalog.read() as tx:
        parts = [part for name in REPLICAS for part in recovery.compute_fingerprint(tx, name)]
        sums = [
            tx.execute(
                text(
                    "SELECT count(*), md5(string_agg(row, ',' ORDER BY row)) FROM"
                    f" (SELECT CAST(t AS text) AS row FROM {table} AS t) AS rows"
                )
            ).one()
            for table in PARTITION_KEYS
        ]
    return [*parts, *sums]


_STRUCTURE = (
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(:t)",
    "SELECT replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') FROM pg_index"
    " WHERE indrelid = to_regclass(:t)",
    "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attcollation,"
    " pg_get_expr(adbin, adrelid) FROM pg_attribute LEFT JOIN pg_attrdef"
    " ON adrelid = attrelid AND adnum = attnum WHERE attrelid = to_regclass(:t) AND attnum > 0",
    "SELECT pg_get_userbyid(relowner), CAST(relacl AS text) FROM pg_class"
    " WHERE oid = to_regclass(:t)",
    # Parts have the owner and the storage parameters of the table.
    "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass(:t)"
    " OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(:t))",
    "SELECT DISTINCT reloptions FROM pg_class WHERE relkind = 'r' AND (oid = to_regclass(:t)"
    " OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(:t)))",
)


def structure(catalog: Catalog) -> dict[str, list[list[str]]]:
    """Constraints, indexes, columns, owner, privileges and storage parameters."""
    with catalog.read() as tx:
        return {
            table: [
                sorted(str(row) for row in tx.execute(text(query), {"t": table}))
                for query in _STRUCTURE
            ]
            for table in PARTITION_KEYS
        }


def execute(catalog: Catalog, *statements: str) -> None:
    with catalog.write() as tx:
        for statement in statements:
            tx.exec_driver_sql(statement)


def test_keys_are_in_every_unique_constraint() -> None:
    for table in metadata.sorted_tables:
        unique: list[Iterable[Column[Any]]] = [
            *(one.columns for one in table.constraints if isinstance(one, UNIQUE)),
            *(one.columns for one in table.indexes if one.unique),
        ]
        if key := PARTITION_KEYS.get(table.name):
            assert unique
            assert all(key in [column.name for column in columns] for columns in unique)
        refers = {key.column.table.name for key in table.foreign_keys}
        assert not refers & set(PARTITION_KEYS), table.name


def test_table_is_the_same_with_parts_and_without_again(filled: Catalog) -> None:
    role = f"reporting_{new_uuid().replace('-', '')}"
    execute(
        filled,
        f"CREATE ROLE {role}",
        f"GRANT SELECT ON visible TO {role} WITH GRANT OPTION",
        "GRANT INSERT ON entries TO PUBLIC",
        f"ALTER TABLE presence OWNER TO {role}",
        "ALTER TABLE entries SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01)",
    )
    try:
        content, columns = fingerprint(filled), structure(filled)
        with partitioned(filled):
            assert fingerprint(filled) == content
            assert structure(filled) == columns
            assert list_differences(filled) == []
            with filled.read() as tx:
                state = partitions.read_state(tx, "visible")
                assert (state.parts, state.rows, state.indexes) == (PARTS, 4_800, 1)
            # From one number of parts to another.
            assert convert(filled, "visible", 3) == 4_800
            assert fingerprint(filled) == content
        assert fingerprint(filled) == content
        assert structure(filled) == columns
        assert list_differences(filled) == []
        with filled.read() as tx:
            assert list_partitions(tx) == set()
    finally:
        execute(
            filled,
            "ALTER TABLE entries RESET (fillfactor, autovacuum_vacuum_scale_factor)",
            "ALTER TABLE presence OWNER TO CURRENT_USER",
            "REVOKE INSERT ON entries FROM PUBLIC",
            f"DROP OWNED BY {role}",
            f"DROP ROLE {role}",
        )


def test_prepared_statements_continue_over_a_conversion(filled: Catalog) -> None:
    [fqid] = some(filled, "bundle", 1)
    others = Catalog(filled.url, connections=1, overflow=0)

    def ask() -> tuple[object, ...]:
        with others.read() as tx:
            found = versions.find_latest(tx, "bundle", "aws", fqid.uuid)
            return found, versions.list_published(
                tx, "bundle", "aws", prefix="", after=fqid, limit=9
            )

    try:
        # So often that the server has prepared the statements and their plans.
        answers = [ask() for _ in range(12)]
        filled.engine.dispose()
        for parts in (PARTS, 1):
            partitions.convert(others, "visible", parts, lock_timeout_s=PATIENCE_S)
            answers += [ask() for _ in range(12)]
        assert answers == answers[:1] * 36
    finally:
        others.close()


def test_plans_read_one_part_of_a_key_and_sort_nothing(filled: Catalog) -> None:
    fqid = some(filled, "file", 1)[0]
    acts: dict[str, Callable[[Tx], object]] = {
        "latest": lambda tx: versions.find_latest(tx, "file", "aws", fqid.uuid),
        "published": lambda tx: versions.find_published(tx, "file", "aws", fqid),
        "listing": lambda tx: versions.list_published(
            tx, "file", "aws", prefix="", after=fqid, limit=100
        ),
    }
    with partitioned(filled):
        plans = {
            (name, generic): "\n".join(plans_of(filled, act, generic=generic))
            for name, act in acts.items()
            for generic in (False, True)
        }
        for (name, generic), plan in plans.items():
            parts = PARTS if name == "listing" else 1
            assert plan.count("using visible_") == parts, f"{name} {generic=}\n{plan}"
            assert "Seq Scan" not in plan, f"{name} {generic=}\n{plan}"
            assert "Sort  (" not in plan, f"{name} {generic=}\n{plan}"


def test_no_question_reads_a_whole_part(filled: Catalog) -> None:
    with partitioned(filled):
        for generic in (False, True):
            for name, (act, _) in CALLS.items():
                plans = "\n\n".join(plans_of(filled, act, generic=generic))
                whole = [line for line in plans.splitlines() if "Seq Scan" in line]
                assert [
                    line for line in whole if not any(table in line for table in SMALL)
                ] == [], f"{name}\n{plans}"


BLOCKED = """
CREATE FUNCTION wait_for_test() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '0', true);
  PERFORM pg_advisory_xact_lock(63);
END $$;
CREATE EVENT TRIGGER wait_for_test ON ddl_command_start WHEN TAG IN ('CREATE INDEX')
  EXECUTE FUNCTION wait_for_test()
"""
UNBLOCKED = "DROP EVENT TRIGGER wait_for_test", "DROP FUNCTION wait_for_test()"


@contextmanager
def blocked(catalog: Catalog) -> Iterator[Catalog]:
    """Conversions wait before they make the first index; a catalog that sees them wait."""
    execute(catalog, BLOCKED)
    try:
        with other_role(catalog) as other:
            # The session keeps the lock after the transaction.
            execute(other, "SELECT pg_advisory_lock(63)")
            catalog.engine.dispose()
            yield other
    finally:
        execute(catalog, *UNBLOCKED)


def count_locks(catalog: Catalog, query: str) -> int:
    """Count locks in the catalog's database."""
    own = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    with catalog.write() as tx:
        return int(tx.execute(text(f"{query} AND {own}")).scalar_one())


_CONVERT = """
import sys
from storage.catalog import Catalog, partitions
partitions.convert(Catalog(sys.argv[1]), "presence", 4, lock_timeout_s=60)
"""
_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
_LOCKED = "SELECT count(*) FROM pg_locks WHERE relation = to_regclass('presence')"
_AWAITED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass('files')"


def count_parts(catalog: Catalog, table: str) -> int:
    with catalog.read() as tx:
        return partitions.read_state(tx, table).parts


def test_a_killed_conversion_leaves_the_old_table(filled: Catalog) -> None:
    content, columns = fingerprint(filled), structure(filled)
    with (
        blocked(filled) as other,
        subprocess.Popen([sys.executable, "-c", _CONVERT, filled.url]) as process,
    ):
        try:
            # The old table is dropped by then, and the new one has its name.
            until(lambda: count_locks(other, _WAITING) == 1)
        finally:
            process.kill()
        # Its server process notices by itself, although it still waits.
        until(lambda: count_locks(other, _LOCKED) == 0)
    assert fingerprint(filled) == content
    assert structure(filled) == columns
    with partitioned(filled):
        assert fingerprint(filled) == content


def test_refuses_to_begin_while_sessions_can_read_the_table(filled: Catalog) -> None:
    with filled.read() as reader:
        # It would have to wait for the lock.
        reader.execute(text("SELECT count(*) FROM visible"))
        with pytest.raises(Unavailable, match=r"can read it: \d+ of store \(role \w+\)"):
            partitions.convert(filled, "visible", PARTS, lock_timeout_s=0.1)
    assert count_parts(filled, "visible") == 1


def test_refuses_to_copy_when_a_session_begins_before_the_lock(filled: Catalog) -> None:
    execute(
        filled,
        "CREATE FUNCTION fail() RETURNS event_trigger LANGUAGE plpgsql AS $$"
        " BEGIN RAISE EXCEPTION 'it copies'; END $$",
        "CREATE EVENT TRIGGER fail ON ddl_command_start WHEN TAG IN ('CREATE TABLE')"
        " EXECUTE FUNCTION fail()",
    )
    try:
        with other_role(filled, "SELECT ON files") as other, ThreadPoolExecutor(1) as pool:
            with other.read() as reader:
                # `entries` refers to it.
                reader.execute(text("SELECT count(*) FROM files"))
                converting = pool.submit(convert, filled, "entries", PARTS)
                until(lambda: count_locks(other, _AWAITED) == 1)
                with filled.read() as began:
                    began.execute(text("SELECT 1"))
            with pytest.raises(Unavailable, match="entries: other sessions can read it: 1 of"):
                converting.result()
    finally:
        execute(filled, "DROP EVENT TRIGGER fail", "DROP FUNCTION fail()")
    assert count_parts(filled, "entries") == 1


def test_refuses_to_commit_when_a_session_began_meanwhile(filled: Catalog) -> None:
    before = fingerprint(filled)
    with blocked(filled) as other, ThreadPoolExecutor(1) as pool:
        converting = pool.submit(convert, filled, "presence", PARTS)
        try:
            until(lambda: count_locks(other, _WAITING) == 1)
            with filled.read() as began:
                began.execute(text("SELECT 1"))
        finally:
            execute(other, "SELECT pg_advisory_unlock(63)")
        with pytest.raises(Unavailable, match="presence: other sessions can read it: 1 of"):
            converting.result()
    assert fingerprint(filled) == before
    assert count_parts(filled, "presence") == 1


def test_converts_while_sessions_cannot_read_the_table(filled: Catalog) -> None:
    with other_role(filled) as other, other.read() as monitor:
        monitor.execute(text("SELECT 1"))
        for parts in (PARTS, 1):
            assert convert(filled, "presence", parts) == 2_000


LOSING = """
CREATE FUNCTION lose_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN NEW.id <> 7 THEN NEW END;
END $$;
CREATE FUNCTION lose_rows() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('visible_3_of_4') IS NOT NULL THEN
    CREATE TRIGGER lose_row BEFORE INSERT ON visible_new FOR EACH ROW EXECUTE FUNCTION lose_row();
  END IF;
END $$;
CREATE EVENT TRIGGER lose_rows ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
  EXECUTE FUNCTION lose_rows()
"""


def test_a_copy_that_lacks_rows_is_discarded(filled: Catalog) -> None:
    before = fingerprint(filled)
    execute(filled, LOSING)
    try:
        with pytest.raises(DomainError, match=r"479\d of 4800 rows were copied"):
            convert(filled, "visible", PARTS)
    finally:
        execute(
            filled,
            "DROP EVENT TRIGGER lose_rows",
            "DROP FUNCTION lose_rows()",
            "DROP FUNCTION lose_row()",
        )
    assert fingerprint(filled) == before


def test_gives_up_on_a_table_in_use(filled: Catalog) -> None:
    end_sessions(filled)
    with other_role(filled, "SELECT ON files") as other, other.read() as reader:
        # `entries` refers to it.
        reader.execute(text("SELECT count(*) FROM files"))
        with pytest.raises(Unavailable, match="entries: cannot be locked within"):
            partitions.convert(filled, "entries", PARTS, lock_timeout_s=0.1)
    assert count_parts(filled, "entries") == 1


def refuse(catalog: Catalog, parts: int, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        convert(catalog, "visible", parts)


def test_refuses_what_it_cannot_convert(filled: Catalog) -> None:
    refuse(filled, 1, "visible: is not partitioned")
    with partitioned(filled):
        refuse(filled, PARTS, "visible: already has 4 parts")
    with filled.read() as tx:
        allowed = tx.execute(text("SHOW max_locks_per_transaction")).scalar_one()
    refuse(filled, int(allowed), f"set it to at least {2 * int(allowed)}")


@pytest.fixture
def home(filled: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The commands work on the catalog."""
    monkeypatch.setenv("STORE_HOME", str(tmp_path))
    monkeypatch.setenv("STORE_CATALOG_URL", filled.url)
    return filled


def test_command_converts_a_table_and_back(home: Catalog) -> None:
    before = fingerprint(home)
    # It needs no stopped store.
    shown = typed("partition", "presence", "--parts", "4", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "presence has 1 part, about " in shown.stderr
    assert shown.stdout == "Nothing changed.\n"
    assert fingerprint(home) == before
    for former, parts in ((1, 4), (4, 1)):
        home.engine.dispose()
        done = run_json("partition", "presence", "--parts", str(parts), "--wait", "30")
        assert done.pop("bytes") > 0
        assert done == {
            "table": "presence",
            "former_parts": former,
            "parts": parts,
            "rows": 2_000,
            "converted": True,
        }
        assert fingerprint(home) == before


def test_command_asks_to_try_again_while_a_table_is_in_use(home: Catalog) -> None:
    with home.read() as reader:
        reader.execute(text("SELECT count(*) FROM visible"))
        result = typed("partition", "visible", "--parts", "4", "--wait", "0.1")
    assert result.exit_code == os.EX_TEMPFAIL
    assert re.search(r"visible: other sessions can read it: \d+ of store \(role ", result.stderr)
    assert "Stop the store's processes" in result.stderr


ATTACHED: list[Any] = [
    (
        "CREATE VIEW report AS SELECT uuid FROM visible",
        "DROP VIEW report",
        "view report",
    ),
    (
        "CREATE TRIGGER watch BEFORE UPDATE ON visible FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TRIGGER watch ON visible",
        "trigger watch on table visible",
    ),
    (
        "CREATE TABLE note (kind text, replica text, uuid text, version text,"
        " CONSTRAINT fk_note FOREIGN KEY (kind, replica, uuid, version) REFERENCES visible)",
        "DROP TABLE note",
        "constraint fk_note on table note",
    ),
    (
        "CREATE PUBLICATION feed FOR TABLE visible",
        "DROP PUBLICATION feed",
        "publication of table visible in publication feed",
    ),
    (
        "GRANT SELECT (uuid) ON visible TO PUBLIC",
        "REVOKE SELECT (uuid) ON visible FROM PUBLIC",
        "privileges on column uuid of visible",
    ),
    (
        "CREATE FUNCTION total() RETURNS bigint LANGUAGE sql"
        " BEGIN ATOMIC SELECT count(*) FROM visible; END",
        "DROP FUNCTION total()",
        "function total()",
    ),
    (
        "CREATE TABLE note (former visible, others visible[])",
        "DROP TABLE note",
        "column former of table note, column others of table note",
    ),
    (
        "ALTER TABLE visible ADD CONSTRAINT one EXCLUDE USING btree (id WITH =) WHERE (id < 0)",
        "ALTER TABLE visible DROP CONSTRAINT one",
        "constraint one on table visible",
    ),
    (
        "COMMENT ON TABLE visible IS 'ours'",
        "COMMENT ON TABLE visible IS NULL",
        "comment or security label of table visible",
    ),
    (
        "INSERT INTO pg_seclabel VALUES (CAST('visible' AS regclass),"
        " CAST('pg_class' AS regclass), 0, 'ours', 'secret')",
        "DELETE FROM pg_seclabel",
        "comment or security label of table visible",
    ),
    (
        "COMMENT ON COLUMN visible.uuid IS 'ours'",
        "COMMENT ON COLUMN visible.uuid IS NULL",
        "comment or security label of column uuid of table visible",
    ),
    (
        "COMMENT ON INDEX pk_visible IS 'ours'",
        "COMMENT ON INDEX pk_visible IS NULL",
        "comment or security label of index pk_visible",
    ),
    (
        "ALTER TABLE visible ALTER uuid SET STATISTICS 1000",
        "ALTER TABLE visible ALTER uuid SET STATISTICS -1",
        "statistics settings of column uuid of visible",
    ),
    (
        "ALTER TABLE visible ALTER uuid SET (n_distinct = 7)",
        "ALTER TABLE visible ALTER uuid RESET (n_distinct)",
        "statistics settings of column uuid of visible",
    ),
    (
        "ALTER TABLE visible REPLICA IDENTITY FULL",
        "ALTER TABLE visible REPLICA IDENTITY DEFAULT",
        "replica identity of visible",
    ),
    (
        "ALTER TABLE visible ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE visible DISABLE ROW LEVEL SECURITY",
        "row security of visible",
    ),
    (
        "ALTER TABLE visible FORCE ROW LEVEL SECURITY",
        "ALTER TABLE visible NO FORCE ROW LEVEL SECURITY",
        "row security of visible",
    ),
    (
        "ALTER TABLE visible SET UNLOGGED",
        "ALTER TABLE visible SET LOGGED",
        "state UNLOGGED of visible",
    ),
    (
        "ALTER TABLE visible SET (toast.autovacuum_enabled = off)",
        "ALTER TABLE visible RESET (toast.autovacuum_enabled)",
        "TOAST parameters of visible",
    ),
    (
        "ALTER TABLE visible CLUSTER ON pk_visible",
        "ALTER TABLE visible SET WITHOUT CLUSTER",
        "CLUSTER order of pk_visible",
    ),
    (
        "ALTER INDEX pk_visible SET (fillfactor = 70)",
        "ALTER INDEX pk_visible RESET (fillfactor)",
        "storage parameters of pk_visible",
    ),
    (
        "REVOKE DELETE ON visible FROM CURRENT_USER",
        "GRANT DELETE ON visible TO CURRENT_USER",
        "REVOKE DELETE on visible from the owner",
    ),
    (
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC",
        "privileges, by the default privileges of ",
    ),
]
ATTACHED_TO_PARTS: list[Any] = [
    (
        "GRANT SELECT ON visible_0_of_4 TO PUBLIC",
        "REVOKE SELECT ON visible_0_of_4 FROM PUBLIC",
        "privileges on visible_0_of_4",
    ),
    (
        "ALTER TABLE visible_0_of_4 SET (fillfactor = 80)",
        "ALTER TABLE visible_0_of_4 RESET (fillfactor)",
        "storage parameters that differ between parts",
    ),
    (
        "CREATE INDEX one ON visible_0_of_4 (version)",
        "DROP INDEX one",
        "index one",
    ),
    (
        "ALTER TABLE visible_0_of_4 ADD CONSTRAINT one CHECK (id > 0)",
        "ALTER TABLE visible_0_of_4 DROP CONSTRAINT one",
        "constraint one on table visible_0_of_4",
    ),
]


@contextmanager
def attached(catalog: Catalog, attach: str, detach: str) -> Iterator[None]:
    execute(catalog, attach)
    try:
        yield
    finally:
        execute(catalog, detach)


@pytest.mark.parametrize(("attach", "detach", "name"), ATTACHED, ids=[one[0] for one in ATTACHED])
def test_refuses_to_lose_what_operators_attached(
    filled: Catalog, attach: str, detach: str, name: str
) -> None:
    with attached(filled, attach, detach):
        refuse(filled, PARTS, f"would lose or change: .*{re.escape(name)}")


def test_refuses_to_lose_what_operators_attached_to_parts(filled: Catalog) -> None:
    with partitioned(filled):
        for attach, detach, name in ATTACHED_TO_PARTS:
            with attached(filled, attach, detach):
                refuse(filled, 1, f"would lose or change: .*{re.escape(name)}")


@pytest.fixture(scope="module", params=ON_POSTGRES, ids=["postgresql"][: len(ON_POSTGRES)])
def partitioned_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A catalog whose tables have parts."""
    with fresh(request.param) as url:
        catalog = Catalog(url)
        migrate.upgrade(catalog)
        catalog.close()
        partition_all(url, PARTS)
        yield url


@pytest.fixture
def catalog(partitioned_url: str) -> Iterator[Catalog]:
    """The same, open, and empty after each test."""
    opened = Catalog(partitioned_url)
    yield opened
    execute(opened, *EMPTYING[1].split("; "))
    opened.close()


OTHER_TESTS = [
    test_bundles.test_reservation_looks_up_files,
    test_bundles.test_a_reservation_lacks_files_that_its_origin_does_not_show,
    test_bundles.test_a_lookup_finds_what_is_visible_in_its_replica_only,
    test_bundles.test_bundle_sums_and_lists_its_files,
    test_bundles.test_listings_are_in_byte_order,
    test_bundles.test_a_prefix_is_a_range,
    test_bundles.test_migrations_create_the_schema,
    test_concurrency.test_no_version_survives_the_tombstone_of_its_uuid,
]


@pytest.mark.parametrize("test", OTHER_TESTS, ids=[test.__name__ for test in OTHER_TESTS])
def test_catalog_with_parts_does_the_same(
    catalog: Catalog, test: Callable[[Catalog], None]
) -> None:
    test(catalog)
