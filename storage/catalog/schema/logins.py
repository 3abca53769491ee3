"""Tables of who is at a browser: sessions, passwords, failed tries, logins that are under way."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from storage.catalog.schema.base import Key, metadata, narrow

sessions = Table(
    "sessions",
    metadata,
    Column("id", Key, primary_key=True),
    Column("email", Key, nullable=False),
    Column("provider", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("idle_us", BigInteger, nullable=False),
    Column("ends_us", BigInteger, nullable=False),
    Column("consents", Text, nullable=False, server_default="{}"),
    Index("ix_sessions_email", "email"),
    Index("ix_sessions_ends_us", "ends_us"),
)
"""A browser's login; `id` is the SHA-256 of what its cookie holds, `consents` a JSON object: the
scopes that the person let each client have in this session."""

passwords = narrow(
    "passwords",
    Column("email", Key, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)
"""Users of the local provider; the hash says itself how it was made."""

tries = narrow(
    "tries",
    Column("who", Key, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Index("ix_tries_last_us", "last_us"),
)
"""Failed logins in a row of an account, an address or a browser; none is tried before its time."""

upstream_logins = narrow(
    "upstream_logins",
    Column("id", Key, primary_key=True),
    Column("provider", Key, nullable=False),
    Column("browser", Key, nullable=False),
    Column("target", Text, nullable=False),
    Column("ends_us", BigInteger, nullable=False),
    Index("ix_upstream_logins_ends_us", "ends_us"),
)
"""Who was sent to a provider and is not back; `id` is the SHA-256 of the state, taken once."""

rates = narrow(
    "rates",
    Column("who", Key, primary_key=True),
    Column("full_us", BigInteger, nullable=False),
    Index("ix_rates_full_us", "full_us"),
)
"""How often somebody may ask: when all that was taken of the allowance will be back."""
