"""Tables of accounts, memberships, the audit log, login, OAuth and service accounts.

Codes, tokens and client secrets are stored as SHA-256 sums only.
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
    text,
)

from storage.catalog.tables.base import Id, Key, make_clustered_table, make_columns, metadata

accounts = Table(
    "accounts",
    metadata,
    *make_columns(Key, "kind", "id", primary_key=True),
    Column("status", Key, nullable=False, server_default="enabled"),
    Column("policy", Text),
    Column("built_in", Boolean, nullable=False, server_default=text("false")),
    *make_columns(BigInteger, "created_us", "changed_us"),
)
"""Users, groups and roles.

`kind` is user, group or role. `policy` is the account's own policy as JSON; those of built-in
accounts are in the code.
"""

memberships = make_clustered_table(
    "memberships",
    *make_columns(Key, "member_kind", "member", "kind", "name", primary_key=True),
    Column("built_in", Boolean, nullable=False, server_default=text("false")),
    Index("ix_memberships_held", "kind", "name", "member_kind", "member"),
)
"""Users in groups, and roles of users and groups."""

audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uuid", Key, nullable=False, unique=True),
    Column("at_us", BigInteger, nullable=False),
    *make_columns(Key, "who", "what", "target"),
    *make_columns(Text, "before", "after", nullable=True),
    Column("request_id", Text, nullable=False),
    Index("ix_audit_who", "who", "id"),
    Index("ix_audit_what", "what", "id"),
    Index("ix_audit_target", "target", "id"),
    Index("ix_audit_at_us", "at_us"),
)
"""Every change of accounts, policies and logins; `before` and `after` are JSON.

Append-only, in the order of ids. Backups identify rows by `uuid`.
"""

quotas = make_clustered_table(
    "quotas",
    *make_columns(Key, "kind", "name", primary_key=True),
    *make_columns(BigInteger, "bytes", "files", nullable=True),
)
"""Quotas that operators set; `kind` is user or group.

Null stands for the default of the settings, -1 for no limit.
"""

quota_usage = make_clustered_table(
    "quota_usage",
    *make_columns(Key, "kind", "name", primary_key=True),
    *make_columns(BigInteger, "bytes", "files"),
)
"""What each user, and each group with a quota, uses: counted while quotas are enforced."""

quota_reservations = make_clustered_table(
    "quota_reservations",
    Column("id", Key, primary_key=True),
    Column("owner", Key, nullable=False),
    *make_columns(BigInteger, "bytes", "files", "expires_us"),
    Index("ix_quota_reservations_expires_us", "expires_us"),
)
"""What uploads that are under way will add, which `quota_usage` already has.

The row is deleted when the upload ends. If its process was killed, it expires.
"""

service_keys = make_clustered_table(
    "service_keys",
    *make_columns(Key, "email", "kid", primary_key=True),
    Column("jwk", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""Public keys of service accounts, as JWKs.

An account exists as long as it has a key. Its permissions are those of its user.
"""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "email", "provider"),
    *make_columns(BigInteger, "created_us", "seen_us", "idle_us", "ends_us"),
    Column("consents", Text, nullable=False, server_default="{}"),
    Index("ix_sessions_email", "email"),
    Index("ix_sessions_ends_us", "ends_us"),
)
"""Browser sessions.

`id` is the SHA-256 of the cookie's value. `consents` is a JSON object of the scopes that the user
allowed each client in this session.
"""

passwords = make_clustered_table(
    "passwords",
    Column("email", Key, primary_key=True),
    Column("hash", Text, nullable=False),
    *make_columns(BigInteger, "created_us", "changed_us"),
)
"""Users of the local provider; each hash names its algorithm and parameters."""

tries = make_clustered_table(
    "tries",
    Column("who", Key, primary_key=True),
    Column("failures", Integer, nullable=False),
    *make_columns(BigInteger, "last_us", "until_us"),
    Index("ix_tries_last_us", "last_us"),
)
"""Consecutive failed logins of an account, address or browser, and its lockout."""

upstream_logins = make_clustered_table(
    "upstream_logins",
    Column("id", Key, primary_key=True),
    *make_columns(Key, "provider", "browser"),
    Column("target", Text, nullable=False),
    Column("ends_us", BigInteger, nullable=False),
    Index("ix_upstream_logins_ends_us", "ends_us"),
)
"""Logins in progress at upstream providers; `id` is the SHA-256 of the single-use state."""

login_links = make_clustered_table(
    "login_links",
    Column("id", Key, primary_key=True),
    Column("email", Key, nullable=False),
    *make_columns(BigInteger, "created_us", "ends_us"),
    Column("used_us", BigInteger),
    Index("ix_login_links_email", "email"),
    Index("ix_login_links_ends_us", "ends_us"),
)
"""One-time login links; `id` is the SHA-256 of the token. Used ones stay until they expire."""

rates = make_clustered_table(
    "rates",
    Column("who", Key, primary_key=True),
    Column("full_us", BigInteger, nullable=False),
    Index("ix_rates_full_us", "full_us"),
)
"""Token buckets for rate limits: when each will be full."""

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
"""OAuth clients added by operators; one without a secret is public. `redirect_uris` is JSON."""

grants = Table(
    "grants",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "client", "email"),
    Column("scope", Text, nullable=False),
    Column("auth_us", BigInteger, nullable=False),
    Column("code", Key),
    Column("code_ends_us", BigInteger),
    *make_columns(Text, "redirect_uri", "challenge", "nonce", nullable=True),
    Column("created_us", BigInteger, nullable=False),
    *make_columns(BigInteger, "redeemed_us", "revoked_us", nullable=True),
    Column("ends_us", BigInteger, nullable=False),
    Column("name", Text),
    Column("used_us", BigInteger),
    UniqueConstraint("code"),
    Index("ix_grants_email_client", "email", "client"),
    Index("ix_grants_ends_us", "ends_us"),
)
"""What a user allowed a client at one time: its code, and all tokens issued for it.

`name` and `used_us` (the last use, about) are of personal tokens only.
"""

refresh_tokens = make_clustered_table(
    "refresh_tokens",
    Column("id", Key, primary_key=True),
    Column("grant_id", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("used_us", BigInteger),
    Column("ends_us", BigInteger, nullable=False),
    Index("ix_refresh_tokens_ends_us", "ends_us"),
    Index("ix_refresh_tokens_grant_id", "grant_id"),
)
"""Single-use refresh tokens; used ones are kept to detect reuse."""

device_codes = Table(
    "device_codes",
    metadata,
    Column("id", Key, primary_key=True),
    *make_columns(Key, "user_code", "client"),
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
"""Device codes: `pending`, then `approved` or `denied`."""

consents = make_clustered_table(
    "consents",
    *make_columns(Key, "email", "client", primary_key=True),
    Column("scope", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)
"""Permanent consents, so that users are not asked twice."""
