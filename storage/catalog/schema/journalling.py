"""Tables of where events are journalled, and of windows of them that are told once more."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, UniqueConstraint, text

from storage.catalog.schema.base import Id, Key, metadata

_CURRENT, _OTHER = text("state = 'current'"), text("state <> 'current'")
_OPEN = text("finished_us IS NULL")

journals = Table(
    "journals",
    metadata,
    Column("id", Id, primary_key=True),
    Column("replica", Key, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("tier", Integer, nullable=False),
    Column("state", Key, nullable=False),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("at_us", BigInteger, nullable=False),
    UniqueConstraint("replica", "first_seq", "last_seq", "generation"),
    Index(
        "ix_journals_current",
        "replica",
        "last_seq",
        sqlite_where=_CURRENT,
        postgresql_where=_CURRENT,
    ),
    Index(
        "ix_journals_tier",
        "replica",
        "tier",
        "first_seq",
        sqlite_where=_CURRENT,
        postgresql_where=_CURRENT,
    ),
    Index(
        "ix_journals_other",
        "replica",
        "at_us",
        sqlite_where=_OTHER,
        postgresql_where=_OTHER,
    ),
)
"""A journal is `writing`, then `current`, in the end `past`, since `at_us`. Current ones cover
every number up to the last of them once. Objects are put only under the name of a row that is
writing, and a row goes only after its objects: none is ever forgotten in a bucket."""

replays = Table(
    "replays",
    metadata,
    Column("id", Key, primary_key=True),
    Column("subscription_id", Id, ForeignKey("subscriptions.id"), nullable=False),
    Column("replica", Key, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("end_seq", BigInteger, nullable=False),
    Column("deliveries", Integer, nullable=False, server_default="0"),
    Column("created_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Index(
        "uq_replays_open",
        "subscription_id",
        unique=True,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    ),
)
"""Events from `next_seq` on and before `end_seq` are still to be told; one at a time is open."""
