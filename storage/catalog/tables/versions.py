"""Tables of files, bundles, collections, upload areas, search documents, purges and integrity."""

from collections.abc import Mapping
from typing import Any

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

from storage.catalog.tables.base import (
    Id,
    Key,
    make_clustered_table,
    make_columns,
    make_marker_columns,
    metadata,
    partial_index,
)


def _make_version_table(name: str, *columns: Column[Any] | Index) -> Table:
    """Return a table of versions, which are reserved before they are published."""
    return Table(
        name,
        metadata,
        Column("id", Id, primary_key=True),
        *make_columns(Key, "uuid", "version", "digest", "origin"),
        *columns,
        Column("event_id", Key, nullable=False),
        Column("created_us", BigInteger, nullable=False),
        Column("published_us", BigInteger),
        UniqueConstraint("uuid", "version"),
        partial_index(f"ix_{name}_reserved", "created_us", where="published_us IS NULL"),
    )


heads = Table(
    "heads",
    metadata,
    Column("id", Id, primary_key=True),
    *make_columns(Key, "kind", "uuid"),
    Column("changes", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("kind", "uuid"),
)
"""One row per uuid: every writer of that uuid locks it first."""

blobs = Table(
    "blobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("sha256", Key, nullable=False, unique=True),
    *make_columns(Text, "sha1", "crc32c", "s3_etag"),
    Column("size", BigInteger, nullable=False),
)

blob_replicas = make_clustered_table(
    "blob_replicas",
    Column("blob_id", Id, ForeignKey("blobs.id"), primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("state", Key, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("verified_us", BigInteger, nullable=False, server_default="0"),
    partial_index("ix_blob_replicas_verified", "replica", "verified_us", where="state = 'present'"),
)
"""Buckets that hold a blob, which is `present` or `condemned` there.

`verified_us` is when its bytes last matched the SHA-256; 0 means never.
"""

files = _make_version_table(
    "files",
    Column("creator_uid", BigInteger, nullable=False),
    *make_columns(Text, "author", "content_type", "s3_etag"),
    Column("blob_id", Id, ForeignKey("blobs.id"), nullable=False),
    Index("ix_files_blob_id", "blob_id"),
)

bundles = _make_version_table(
    "bundles",
    Column("creator_uid", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("parent", Text),
    Column("file_count", Integer, nullable=False),
    Index("ix_bundles_author", "author", "id"),
)

segments = Table(
    "segments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("entry_count", Integer, nullable=False),
)
"""Immutable runs of at most 1,024 entries, shared between versions of a bundle."""

bundle_segments = make_clustered_table(
    "bundle_segments",
    Column("bundle_id", Id, ForeignKey("bundles.id"), primary_key=True),
    Column("start", Integer, primary_key=True),
    Column("segment_id", Id, ForeignKey("segments.id"), nullable=False),
    Index("ix_bundle_segments_segment_id", "segment_id"),
)
"""`start` is the ordinal of the segment's first entry in this bundle."""

entries = make_clustered_table(
    "entries",
    Column("segment_id", Id, ForeignKey("segments.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("file_id", Id, ForeignKey("files.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("indexed", Boolean, nullable=False),
    Index("ix_entries_file_id", "file_id"),
)

visible = make_clustered_table(
    "visible",
    *make_columns(Key, "kind", "replica", "uuid", "version", primary_key=True),
    Column("id", Id, nullable=False),
)
"""What readers see. Latest, existence, listing and prefix queries are ranges of its key."""

presence = make_clustered_table(
    "presence",
    Column("kind", Key, primary_key=True),
    Column("id", Id, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("diverged", Boolean, nullable=False, server_default=text("false")),
    Column("verified_us", BigInteger, nullable=False, server_default="0"),
    Index("ix_presence_verified", "replica", "verified_us"),
    partial_index("ix_presence_diverged", "replica", where="diverged"),
    Index("ix_presence_arrived", "replica", "kind", "at_us"),
)
"""Buckets that hold a complete record, and when it was seen there.

`verified_us` is when the record was last read and found right; 0 means never.
"""

tombstones = Table("tombstones", metadata, *make_marker_columns())
"""`version` is empty for a tombstone of the whole uuid."""

uploads = make_clustered_table(
    "uploads",
    *make_columns(Key, "replica", "key", primary_key=True),
    Column("token", Text, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
)
"""Unfinished multipart uploads, to be resumed or aborted."""

collections = _make_version_table(
    "collections",
    Column("owner", Key, nullable=False),
    Column("parent", Text),
    *make_columns(Text, "name", "description", "details"),
)
"""`details` is JSON with sorted keys."""

VERSION_TABLES: Mapping[str, Table] = {
    "file": files,
    "bundle": bundles,
    "collection": collections,
}

link_segments = Table(
    "link_segments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("links", Text, nullable=False),
)
"""Immutable runs of at most 1,024 links, shared between versions of a collection: a JSON array of
[type, uuid, version, path]."""

collection_segments = make_clustered_table(
    "collection_segments",
    Column("collection_id", Id, ForeignKey("collections.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("segment_id", Id, ForeignKey("link_segments.id"), nullable=False),
)

owned = make_clustered_table(
    "owned",
    *make_columns(Key, "owner", "uuid", "version", primary_key=True),
)
"""Live collections in any replica: an owner's list is a range of its key."""

areas = Table(
    "areas",
    metadata,
    Column("uuid", Key, primary_key=True),
    *make_columns(Key, "owner", "state"),
    Column("created_us", BigInteger, nullable=False),
    *make_columns(BigInteger, "granted_us", "deleted_us", nullable=True),
    Index("ix_areas_owner", "owner"),
    partial_index("ix_areas_live", "owner", "created_us", "uuid", where="state <> 'DELETED'"),
)
"""Until `granted_us`, credentials to write to the area directly may be valid."""

area_files = make_clustered_table(
    "area_files",
    *make_columns(Key, "area", "name", primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("pin", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    *make_columns(Text, "sha1", "sha256", "crc32c", "s3_etag", nullable=True),
    *make_columns(Key, "status", "validation"),
    *make_columns(Text, "cause", "declared", nullable=True),
    *make_columns(BigInteger, "created_us", "changed_us"),
)
"""Files of upload areas.

Each upload of a name gets a new `generation`: results for an earlier one do not overwrite a later
one. `declared` is what the uploader declared, as JSON.
"""

area_uploads = make_clustered_table(
    "area_uploads",
    Column("id", Key, primary_key=True),
    *make_columns(Key, "area", "name"),
    Column("token", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    *make_columns(BigInteger, "part_size", "at_us"),
    Index("ix_area_uploads_area_name", "area", "name"),
    Index("ix_area_uploads_at_us", "at_us"),
)
"""Unfinished multipart uploads to areas.

`token` is the bucket's id of the upload, `at_us` when it was last touched.
"""

documents = make_clustered_table(
    "documents",
    Column("replica", Key, primary_key=True),
    Column("bundle_id", Id, primary_key=True),
    Column("state", Key, nullable=False),
    Column("shape", Text, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("reason", Text),
    Column("at_us", BigInteger, nullable=False),
    Column("told", Boolean, nullable=False, server_default=text("true")),
    partial_index("ix_documents_unindexed", "replica", "at_us", where="state = 'unindexed'"),
)
"""Index state of each bundle: `indexed`, `unindexed` (with a reason) or `stub`.

`told` says whether stored queries were matched with it, which happens once, when search first finds
it.
"""

shapes = make_clustered_table(
    "shapes",
    *make_columns(Key, "replica", "descriptor", primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kinds", Text, nullable=False),
)
"""Accumulated path → kind (JSON) of the documents that one index of a descriptor holds."""

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
