"""Browser sessions: log in, log out, and the audit entries of logins.

A session ends by logout, at the end of its lifetime, after its idle timeout, when its user is
disabled, and when the user's password changes.

Attackers can cause any number of failed logins, so the audit log takes a limited number per hour
and then only their count.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from auth.accounts import AuditContext, admit_at_login, is_user_enabled, record_audit
from auth.secret_values import hash_secret
from storage.catalog import Catalog, Tx, login

SESSION_COOKIE = "store-session"
COOKIE_BYTES = 32
SEEN_INTERVAL_US = 60_000_000
"""The last use of a session is recorded at most once a minute."""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A logged-in user at a browser; `at_s` is when they logged in, `csrf` the form token."""

    id: str
    email: str
    provider: str
    at_s: float
    csrf: str

    @property
    def at_us(self) -> int:
        """When the user logged in, in microseconds."""
        return int(self.at_s * 1e6)


@dataclass(frozen=True, slots=True)
class SessionLifetimes:
    """Absolute and idle timeout of sessions, in seconds."""

    whole_s: int
    idle_s: int


def host_cookie_name(name: str, base_url: str) -> str:
    """Return a cookie name; `__Host-` over HTTPS, so that no other host can set it."""
    return f"__Host-{name}" if base_url.startswith("https://") else name


def create_session(
    tx: Tx, email: str, provider: str, *, now: float, lifetimes: SessionLifetimes
) -> tuple[str, BrowserSession]:
    """Create a session with a new cookie; return the cookie and the session."""
    cookie = secrets.token_urlsafe(COOKIE_BYTES)
    now_us = int(now * 1e6)
    row = login.SessionRow(
        id=hash_secret(cookie),
        email=email,
        provider=provider,
        created_us=now_us,
        seen_us=now_us,
        idle_us=lifetimes.idle_s * 1_000_000,
        ends_us=now_us + lifetimes.whole_s * 1_000_000,
    )
    login.insert_session(tx, row)
    return cookie, _build_session(row, cookie)


def find_session(catalog: Catalog, cookie: str | None, now: float) -> BrowserSession | None:
    """Return the live session of a cookie, or None."""
    if not cookie:
        return None
    now_us = int(now * 1e6)
    with catalog.read() as tx:
        row = login.find_session(tx, hash_secret(cookie))
        enabled = row is None or is_user_enabled(tx, row.email)
    if row is None or not row.is_live(now_us):
        return None
    if not enabled:
        # Old logins must not revive when the user is enabled again.
        with catalog.write() as tx:
            login.end_logins(tx, row.email)
        return None
    if now_us - row.seen_us >= SEEN_INTERVAL_US:
        with catalog.write(durable=False) as tx:
            login.touch_session(tx, row.id, now_us)
    return _build_session(row, cookie)


def delete_session(tx: Tx, cookie: str | None) -> bool:
    """End the session of a cookie; False if there is none."""
    return bool(cookie) and login.end_session(tx, hash_secret(cookie or ""))


def _build_session(row: login.SessionRow, cookie: str) -> BrowserSession:
    # Derived from the cookie, so that a leaked catalog does not reveal form tokens.
    csrf = hashlib.sha256(b"csrf " + cookie.encode()).hexdigest()
    return BrowserSession(row.id, row.email, row.provider, row.created_us / 1e6, csrf)


MAX_SESSIONS_SHOWN = 100
"""The account page shows those that were used last."""


def list_browser_sessions(catalog: Catalog, email: str, now: float) -> list[login.SessionRow]:
    """List a user's live sessions, the last used first."""
    with catalog.read() as tx:
        return login.list_sessions(tx, email, int(now * 1e6), limit=MAX_SESSIONS_SHOWN)


AUDIT_WINDOW_S = 3_600
MAX_AUDITED_FAILURES = 20
"""Audit entries of one kind per account or address in that window."""


def record_login_event(
    tx: Tx, who: str, what: str, email: str, request_id: str, **after: str | int
) -> None:
    """Write an audit entry about a user's login; `who` is empty if unknown."""
    record_audit(tx, AuditContext(who, what, request_id), f"user/{email}", before=None, after=after)


@dataclass(frozen=True, slots=True)
class LoginFailure:
    """A failed login; `email` is empty if unknown."""

    email: str
    at: float
    request_id: str


def record_login_failure(
    tx: Tx, what: str, failure: LoginFailure, *, keys: Iterable[str], **after: str | int
) -> None:
    """Write an audit entry of a failure, limited per lockout key.

    The entry's `untold` is the number of failures before it that were not written.
    """
    now_us, span_us = int(failure.at * 1e6), AUDIT_WINDOW_S * 1_000_000
    # Sorted, so that transactions cannot deadlock.
    skipped = [
        login.count_in_window(
            tx, f"{what} {key}", most=MAX_AUDITED_FAILURES, now_us=now_us, span_us=span_us
        )
        for key in sorted(set(keys))
    ]
    counts = [count for count in skipped if count is not None]
    if len(counts) == len(skipped):
        more = {"untold": max(counts)} if any(counts) else {}
        record_login_event(tx, "", what, failure.email, failure.request_id, **after, **more)


@dataclass(frozen=True)
class AuthenticatedUser:
    """A user who has just logged in; `former` is the browser's old session cookie."""

    email: str
    provider: str
    at: float
    request_id: str
    former: str | None = None


def log_in_user(
    catalog: Catalog, user: AuthenticatedUser, lifetimes: SessionLifetimes
) -> tuple[str, BrowserSession]:
    """Create a session; return its cookie and the session. Forbidden if the user is disabled.

    The browser's old session ends, which prevents session fixation.
    """
    with catalog.write() as tx:
        admit_at_login(tx, user.email, user.request_id)
        delete_session(tx, user.former)
        session = create_session(tx, user.email, user.provider, now=user.at, lifetimes=lifetimes)
        record_login_event(
            tx, user.email, "login", user.email, user.request_id, provider=user.provider
        )
    return session


def log_out_user(
    catalog: Catalog, session: BrowserSession, cookie: str | None, request_id: str
) -> None:
    """End the session of a browser, with an audit entry."""
    with catalog.write() as tx:
        delete_session(tx, cookie)
        record_login_event(
            tx, session.email, "logout", session.email, request_id, provider=session.provider
        )
