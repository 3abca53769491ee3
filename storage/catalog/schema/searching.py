"""Tables of how bundles stand in the search index."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Text, text

from storage.catalog.schema.base import Id, Key, narrow

documents = narrow(
    "documents",
    Column("replica", Key, primary_key=True),
    Column("bundle_id", Id, primary_key=True),
    Column("state", Key, nullable=False),
    Column("shape", Text, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("reason", Text),
    Column("at_us", BigInteger, nullable=False),
    Column("told", Boolean, nullable=False, server_default=text("true")),
    Index(
        "ix_documents_unindexed",
        "replica",
        "at_us",
        sqlite_where=text("state = 'unindexed'"),
        postgresql_where=text("state = 'unindexed'"),
    ),
)
"""How a bundle stands in a replica's index: `indexed`, `unindexed` (with a reason) or `stub`; and
whether stored queries were asked about it, which they are once, when search first finds it."""

shapes = narrow(
    "shapes",
    Column("replica", Key, primary_key=True),
    Column("descriptor", Key, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kinds", Text, nullable=False),
)
"""Accumulated path → kind (JSON) of the documents that one index of a descriptor holds."""
