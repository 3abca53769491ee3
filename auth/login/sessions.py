"""A browser's login: what its cookie holds is the session's only proof, and is kept as a digest.

A session ends by logging out, at a time that was set when it began, when it lies idle, when its
user is disabled, and when the user's password changes.
"""

import hashlib
import secrets
from dataclasses import dataclass

from auth.accounts.admitting import is_enabled
from auth.digests import digest
from storage.catalog import Catalog, logins
from storage.catalog.engine import Tx

COOKIE = "store-session"
COOKIE_BYTES = 32
SEEN_US = 60_000_000
"""A session's last use is written down once a minute, not with each request."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who is at a browser, by which provider and since when; `csrf` is what its forms hold."""

    id: str
    email: str
    provider: str
    at_s: float
    csrf: str


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a session lasts, and how long it may lie idle."""

    whole_s: int
    idle_s: int


def host_bound(name: str, base_url: str) -> str:
    """The name of a cookie of this host; over https one that no neighbour and no subdomain can
    set."""
    return f"__Host-{name}" if base_url.startswith("https://") else name


def begin(
    tx: Tx, email: str, provider: str, *, now: float, lifetimes: Lifetimes
) -> tuple[str, Session]:
    """A new session, and what its cookie holds; never one that the browser brought."""
    cookie = secrets.token_urlsafe(COOKIE_BYTES)
    now_us = int(now * 1e6)
    row = logins.SessionRow(
        id=digest(cookie),
        email=email,
        provider=provider,
        created_us=now_us,
        seen_us=now_us,
        idle_us=lifetimes.idle_s * 1_000_000,
        ends_us=now_us + lifetimes.whole_s * 1_000_000,
    )
    logins.add_session(tx, row)
    return cookie, _session(row, cookie)


def current(catalog: Catalog, cookie: str | None, now: float) -> Session | None:
    """The live session of a cookie; None for any other cookie."""
    if not cookie:
        return None
    now_us = int(now * 1e6)
    with catalog.read() as tx:
        row = logins.session(tx, digest(cookie))
        enabled = row is None or is_enabled(tx, row.email)
    if row is None or not row.live(now_us):
        return None
    if not enabled:
        # Enabling the user again is no reason for an old login to hold again.
        with catalog.write() as tx:
            logins.end_all(tx, row.email)
        return None
    if now_us - row.seen_us >= SEEN_US:
        with catalog.write(durable=False) as tx:
            logins.see(tx, row.id, now_us)
    return _session(row, cookie)


def end(tx: Tx, cookie: str | None) -> bool:
    """End the session of this cookie; False when it has none."""
    return bool(cookie) and logins.end_session(tx, digest(cookie or ""))


def _session(row: logins.SessionRow, cookie: str) -> Session:
    # Only the cookie makes it: what is in the catalog does not tell a form's token.
    csrf = hashlib.sha256(b"csrf " + cookie.encode()).hexdigest()
    return Session(row.id, row.email, row.provider, row.created_us / 1e6, csrf)
