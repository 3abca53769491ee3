"""Metadata and column types that all tables share."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Key = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared, sorted or looked up."""
Id = BigInteger().with_variant(Integer, "sqlite")
"""A surrogate key; SQLite requires INTEGER for its row id."""


def make_columns(
    kind: Any, *names: str, nullable: bool = False, primary_key: bool = False
) -> list[Column[Any]]:
    """Return columns of one type."""
    return [Column(name, kind, nullable=nullable, primary_key=primary_key) for name in names]


def make_marker_columns() -> list[Column[Any] | UniqueConstraint]:
    """Return the columns of a record that ends a version, or a whole uuid."""
    return [
        Column("id", Id, primary_key=True),
        *make_columns(Key, "kind", "uuid", "version"),
        *make_columns(Text, "reason", "author"),
        *make_columns(Key, "origin", "digest", "event_id"),
        Column("created_us", BigInteger, nullable=False),
        UniqueConstraint("kind", "uuid", "version"),
    ]


def make_clustered_table(name: str, *columns: Column[object] | Index | UniqueConstraint) -> Table:
    """Return a table stored in the index of its primary key."""
    return Table(name, metadata, *columns, sqlite_with_rowid=False)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows of a condition, which its queries spell as literals."""
    rows = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=rows, postgresql_where=rows)
