"""Tables of events, subscriptions and deliveries."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from storage.catalog.schema.base import Id, Key, metadata, narrow

HELD_US = 2**60
"""Added to the due time of what is held back: it is due never, and its schedule is kept."""
_HELD = text(f"state = 'pending' AND due_us >= {HELD_US}")
_GIVEN_UP = text("state = 'failed' AND payload <> ''")
_SETTLED = text("state NOT IN ('pending', 'failed')")
_FAILED = text("state = 'failed'")
_DELETED = text("deleted_us IS NOT NULL")

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
    Column("byte_offset", BigInteger),
    Column("byte_size", BigInteger),
    Index("uq_events_replica_seq", "replica", "seq", unique=True),
    Index("ix_events_replica_seq_us_seq", "replica", "seq_us", "seq"),
    Index(
        "ix_events_unnumbered",
        "at_us",
        sqlite_where=text("seq IS NULL"),
        postgresql_where=text("seq IS NULL"),
    ),
)
"""Committed unnumbered; the one sequencer gives `seq` and `seq_us`, which order feeds. The line of
an event lies at `byte_offset` of the current journal that covers its number."""

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
    Column("hmac_previous", LargeBinary),
    Column("hmac_previous_us", BigInteger),
    Column("state", Key, nullable=False, server_default="active"),
    Column("state_reason", Text),
    Column("state_us", BigInteger),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("failing_us", BigInteger),
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
    Index(
        "ix_subscriptions_deleted",
        "deleted_us",
        sqlite_where=_DELETED,
        postgresql_where=_DELETED,
    ),
)
"""`hmac_secret` is sealed, and so is the one before it, which signs until `hmac_previous_us`;
`query` is JMESPath text or es_query JSON; attachments are JSON. `state` is active, paused or
disabled, since `state_us`; `failures` counts attempts since the last that was taken, the first of
them at `failing_us`."""

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
"""One receiver (scheme, host, port, path): leased by at most one process at a time.
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
    Column("request_id", Text, nullable=False, server_default=""),
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
    Index("ix_deliveries_latest", "subscription_id", "created_us", "id"),
    Index("ix_deliveries_kind", "subscription_id", "state", "event_type", "created_us", "id"),
    Index("ix_deliveries_bundle", "subscription_id", "bundle_uuid", "created_us", "id"),
    Index(
        "ix_deliveries_held",
        "subscription_id",
        "id",
        sqlite_where=_HELD,
        postgresql_where=_HELD,
    ),
    Index(
        "ix_deliveries_given_up",
        "subscription_id",
        "finished_us",
        sqlite_where=_GIVEN_UP,
        postgresql_where=_GIVEN_UP,
    ),
    Index(
        "ix_deliveries_settled",
        "finished_us",
        sqlite_where=_SETTLED,
        postgresql_where=_SETTLED,
    ),
    Index(
        "ix_deliveries_failed",
        "finished_us",
        sqlite_where=_FAILED,
        postgresql_where=_FAILED,
    ),
    # Each attempt rewrites a row and its place among what is due.
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)
"""`uuid` is the transaction id, the same on every attempt; states: pending, delivered, failed,
superseded, cancelled. `payload` is the JSON to send, fixed when matched; empty where the stored
query itself failed. `event_us` orders what one subscription is told of one bundle. What is held
back is pending and due `HELD_US` later than its schedule has it."""

attempts = narrow(
    "attempts",
    Column("delivery_id", Id, ForeignKey("deliveries.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("status", Integer),
    Column("error", Text),
    Column("body", Text),
)
