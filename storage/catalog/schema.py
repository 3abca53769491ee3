"""The catalog's tables. Times are microseconds since 1970 UTC by the catalog's clock (`_us`).

Text keys compare by byte (rule: listings are in byte order), so PostgreSQL gets COLLATE "C".
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
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
"""A surrogate key; SQLite wants INTEGER for its row id."""


def _narrow(name: str, *columns: Column[object] | Index | UniqueConstraint) -> Table:
    """A table that is its primary key's index."""
    return Table(name, metadata, *columns, sqlite_with_rowid=False)


meta = _narrow("meta", Column("key", Key, primary_key=True), Column("value", Text, nullable=False))

leases = _narrow(
    "leases",
    Column("name", Key, primary_key=True),
    Column("token", Key, nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
"""What only one process at a time should do, and who does it."""

# --- what exists -------------------------------------------------------------------------------

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

blob_replicas = _narrow(
    "blob_replicas",
    Column("blob_id", Id, ForeignKey("blobs.id"), primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("state", Key, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)
"""Which bucket holds a blob: `present` or `condemned`."""

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

bundle_segments = _narrow(
    "bundle_segments",
    Column("bundle_id", Id, ForeignKey("bundles.id"), primary_key=True),
    Column("start", Integer, primary_key=True),
    Column("segment_id", Id, ForeignKey("segments.id"), nullable=False),
    Index("ix_bundle_segments_segment_id", "segment_id"),
)
"""`start` is the ordinal of the segment's first entry in this bundle."""

entries = _narrow(
    "entries",
    Column("segment_id", Id, ForeignKey("segments.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("file_id", Id, ForeignKey("files.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("indexed", Boolean, nullable=False),
    Index("ix_entries_file_id", "file_id"),
)

visible = _narrow(
    "visible",
    Column("kind", Key, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("uuid", Key, primary_key=True),
    Column("version", Key, primary_key=True),
    Column("id", Id, nullable=False),
)
"""What readers see: latest, existence, listing and prefix are ranges of its key."""

presence = _narrow(
    "presence",
    Column("kind", Key, primary_key=True),
    Column("id", Id, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("diverged", Boolean, nullable=False, server_default=text("false")),
)
"""Whose record, and all it names, was seen in a replica with the right digest, and when."""

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

uploads = _narrow(
    "uploads",
    Column("replica", Key, primary_key=True),
    Column("key", Key, primary_key=True),
    Column("token", Text, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
)
"""Unfinished multipart uploads, so that they are resumed or aborted."""

# --- what is to be done ------------------------------------------------------------------------

todo = Table(
    "todo",
    metadata,
    Column("step", Key, primary_key=True),
    Column("replica", Key, primary_key=True),
    Column("ref", Key, primary_key=True),
    Column("born_us", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("token", Key),
    Column("parked_us", BigInteger),
    Column("reason", Text),
    Column("request_id", Text, nullable=False, server_default=""),
    Index(
        "ix_todo_due",
        "step",
        "due_us",
        sqlite_where=text("parked_us IS NULL"),
        postgresql_where=text("parked_us IS NULL"),
    ),
    Index(
        "ix_todo_parked",
        "parked_us",
        sqlite_where=text("parked_us IS NOT NULL"),
        postgresql_where=text("parked_us IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
    # Rows live for seconds: room to update them in place, and a vacuum that keeps up with them.
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
)
"""The durable queue. A claim sets `token` and moves `due_us` to the end of its lease."""

tasks = Table(
    "tasks",
    metadata,
    Column("id", Key, primary_key=True),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("replica", Key, nullable=False),
    Column("state", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("source_url", Text, nullable=False),
    Column("pin", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("creator_uid", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("sha1", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("crc32c", Text, nullable=False),
    Column("s3_etag", Text, nullable=False),
    Column("bytes_done", BigInteger, nullable=False, server_default="0"),
    Column("cause", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index("ix_tasks_uuid_version", "uuid", "version", "created_us"),
    Index(
        "uq_tasks_open",
        "uuid",
        "version",
        unique=True,
        sqlite_where=text("finished_us IS NULL"),
        postgresql_where=text("finished_us IS NULL"),
    ),
    Index("ix_tasks_sha256", "sha256"),
)
"""One attempt to take a file in; at most one of a `uuid.version` is open."""

checkouts = Table(
    "checkouts",
    metadata,
    Column("id", Key, primary_key=True),
    Column("replica", Key, nullable=False),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("bundle_id", Id, nullable=False),
    Column("destination", Text),
    Column("email", Text),
    Column("requester", Text),
    Column("state", Key, nullable=False),
    Column("location", Text),
    Column("cause", Text),
    Column("files", Integer, nullable=False, server_default="0"),
    Column("files_total", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Column("bytes_total", BigInteger, nullable=False, server_default="0"),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index("ix_checkouts_finished_us", "finished_us"),
)

areas = Table(
    "areas",
    metadata,
    Column("uuid", Key, primary_key=True),
    Column("owner", Key, nullable=False),
    Column("state", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("ix_areas_owner", "owner"),
)

# --- searching ---------------------------------------------------------------------------------

documents = _narrow(
    "documents",
    Column("replica", Key, primary_key=True),
    Column("bundle_id", Id, primary_key=True),
    Column("state", Key, nullable=False),
    Column("shape", Text, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("reason", Text),
    Column("at_us", BigInteger, nullable=False),
    Index(
        "ix_documents_unindexed",
        "replica",
        "at_us",
        sqlite_where=text("state = 'unindexed'"),
        postgresql_where=text("state = 'unindexed'"),
    ),
)
"""How a bundle stands in a replica's index: `indexed`, `unindexed` (with a reason) or `stub`."""

shapes = _narrow(
    "shapes",
    Column("replica", Key, primary_key=True),
    Column("descriptor", Key, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kinds", Text, nullable=False),
)
"""Accumulated path → kind (JSON) of the documents that one index of a descriptor holds."""

# --- telling -----------------------------------------------------------------------------------

events = Table(
    "events",
    metadata,
    Column("id", Key, primary_key=True),
    Column("replica", Key, nullable=False),
    Column("type", Key, nullable=False),
    Column("uuid", Key, nullable=False),
    Column("version", Key, nullable=False),
    Column("bundle_id", Id, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("seq", BigInteger),
    Column("seq_us", BigInteger),
    Index("uq_events_replica_seq", "replica", "seq", unique=True),
    Index(
        "ix_events_unnumbered",
        "at_us",
        sqlite_where=text("seq IS NULL"),
        postgresql_where=text("seq IS NULL"),
    ),
)
"""Committed unnumbered; the one sequencer gives `seq` and `seq_us`, which order feeds."""

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    Column("owner", Key, nullable=False),
    Column("replica", Key, nullable=False),
    Column("type", Key, nullable=False),
    Column("query", Text),
    Column("callback_url", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("encoding", Text, nullable=False),
    Column("form_fields", Text, nullable=False),
    Column("payload_form_field", Text, nullable=False),
    Column("hmac_key_id", Text),
    Column("hmac_secret", LargeBinary),
    Column("attachments", Text),
    Column("endpoint_id", Id, ForeignKey("endpoints.id"), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("deleted_us", BigInteger),
    Index(
        "ix_subscriptions_owner",
        "owner",
        "replica",
        "type",
        sqlite_where=text("deleted_us IS NULL"),
        postgresql_where=text("deleted_us IS NULL"),
    ),
    Index(
        "ix_subscriptions_replica_type",
        "replica",
        "type",
        sqlite_where=text("deleted_us IS NULL"),
        postgresql_where=text("deleted_us IS NULL"),
    ),
)
"""`hmac_secret` is sealed; `query` is JMESPath text or es_query JSON; attachments are JSON."""

endpoints = Table(
    "endpoints",
    metadata,
    Column("id", Id, primary_key=True),
    Column("address", Key, nullable=False, unique=True),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("width", Float, nullable=False, server_default="4"),
    Column("resume_us", BigInteger, nullable=False, server_default="0"),
    Column("token", Key),
    Column("lease_us", BigInteger, nullable=False, server_default="0"),
)
"""One receiver (scheme, host, port, path): served round-robin, held by one dispatcher at a time.
`width` is its window; after repeated failures nothing is sent before `resume_us`."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    Column("subscription_id", Id, ForeignKey("subscriptions.id"), nullable=False),
    Column("event_id", Key, nullable=False),
    Column("endpoint_id", Id, nullable=False),
    Column("event_type", Key, nullable=False),
    Column("bundle_uuid", Key, nullable=False),
    Column("bundle_version", Key, nullable=False),
    Column("payload", Text, nullable=False),
    Column("state", Key, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("event_us", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Column("reason", Text),
    UniqueConstraint("subscription_id", "event_id"),
    Index(
        "ix_deliveries_due",
        "endpoint_id",
        "due_us",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "ix_deliveries_open_bundle",
        "bundle_uuid",
        "subscription_id",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index("ix_deliveries_latest", "subscription_id", "id"),
    # Each attempt rewrites a row and its place among what is due.
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)
"""`uuid` is the transaction id, the same on every attempt; states: pending, delivered, failed,
superseded, cancelled. `payload` is the JSON to send, fixed when matched; empty where the stored
query itself failed. `event_us` orders what one subscription is told of one bundle."""

attempts = _narrow(
    "attempts",
    Column("delivery_id", Id, ForeignKey("deliveries.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("status", Integer),
    Column("error", Text),
    Column("body", Text),
)
