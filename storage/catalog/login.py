"""Sessions, passwords, upstream logins, lockout, and rate limits."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import case, delete, insert, select, update

from storage.catalog import oauth, sql
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.accounts import (
    login_links,
    passwords,
    rates,
    sessions,
    tries,
    upstream_logins,
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A stored session."""

    id: str
    email: str
    provider: str
    created_us: int
    seen_us: int
    idle_us: int
    ends_us: int

    def is_live(self, now_us: int) -> bool:
        """Return whether the session has neither ended nor been idle for too long."""
        return now_us < self.ends_us and now_us < self.seen_us + self.idle_us


def insert_session(tx: Tx, row: SessionRow) -> None:
    """Insert a session, and delete some that have ended."""
    sql.delete_oldest(tx, "sessions", before_us=row.created_us)
    tx.execute(insert(sessions), asdict(row))


_SESSION = sql.parse(f"SELECT {sql.list_columns(sessions, 's')} FROM sessions AS s WHERE id = :id")


def find_session(tx: Tx, session_id: str) -> SessionRow | None:
    """Return a session, live or not."""
    return sql.find_row(tx, SessionRow, _SESSION, {"id": session_id})


def touch_session(tx: Tx, session_id: str, now_us: int) -> None:
    """Record that a session was used."""
    query = sql.parse("UPDATE sessions SET seen_us = :now WHERE id = :id AND seen_us < :now")
    tx.execute(query, {"id": session_id, "now": now_us})


_CONSENTS = "SELECT consents FROM sessions WHERE id = :id"
_UPDATE_CONSENTS = sql.parse("UPDATE sessions SET consents = :consents WHERE id = :id")


def find_session_consent(tx: Tx, session_id: str, client: str) -> frozenset[str]:
    """Return the scopes a user has allowed a client in this session."""
    return frozenset(_read_session_consents(tx, session_id).get(client, ()))


def insert_session_consent(tx: Tx, session_id: str, client: str, scopes: Iterable[str]) -> None:
    """Add scopes to those allowed in this session."""
    consents = _read_session_consents(tx, session_id, sql.lock_clause(tx))
    consents[client] = sorted({*consents.get(client, ()), *scopes})
    tx.execute(_UPDATE_CONSENTS, {"id": session_id, "consents": json.dumps(consents)})


def delete_session_consents(tx: Tx, client: str, *, email: str | None = None) -> None:
    """Delete a client's consents from all sessions, or from those of one user."""
    condition = "" if email is None else " AND email = :email"
    query = f"SELECT id FROM sessions WHERE consents <> '{{}}'{condition} ORDER BY id"
    locked = tx.execute(sql.parse(query + sql.lock_clause(tx)), {"email": email})
    for session_id in locked.scalars().all():
        consents = _read_session_consents(tx, session_id)
        if consents.pop(client, None) is not None:
            tx.execute(_UPDATE_CONSENTS, {"id": session_id, "consents": json.dumps(consents)})


def _read_session_consents(tx: Tx, session_id: str, lock: str = "") -> dict[str, list[str]]:
    text = tx.execute(sql.parse(_CONSENTS + lock), {"id": session_id}).scalar()
    consents: dict[str, list[str]] = json.loads(text or "{}")
    return consents


def list_sessions(tx: Tx, email: str, now_us: int, *, limit: int) -> list[SessionRow]:
    """List a user's live sessions, the last used first."""
    query = (
        f"SELECT {sql.list_columns(sessions, 's')} FROM sessions AS s WHERE email = :email"
        " AND ends_us > :now AND seen_us + idle_us > :now ORDER BY seen_us DESC, id LIMIT :limit"
    )
    rows = tx.execute(sql.parse(query), {"email": email, "now": now_us, "limit": limit})
    return sql.map_rows(SessionRow, rows)


def end_session(tx: Tx, session_id: str) -> bool:
    """End a session; False when it does not exist."""
    return bool(tx.execute(delete(sessions).filter_by(id=session_id)).rowcount)


def end_logins(tx: Tx, email: str) -> None:
    """End a user's sessions, login links, grants and device codes."""
    tx.execute(delete(sessions).filter_by(email=email))
    delete_login_links(tx, email)
    oauth.delete_device_codes(tx, email)
    oauth.revoke_grants(tx, now_us(tx), email=email)


@dataclass(frozen=True, slots=True)
class EndedLogins:
    """Counts of sessions and grants that were ended."""

    sessions: int
    grants: int


def end_all_logins(tx: Tx) -> EndedLogins:
    """End all sessions, grants, device codes and login links, and all logins in progress."""
    oauth.delete_all_device_codes(tx)
    tx.execute(delete(upstream_logins))
    tx.execute(delete(login_links))
    ended = tx.execute(delete(sessions)).rowcount
    return EndedLogins(ended, oauth.revoke_all_grants(tx, now_us(tx)))


@dataclass(frozen=True, slots=True)
class PasswordRow:
    """A user of the local provider."""

    email: str
    hash: str
    created_us: int
    changed_us: int


def find_password(tx: Tx, email: str) -> PasswordRow | None:
    """Return a user's password hash; None without a password."""
    return sql.find_row(tx, PasswordRow, select(passwords).filter_by(email=email))


def list_passwords(tx: Tx) -> list[PasswordRow]:
    """List all users with a password, by e-mail address."""
    return sql.map_rows(PasswordRow, tx.execute(select(passwords).order_by(passwords.c.email)))


def insert_password(tx: Tx, row: PasswordRow) -> bool:
    """Insert a user; False when the address exists."""
    return bool(sql.insert_missing(tx, passwords, [asdict(row)]))


def change_password(tx: Tx, email: str, hashed: str, now_us: int) -> bool:
    """Change a password and end all logins of the user; False when the user does not exist."""
    password = update(passwords).filter_by(email=email)
    changed = tx.execute(password.values(hash=hashed, changed_us=now_us)).rowcount
    end_logins(tx, email)
    return bool(changed)


def rehash_password(tx: Tx, email: str, *, before: str, after: str) -> None:
    """Replace the hash of an unchanged password; do nothing if the password was changed."""
    tx.execute(update(passwords).filter_by(email=email, hash=before).values(hash=after))


def delete_password(tx: Tx, email: str) -> bool:
    """Delete a password and end all logins; False when the user does not exist."""
    end_logins(tx, email)
    return bool(tx.execute(delete(passwords).filter_by(email=email)).rowcount)


@dataclass(frozen=True, slots=True)
class UpstreamLoginRow:
    """A login in progress at an upstream provider: its browser, and the page to return to."""

    id: str
    provider: str
    browser: str
    target: str


def insert_upstream_login(tx: Tx, row: UpstreamLoginRow, *, now_us: int, ends_us: int) -> None:
    """Insert a login in progress, and delete some that have expired."""
    sql.delete_oldest(tx, "upstream_logins", before_us=now_us)
    tx.execute(insert(upstream_logins), {**asdict(row), "ends_us": ends_us})


def take_upstream_login(
    tx: Tx, login_id: str, provider: str, browser: str, *, now_us: int
) -> str | None:
    """Consume a login in progress; None if it expired or another browser began it."""
    c = upstream_logins.c
    own = (c.id == login_id) & (c.provider == provider) & (c.browser == browser)
    statement = delete(upstream_logins).where(own, c.ends_us > now_us).returning(c.target)
    return tx.execute(statement).scalar()


@dataclass(frozen=True, slots=True)
class LoginLinkRow:
    """A one-time login link; `id` is the digest of its token."""

    id: str
    email: str
    created_us: int
    ends_us: int
    used_us: int | None = None


def insert_login_link(tx: Tx, row: LoginLinkRow) -> None:
    """Insert a link instead of the user's other ones, and delete some that have expired."""
    sql.delete_oldest(tx, "login_links", before_us=row.created_us - EXPIRED_LINK_GRACE_US)
    delete_login_links(tx, row.email)
    tx.execute(insert(login_links), asdict(row))


EXPIRED_LINK_GRACE_US = 30 * 86_400_000_000
"""How long an expired link answers that it has expired, before it is unknown."""


def find_login_link(tx: Tx, link_id: str) -> LoginLinkRow | None:
    """Return a link, used or expired as it may be."""
    return sql.find_row(tx, LoginLinkRow, select(login_links).filter_by(id=link_id))


def use_login_link(tx: Tx, link_id: str, now_us: int) -> bool:
    """Mark a link used; False if it is used or has expired: of two at once, one gets True."""
    c = login_links.c
    unused = (c.id == link_id) & c.used_us.is_(None) & (c.ends_us > now_us)
    return bool(tx.execute(update(login_links).where(unused).values(used_us=now_us)).rowcount)


def delete_login_links(tx: Tx, email: str) -> None:
    """Delete a user's login links."""
    tx.execute(delete(login_links).filter_by(email=email))


@dataclass(frozen=True, slots=True)
class LoginFailures:
    """Consecutive failures of a key, and the end of its lockout."""

    who: str
    failures: int
    last_us: int
    until_us: int


_COUNT_FAILURE = sql.parse(
    "INSERT INTO tries (who, failures, last_us, until_us) VALUES (:who, 1, :now, 0)"
    " ON CONFLICT (who) DO UPDATE SET last_us = excluded.last_us, failures ="
    " CASE WHEN tries.last_us < :forgotten THEN 1 ELSE tries.failures + 1 END"
    " WHERE tries.until_us <= excluded.last_us RETURNING failures"
)


def count_failure(tx: Tx, who: str, *, now_us: int, forgotten_us: int) -> int | None:
    """Count a failure; return the number, or None during a lockout.

    The row stays locked, so that simultaneous attempts are counted one after the other.
    """
    values = {"who": who, "now": now_us, "forgotten": forgotten_us}
    row = tx.execute(_COUNT_FAILURE, values).first()
    return None if row is None else int(row.failures)


def lock_out(tx: Tx, who: str, until_us: int) -> None:
    """Lock a key out until `until_us`."""
    tx.execute(update(tries).filter_by(who=who).values(until_us=until_us))


def uncount_failure(tx: Tx, who: str, *, counted: int) -> None:
    """Take back a counted failure; others counted since then stay."""
    until_us = case((tries.c.failures == counted, 0), else_=tries.c.until_us)
    values = {"failures": tries.c.failures - 1, "until_us": until_us}
    tx.execute(update(tries).filter_by(who=who).values(**values))


def clear_failures(tx: Tx, who: str) -> bool:
    """Clear the failures of a key; False when there are none."""
    return bool(tx.execute(delete(tries).filter_by(who=who)).rowcount)


def clear_all_failures(tx: Tx, prefix: str, *, suffix: str = "") -> bool:
    """Clear failures of keys with this prefix and suffix; False when there are none."""
    keys = [row.who for row in list_failures(tx, prefix) if row.who.endswith(suffix)]
    return sum(clear_failures(tx, who) for who in keys) > 0


def list_failures(tx: Tx, prefix: str) -> list[LoginFailures]:
    """List the failures of keys with this prefix."""
    beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    query = select(tries).where(tries.c.who >= prefix, tries.c.who < beyond)
    return sql.map_rows(LoginFailures, tx.execute(query))


def expire_failures(tx: Tx, before_us: int) -> None:
    """Delete some rows whose last failure was before a moment."""
    sql.delete_oldest(tx, "tries", key="who", time="last_us", before_us=before_us)


def find_failures(tx: Tx, who: str) -> LoginFailures | None:
    """Return the failures of a key."""
    return sql.find_row(tx, LoginFailures, select(tries).filter_by(who=who))


_COUNT_IN_WINDOW = sql.parse(
    "INSERT INTO tries (who, failures, last_us, until_us) VALUES (:who, 1, :now, :until)"
    " ON CONFLICT (who) DO UPDATE SET last_us = excluded.last_us, failures = tries.failures + 1"
    " RETURNING failures, until_us"
)


def count_in_window(tx: Tx, who: str, *, most: int, now_us: int, span_us: int) -> int | None:
    """Count an event in a fixed window; return None beyond `most`.

    Otherwise return how many events of the previous window were beyond it, if this is the first
    event of a new one, else 0.
    """
    until_us = now_us + span_us
    row = tx.execute(_COUNT_IN_WINDOW, {"who": who, "now": now_us, "until": until_us}).one()
    if row.until_us <= now_us:
        window = update(tries).filter_by(who=who)
        tx.execute(window.values(failures=1, until_us=until_us))
        return max(0, int(row.failures) - 1 - most)
    return 0 if row.failures <= most else None


_TAKE_PERMIT = sql.parse(
    "INSERT INTO rates (who, full_us) VALUES (:who, :now + :step)"
    " ON CONFLICT (who) DO UPDATE SET full_us ="
    " CASE WHEN rates.full_us < :now THEN :now ELSE rates.full_us END + :step"
    " WHERE rates.full_us <= :latest"
)


def take_permit(tx: Tx, who: str, *, now_us: int, step_us: int, burst: int) -> int:
    """Take a permit of a token bucket; return 0, or the microseconds to wait.

    The bucket holds `burst` permits, and each is back after `step_us`.
    """
    latest = now_us + (burst - 1) * step_us
    values = {"who": who, "now": now_us, "step": step_us, "latest": latest}
    if tx.execute(_TAKE_PERMIT, values).rowcount:
        return 0
    full = tx.execute(select(rates.c.full_us).where(rates.c.who == who)).scalar()
    return max(1, int(full or 0) - latest)


def expire_rates(tx: Tx, before_us: int) -> None:
    """Delete some full token buckets."""
    sql.delete_oldest(tx, "rates", key="who", time="full_us", before_us=before_us)
