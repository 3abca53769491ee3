"""Tables of integrity: objects that were found damaged, and what the scrub has read."""

from sqlalchemy import BigInteger, Column, Index, Text, text

from storage.catalog.schema.base import Key, narrow

_OPEN = text("repaired_us IS NULL")

damaged_objects = narrow(
    "damaged_objects",
    Column("replica", Key, primary_key=True),
    Column("key", Key, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("found_us", BigInteger, nullable=False),
    Column("tried_us", BigInteger, nullable=False),
    Column("repaired_us", BigInteger),
    Index(
        "ix_damaged_objects_open",
        "replica",
        "tried_us",
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    ),
)
"""Objects of a bucket that were found damaged; a row without `repaired_us` still is.
`tried_us` is the last attempt to repair it."""

scrubbed = narrow(
    "scrubbed",
    Column("replica", Key, primary_key=True),
    Column("day", BigInteger, primary_key=True),
    Column("objects", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("damaged", BigInteger, nullable=False),
    Column("repaired", BigInteger, nullable=False),
)
"""What was read again each day (days since 1970 UTC), and what came of it."""

verified_objects = narrow(
    "verified_objects",
    Column("replica", Key, primary_key=True),
    Column("key", Key, primary_key=True),
    Column("verified_us", BigInteger, nullable=False),
)
"""When journals and purge markers of a bucket were last verified; those of blobs and records are in
`blob_replicas` and `presence`."""
