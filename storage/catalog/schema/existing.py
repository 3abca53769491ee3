"""Tables of what exists: heads, files, bundles, tombstones, and who has and sees them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
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

_PRESENT = text("state = 'present'")

heads = Table(
    "heads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", Key, nullable=False),
    Column("uuid", Key, nullable=False),
    Column("changes", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("kind", "uuid"),
)
"""One row a uuid: locked first by every writer of that uuid."""

blobs = Table(
    "blobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("sha256", Key, nullable=False, unique=True),
    Column("sha1", Text, nullable=False),
    Column("crc32c", Text, nullable=False),
    Column("s3_etag", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
)

blob_replicas = narrow(
    "blob_replicas",
    Column("blob_id", Id, ForeignKey("blobs.id"), primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("state", Key, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("verified_us", BigInteger, nullable=False, server_default="0"),
    Index(
        "ix_blob_replicas_verified",
        "replica",
        "verified_us",
        sqlite_where=_PRESENT,
        postgresql_where=_PRESENT,
    ),
)
"""Which bucket holds a blob: `present` or `condemned`. `verified_us` is when its bytes were last
compared with its SHA-256 and found right; 0: not since the catalog learned of it."""

files = Table(
    "files",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("origin", Key, nullable=False),
    Column("creator_uid", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("s3_etag", Text, nullable=False),
    Column("blob_id", Id, ForeignKey("blobs.id"), nullable=False),
    Column("event_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("published_us", BigInteger),
    UniqueConstraint("uuid", "version"),
    Index("ix_files_blob_id", "blob_id"),
    Index(
        "ix_files_reserved",
        "created_us",
        sqlite_where=text("published_us IS NULL"),
        postgresql_where=text("published_us IS NULL"),
    ),
)

bundles = Table(
    "bundles",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("origin", Key, nullable=False),
    Column("creator_uid", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("parent", Text),
    Column("file_count", Integer, nullable=False),
    Column("event_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("published_us", BigInteger),
    UniqueConstraint("uuid", "version"),
    Index(
        "ix_bundles_reserved",
        "created_us",
        sqlite_where=text("published_us IS NULL"),
        postgresql_where=text("published_us IS NULL"),
    ),
)

segments = Table(
    "segments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("entry_count", Integer, nullable=False),
)
"""Immutable runs of at most 1,024 entries, shared between versions of a bundle."""

bundle_segments = narrow(
    "bundle_segments",
    Column("bundle_id", Id, ForeignKey("bundles.id"), primary_key=True),
    Column("start", Integer, primary_key=True),
    Column("segment_id", Id, ForeignKey("segments.id"), nullable=False),
    Index("ix_bundle_segments_segment_id", "segment_id"),
)
"""`start` is the ordinal of the segment's first entry in this bundle."""

entries = narrow(
    "entries",
    Column("segment_id", Id, ForeignKey("segments.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("file_id", Id, ForeignKey("files.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("indexed", Boolean, nullable=False),
    Index("ix_entries_file_id", "file_id"),
)

visible = narrow(
    "visible",
    Column("kind", Key, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("uuid", Key, primary_key=True),
    Column("version", Key, primary_key=True),
    Column("id", Id, nullable=False),
)
"""What readers see: latest, existence, listing and prefix are ranges of its key."""

presence = narrow(
    "presence",
    Column("kind", Key, primary_key=True),
    Column("id", Id, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("diverged", Boolean, nullable=False, server_default=text("false")),
    Column("verified_us", BigInteger, nullable=False, server_default="0"),
    Index("ix_presence_verified", "replica", "verified_us"),
    Index(
        "ix_presence_diverged",
        "replica",
        sqlite_where=text("diverged"),
        postgresql_where=text("diverged"),
    ),
    Index("ix_presence_arrived", "replica", "kind", "at_us"),
)
"""Whose record, and all it names, was seen in a replica with the right digest, and when.
`verified_us` is when the record was last read and found right; 0: not since the catalog learned of
it."""

tombstones = Table(
    "tombstones",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", Key, nullable=False),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("reason", Text, nullable=False),
    Column("digest", Key, nullable=False),
    Column("origin", Key, nullable=False),
    Column("author", Text, nullable=False),
    Column("event_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    UniqueConstraint("kind", "uuid", "version"),
)
"""`version` is empty for a tombstone of the whole uuid."""

uploads = narrow(
    "uploads",
    Column("replica", Key, primary_key=True),
    Column("key", Key, primary_key=True),
    Column("token", Text, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
)
"""Unfinished multipart uploads, so that they are resumed or aborted."""
