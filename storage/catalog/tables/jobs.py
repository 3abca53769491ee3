"""Tables of jobs, ingest tasks, checkouts, leases, and idempotency keys."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from storage.catalog.tables.base import (
    Id,
    Key,
    make_clustered_table,
    make_columns,
    metadata,
    partial_index,
)

meta = make_clustered_table(
    "meta", Column("key", Key, primary_key=True), Column("value", Text, nullable=False)
)

leases = make_clustered_table(
    "leases",
    Column("name", Key, primary_key=True),
    Column("token", Key, nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
"""Leases for work that only one process at a time may do."""

todo = Table(
    "todo",
    metadata,
    *make_columns(Key, "step", "replica", "ref", primary_key=True),
    *make_columns(BigInteger, "born_us", "due_us"),
    Column("sent_us", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("token", Key),
    Column("parked_us", BigInteger),
    Column("reason", Text),
    Column("request_id", Text, nullable=False, server_default=""),
    Column("waits_for", Key),
    partial_index("ix_todo_waits_for", "waits_for", where="waits_for IS NOT NULL"),
    partial_index("ix_todo_due", "step", "due_us", where="parked_us IS NULL"),
    partial_index(
        "ix_todo_fresh", "step", "replica", "due_us", where="parked_us IS NULL AND attempts = 0"
    ),
    partial_index("ix_todo_parked", "parked_us", where="parked_us IS NOT NULL"),
    sqlite_with_rowid=False,
    # Rows live for seconds: leave room to update them in place, and vacuum often.
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
)
"""The durable job queue.

A claim sets `token` and moves `due_us` to the end of its lease. `waits_for` is the ref of another
job, whose end wakes this one.
"""

tasks = Table(
    "tasks",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "uuid", "version", "replica", "state", "digest"),
    *make_columns(Text, "source_url", "pin"),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("creator_uid", BigInteger, nullable=False),
    *make_columns(Text, "author", "sha1", "sha256", "crc32c", "s3_etag"),
    Column("bytes_done", BigInteger, nullable=False, server_default="0"),
    Column("cause", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index("ix_tasks_uuid_version", "uuid", "version", "created_us"),
    partial_index("uq_tasks_open", "uuid", "version", unique=True, where="finished_us IS NULL"),
    Index("ix_tasks_sha256", "sha256"),
    partial_index("ix_tasks_unfinished", "author", "created_us", where="state <> 'SUCCEEDED'"),
)
"""Ingest tasks; at most one of a `uuid.version` is open."""

deposits = make_clustered_table(
    "deposits",
    Column("id", Key, primary_key=True),
    *make_columns(Key, "owner", "area", "replica", "uuid", "version", "state"),
    Column("creator_uid", BigInteger, nullable=False),
    Column("file_count", Integer, nullable=False),
    Column("entries", Text, nullable=False),
    Column("faults", Text, nullable=False, server_default="{}"),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index("ix_deposits_owner_created_us", "owner", "created_us", "id"),
)
"""Bundles that are made of an upload area; `entries` is a JSON array of [name, name in the area,
file uuid, indexed], `faults` a JSON object of messages by name."""

checkouts = Table(
    "checkouts",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "replica", "uuid", "version"),
    Column("bundle_id", Id, nullable=False),
    *make_columns(Text, "destination", "email", "requester", nullable=True),
    Column("state", Key, nullable=False),
    *make_columns(Text, "location", "cause", nullable=True),
    Column("files", Integer, nullable=False, server_default="0"),
    Column("files_total", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Column("bytes_total", BigInteger, nullable=False, server_default="0"),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index("ix_checkouts_finished_us", "finished_us"),
)

answers = make_clustered_table(
    "answers",
    *make_columns(Key, "owner", "key", primary_key=True),
    Column("digest", Key, nullable=False),
    Column("answer", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("ix_answers_created_us", "created_us"),
)
"""Stored responses to requests with an Idempotency-Key, and the digests of the requests."""
