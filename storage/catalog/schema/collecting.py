"""Tables of collections: versioned sets of links, each private to its owner."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from storage.catalog.schema.base import Id, Key, metadata, narrow

collections = Table(
    "collections",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("origin", Key, nullable=False),
    Column("owner", Key, nullable=False),
    Column("parent", Text),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("event_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("published_us", BigInteger),
    UniqueConstraint("uuid", "version"),
    Index(
        "ix_collections_reserved",
        "created_us",
        sqlite_where=text("published_us IS NULL"),
        postgresql_where=text("published_us IS NULL"),
    ),
)
"""`details` is JSON with sorted keys."""

link_segments = Table(
    "link_segments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("links", Text, nullable=False),
)
"""Immutable runs of at most 1,024 links, shared between versions of a collection: a JSON array of
[type, uuid, version, path]."""

collection_segments = narrow(
    "collection_segments",
    Column("collection_id", Id, ForeignKey("collections.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("segment_id", Id, ForeignKey("link_segments.id"), nullable=False),
)

owned = narrow(
    "owned",
    Column("owner", Key, primary_key=True),
    Column("uuid", Key, primary_key=True),
    Column("version", Key, primary_key=True),
)
"""Live collections, in whatever replica: somebody's list is a range of its key."""
