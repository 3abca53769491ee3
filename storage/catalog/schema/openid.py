"""Tables of what people granted to applications: clients, grants, refresh tokens, device codes.

Codes, tokens and the secrets of clients are here as SHA-256 only.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
)

from storage.catalog.schema.base import Key, metadata, narrow

clients = Table(
    "clients",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret", Key),
    Column("redirect_uris", Text, nullable=False),
    Column("first_party", Boolean, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""Applications that an operator added; one without a secret is public. `redirect_uris` is JSON."""

grants = Table(
    "grants",
    metadata,
    Column("id", Key, primary_key=True),
    Column("client", Key, nullable=False),
    Column("email", Key, nullable=False),
    Column("scope", Text, nullable=False),
    Column("auth_us", BigInteger, nullable=False),
    Column("code", Key),
    Column("code_ends_us", BigInteger),
    Column("redirect_uri", Text),
    Column("challenge", Text),
    Column("nonce", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("redeemed_us", BigInteger),
    Column("revoked_us", BigInteger),
    Column("ends_us", BigInteger, nullable=False),
    UniqueConstraint("code"),
    Index("ix_grants_email_client", "email", "client"),
    Index("ix_grants_ends_us", "ends_us"),
)
"""What a person let one client have at one time: its code, and all tokens that came of it."""

refresh_tokens = narrow(
    "refresh_tokens",
    Column("id", Key, primary_key=True),
    Column("grant_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("used_us", BigInteger),
    Column("ends_us", BigInteger, nullable=False),
    Index("ix_refresh_tokens_ends_us", "ends_us"),
    Index("ix_refresh_tokens_grant_id", "grant_id"),
)
"""Each is used once; a used one is remembered, so that whoever uses it again is found out."""

device_codes = Table(
    "device_codes",
    metadata,
    Column("id", Key, primary_key=True),
    Column("user_code", Key, nullable=False),
    Column("client", Key, nullable=False),
    Column("scope", Text, nullable=False),
    Column("state", Key, nullable=False),
    Column("email", Key),
    Column("auth_us", BigInteger),
    Column("interval_s", Integer, nullable=False),
    Column("polled_us", BigInteger),
    Column("ends_us", BigInteger, nullable=False),
    UniqueConstraint("user_code"),
    Index("ix_device_codes_ends_us", "ends_us"),
)
"""Devices that wait for a person: `pending`, then `approved` by somebody, or `denied`."""

consents = narrow(
    "consents",
    Column("email", Key, primary_key=True),
    Column("client", Key, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)
"""What a person agreed to, so that nobody is asked twice for the same."""
