"""Sessions, passwords, and logins that are under way. Ids are digests: whoever reads these tables
cannot be anybody at a browser. Times are the caller's, in microseconds.
"""

from dataclasses import dataclass

from storage.catalog.engine import Tx, sql

FORGOTTEN = 200
"""Rows that one statement forgets: whoever adds some takes old ones away."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is kept."""

    id: str
    email: str
    provider: str
    created_us: int
    seen_us: int
    idle_us: int
    ends_us: int

    def live(self, now_us: int) -> bool:
        """Whether it has neither ended nor lain idle for too long."""
        return now_us < self.ends_us and now_us < self.seen_us + self.idle_us


_ADD_SESSION = sql(
    "INSERT INTO sessions (id, email, provider, created_us, seen_us, idle_us, ends_us)"
    " VALUES (:id, :email, :provider, :created_us, :seen_us, :idle_us, :ends_us)"
)


def add_session(tx: Tx, row: SessionRow) -> None:
    """A new session; those that ended are forgotten, a bounded number at a time."""
    _forget(tx, "sessions", "id", row.created_us)
    members = {name: getattr(row, name) for name in SessionRow.__slots__}
    tx.execute(_ADD_SESSION, members)


_SESSION = sql(
    "SELECT id, email, provider, created_us, seen_us, idle_us, ends_us FROM sessions WHERE id = :id"
)


def session(tx: Tx, session_id: str) -> SessionRow | None:
    """The session, live or not."""
    row = tx.execute(_SESSION, {"id": session_id}).first()
    return None if row is None else SessionRow(**row._mapping)


def see(tx: Tx, session_id: str, now_us: int) -> None:
    """The session was used."""
    query = sql("UPDATE sessions SET seen_us = :now WHERE id = :id AND seen_us < :now")
    tx.execute(query, {"id": session_id, "now": now_us})


def end_session(tx: Tx, session_id: str) -> bool:
    """End one session; False when there is none such."""
    return bool(tx.execute(sql("DELETE FROM sessions WHERE id = :id"), {"id": session_id}).rowcount)


def end_sessions(tx: Tx, email: str) -> int:
    """End every session of a user; returns how many."""
    return tx.execute(sql("DELETE FROM sessions WHERE email = :email"), {"email": email}).rowcount


def _forget(tx: Tx, table: str, key: str, before_us: int) -> None:
    old = f"SELECT {key} FROM {table} WHERE ends_us < :before ORDER BY ends_us LIMIT {FORGOTTEN}"
    tx.execute(sql(f"DELETE FROM {table} WHERE {key} IN ({old})"), {"before": before_us})
