"""PostgreSQL tables: byte order and free space for updates."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Text, text

from storage.catalog import Catalog, migrate, versions
from storage.catalog.tables import metadata
from storage.model import FQID
from tests.catalogs import POSTGRES, fresh, list_differences

NAMES = ["a", "B", "b", "A", "a-b", "ab", "a_b", "é", "z", "Z", "~", "0", "aB", "Ab", "a b"]


@pytest.fixture(
    params=["LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"] if POSTGRES else []
)
def misordering(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """A database that sorts as people do."""
    with fresh(POSTGRES, more=request.param) as url:
        catalog = Catalog(url)
        migrate.upgrade(catalog)
        yield catalog
        catalog.close()


def test_listings_are_in_byte_order_with_any_collation(
    misordering: Catalog,
) -> None:
    fqids = [FQID(name, other) for name in NAMES for other in NAMES]
    with misordering.write() as tx:
        people = tx.execute(
            text("SELECT n FROM unnest(CAST(:names AS text[])) AS n ORDER BY n"), {"names": NAMES}
        )
        assert list(people.scalars()) != sorted(NAMES), "the database sorts by bytes itself"
        for fqid in fqids:
            versions.publish(tx, "bundle", "aws", fqid, 1)
        listed = versions.list_published(tx, "bundle", "aws", prefix="", after=None, limit=999)
        assert listed == sorted(fqids)
        after = versions.list_published(tx, "bundle", "aws", prefix="", after=listed[99], limit=999)
        assert after == sorted(fqids)[100:]
        assert versions.find_latest(tx, "bundle", "aws", "a") == ("é", 1)


def test_tables_match_schema_with_any_collation(misordering: Catalog) -> None:
    assert list_differences(misordering) == []


def test_every_text_key_compares_by_byte(misordering: Catalog) -> None:
    wanted = {
        (table.name, column.name): column.type.dialect_impl(misordering.engine.dialect).collation  # type: ignore[attr-defined]
        for table in metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, Text)
    }
    query = (
        "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'text'"
    )
    with misordering.read() as tx:
        found = {(row[0], row[1]): row[2] for row in tx.execute(text(query))}
    assert {key: found[key] for key in wanted} == wanted
    indexed = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for index in (table.primary_key, *table.indexes, *table.constraints)
        for column in getattr(index, "columns", ())
        if isinstance(column.type, Text)
    }
    # Compared for equality only.
    others = {("uploads", "token"), ("tasks", "sha256")}
    others |= {("bundles", "author"), ("tasks", "author")}
    assert {key for key in indexed if found[key] != "C"} == others


def test_busy_tables_have_fillfactor_and_autovacuum(server: Catalog) -> None:
    query = (
        "SELECT relname, reloptions FROM pg_class WHERE relkind = 'r' AND reloptions IS NOT NULL"
    )
    with server.read() as tx:
        options = {row[0]: set(row[1]) for row in tx.execute(text(query))}
    assert options == {
        "todo": {"fillfactor=50", "autovacuum_vacuum_scale_factor=0.01"},
        "deliveries": {"fillfactor=80", "autovacuum_vacuum_scale_factor=0.02"},
    }


def test_a_claimed_row_is_updated_in_its_page(server: Catalog) -> None:
    """Half of each page is free, so that a mark as sent changes no index."""
    with server.write() as tx:
        tx.execute(
            text(
                "INSERT INTO todo (step, replica, ref, born_us, due_us)"
                " SELECT 'index', 'aws', CAST(n AS text), 0, 0 FROM generate_series(1, 2000) AS n"
            )
        )
    with server.write() as tx:
        places = "SELECT ref, (CAST(CAST(ctid AS text) AS point))[0] AS page FROM todo"
        before = set(tx.execute(text(places)).all())
        tx.execute(text("UPDATE todo SET sent_us = 1 WHERE ref LIKE '%1'"))
        after = set(tx.execute(text(places)).all())
    assert before == after
