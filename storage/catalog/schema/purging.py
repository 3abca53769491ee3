"""Tables of what is removed for good."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from storage.catalog.schema.base import Id, Key, metadata, narrow

purges = Table(
    "purges",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", Key, nullable=False),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("event_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    UniqueConstraint("kind", "uuid", "version"),
    Index("ix_purges_kind_created_us", "kind", "created_us"),
    Index(
        "ix_purges_open",
        "created_us",
        sqlite_where=text("finished_us IS NULL"),
        postgresql_where=text("finished_us IS NULL"),
    ),
)
"""`version` is empty for a whole uuid. The row stays: what it names can never be put again."""

purge_replicas = narrow(
    "purge_replicas",
    Column("purge_id", Id, ForeignKey("purges.id"), primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("marked_us", BigInteger),
    Column("erased_us", BigInteger),
)
"""Which bucket holds the marker, and no record any more."""

condemned = narrow(
    "condemned",
    Column("replica", Key, primary_key=True),
    Column("sha256", Key, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Index("ix_condemned_at_us", "at_us"),
)
"""Bytes in a bucket that nothing refers to. They are deleted under a lock on this row, which
whoever deposits the same bytes takes away first."""
