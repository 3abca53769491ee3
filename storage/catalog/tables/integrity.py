"""Tables of damaged objects, scrub totals, purges, and garbage collection."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text

from storage.catalog.tables.base import (
    Id,
    Key,
    make_clustered_table,
    make_columns,
    make_marker_columns,
    metadata,
    partial_index,
)

damaged_objects = make_clustered_table(
    "damaged_objects",
    *make_columns(Key, "replica", "key", primary_key=True),
    Column("reason", Text, nullable=False),
    *make_columns(BigInteger, "found_us", "tried_us"),
    Column("repaired_us", BigInteger),
    partial_index("ix_damaged_objects_open", "replica", "tried_us", where="repaired_us IS NULL"),
)
"""Objects found damaged; those without `repaired_us` still are.

`tried_us` is the time of the last attempt to repair.
"""

scrubbed = make_clustered_table(
    "scrubbed",
    Column("replica", Key, primary_key=True),
    Column("day", BigInteger, primary_key=True),
    *make_columns(BigInteger, "objects", "bytes", "damaged", "repaired"),
)
"""Results of the scrub for each day (days since 1970 UTC)."""

verified_objects = make_clustered_table(
    "verified_objects",
    *make_columns(Key, "replica", "key", primary_key=True),
    Column("verified_us", BigInteger, nullable=False),
)
"""Last verification of journals and purge markers; blobs and records have columns of their own."""

purges = Table(
    "purges",
    metadata,
    *make_marker_columns(),
    Column("finished_us", BigInteger),
    Index("ix_purges_kind_created_us", "kind", "created_us"),
    partial_index("ix_purges_open", "created_us", where="finished_us IS NULL"),
)
"""Permanent removals; `version` is empty for a whole uuid. Rows stay: names are never reused."""

purge_replicas = make_clustered_table(
    "purge_replicas",
    Column("purge_id", Id, ForeignKey("purges.id"), primary_key=True),
    Column("replica", Key, primary_key=True),
    *make_columns(BigInteger, "marked_us", "erased_us", nullable=True),
)
"""Which buckets hold the marker, and no record any more."""

condemned = make_clustered_table(
    "condemned",
    *make_columns(Key, "replica", "sha256", primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Index("ix_condemned_at_us", "at_us"),
)
"""Unreferenced blobs of a bucket, deleted under a lock on this row.

A writer that stores the same blob deletes the row first.
"""
