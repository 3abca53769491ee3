"""Tables of events, journals, replays, subscriptions, endpoints and deliveries."""

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
)

from storage.catalog.tables.base import (
    Id,
    Key,
    make_clustered_table,
    make_columns,
    metadata,
    partial_index,
)

PAUSED_DUE_US = 2**60
"""Added to the due time of paused deliveries: never due, but the schedule is kept."""

events = Table(
    "events",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "replica", "type", "uuid", "version"),
    Column("bundle_id", Id, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    *make_columns(BigInteger, "seq", "seq_us", "byte_offset", "byte_size", nullable=True),
    Index("uq_events_replica_seq", "replica", "seq", unique=True),
    Index("ix_events_replica_seq_us_seq", "replica", "seq_us", "seq"),
    partial_index("ix_events_unnumbered", "at_us", where="seq IS NULL"),
)
"""Events, committed without a number.

The sequencer assigns `seq` and `seq_us`, which order feeds. An event's line is at `byte_offset` of
the current journal of its number.
"""

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    *make_columns(Key, "owner", "replica", "type"),
    Column("query", Text),
    *make_columns(Text, "callback_url", "method", "encoding", "form_fields", "payload_form_field"),
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
    partial_index("ix_subscriptions_owner", "owner", "replica", "type", where="deleted_us IS NULL"),
    partial_index("ix_subscriptions_replica_type", "replica", "type", where="deleted_us IS NULL"),
    partial_index("ix_subscriptions_deleted", "deleted_us", where="deleted_us IS NOT NULL"),
    Index("ix_subscriptions_endpoint_id", "endpoint_id"),
)
"""Subscriptions; `state` is active, paused or disabled, since `state_us`.

`query` is JMESPath text or es_query JSON; attachments are JSON. Secrets are sealed; the previous
one signs until `hmac_previous_us`. `failures` counts failed attempts since the last success, the
first of them at `failing_us`."""

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
    partial_index("ix_endpoints_failing", "failures", "id", where="failures > 0"),
)
"""Receivers (scheme, host, port, path), each leased by at most one process at a time.

`width` is the window of concurrent requests. After repeated failures nothing is sent before
`resume_us`.
"""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    Column("subscription_id", Id, ForeignKey("subscriptions.id"), nullable=False),
    Column("event_id", Key, nullable=False),
    Column("endpoint_id", Id, nullable=False),
    *make_columns(Key, "event_type", "bundle_uuid", "bundle_version"),
    Column("payload", Text, nullable=False),
    Column("state", Key, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    *make_columns(BigInteger, "event_us", "due_us", "created_us"),
    Column("finished_us", BigInteger),
    Column("reason", Text),
    Column("request_id", Text, nullable=False, server_default=""),
    Column("resent_from", Key),
    UniqueConstraint("subscription_id", "event_id"),
    partial_index("ix_deliveries_due", "endpoint_id", "due_us", where="state = 'pending'"),
    partial_index(
        "ix_deliveries_open_bundle", "bundle_uuid", "subscription_id", where="state = 'pending'"
    ),
    Index("ix_deliveries_latest", "subscription_id", "created_us", "id"),
    Index("ix_deliveries_kind", "subscription_id", "state", "event_type", "created_us", "id"),
    Index("ix_deliveries_bundle", "subscription_id", "bundle_uuid", "created_us", "id"),
    partial_index(
        "ix_deliveries_held",
        "subscription_id",
        "id",
        where=f"state = 'pending' AND due_us >= {PAUSED_DUE_US}",
    ),
    partial_index(
        "ix_deliveries_given_up",
        "subscription_id",
        "finished_us",
        where="state = 'failed' AND payload <> ''",
    ),
    partial_index(
        "ix_deliveries_settled", "finished_us", where="state NOT IN ('pending', 'failed')"
    ),
    partial_index("ix_deliveries_failed", "finished_us", where="state = 'failed'"),
    # Each attempt rewrites a row and moves it in the index of due times.
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)
"""`uuid` is the transaction id, the same on every attempt; states: pending, delivered, failed,
superseded, cancelled. `payload` is the JSON to send, fixed when matched; empty where the stored
query failed. `event_us` orders the deliveries of one bundle to one subscription. A paused
delivery is pending and due PAUSED_DUE_US later than scheduled. `resent_from` is the state before
its owner resent it, until that attempt is recorded."""

attempts = make_clustered_table(
    "attempts",
    Column("delivery_id", Id, ForeignKey("deliveries.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("status", Integer),
    *make_columns(Text, "error", "body", nullable=True),
)


journals = Table(
    "journals",
    metadata,
    Column("id", Id, primary_key=True),
    Column("replica", Key, nullable=False),
    *make_columns(BigInteger, "first_seq", "last_seq"),
    *make_columns(Integer, "generation", "tier"),
    Column("state", Key, nullable=False),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("at_us", BigInteger, nullable=False),
    UniqueConstraint("replica", "first_seq", "last_seq", "generation"),
    partial_index("ix_journals_current", "replica", "last_seq", where="state = 'current'"),
    partial_index("ix_journals_tier", "replica", "tier", "first_seq", where="state = 'current'"),
    partial_index("ix_journals_other", "replica", "at_us", where="state <> 'current'"),
)
"""Journals: `writing`, then `current`, finally `past`, since `at_us`.

Current journals cover every number up to the last exactly once. Objects are put only under the key
of a row that is writing, and a row is deleted only after its objects: none is forgotten in a
bucket.
"""

replays = Table(
    "replays",
    metadata,
    Column("id", Key, primary_key=True),
    Column("subscription_id", Id, ForeignKey("subscriptions.id"), nullable=False),
    Column("replica", Key, nullable=False),
    *make_columns(BigInteger, "next_seq", "end_seq"),
    Column("deliveries", Integer, nullable=False, server_default="0"),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    partial_index("uq_replays_open", "subscription_id", unique=True, where="finished_us IS NULL"),
    Index("ix_replays_latest", "subscription_id", "created_us"),
)
"""Events from `next_seq` up to, not including, `end_seq` are to be sent; one replay is open at a
time."""
