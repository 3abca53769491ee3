"""Tables of who uses the store and what they may do, and of who changed that."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, text

from storage.catalog.schema.base import Id, Key, metadata, narrow

accounts = Table(
    "accounts",
    metadata,
    Column("kind", Key, primary_key=True),
    Column("id", Key, primary_key=True),
    Column("status", Key, nullable=False, server_default="enabled"),
    Column("policy", Text),
    Column("built_in", Boolean, nullable=False, server_default=text("false")),
    Column("created_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)
"""Users, groups and roles: `kind` is user, group or role. `policy` is the JSON of its own policy;
those of built-in ones are in the code."""

memberships = narrow(
    "memberships",
    Column("member_kind", Key, primary_key=True),
    Column("member", Key, primary_key=True),
    Column("kind", Key, primary_key=True),
    Column("name", Key, primary_key=True),
    Column("built_in", Boolean, nullable=False, server_default=text("false")),
    Index("ix_memberships_held", "kind", "name", "member_kind", "member"),
)
"""Which user is in which group, and which user or group has which role."""

audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    Column("at_us", BigInteger, nullable=False),
    Column("who", Key, nullable=False),
    Column("what", Key, nullable=False),
    Column("target", Key, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("request_id", Text, nullable=False),
    Index("ix_audit_who", "who", "id"),
    Index("ix_audit_what", "what", "id"),
    Index("ix_audit_at_us", "at_us"),
)
"""Every change of the tables above and of whatever else decides who may do what; `before` and
`after` are JSON. Rows are only ever added, in the order of their ids; a backup knows them by their
`uuid`."""
