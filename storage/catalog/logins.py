"""Sessions, passwords, and logins that are under way. Ids are digests: whoever reads these tables
cannot be anybody at a browser. Times are the caller's, in microseconds.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from storage.catalog import device_codes, engine, grants
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


_CONSENTS = "SELECT consents FROM sessions WHERE id = :id"
_PUT_CONSENTS = sql("UPDATE sessions SET consents = :consents WHERE id = :id")


def session_consent(tx: Tx, session_id: str, client: str) -> frozenset[str]:
    """The scopes that a person let a client have in this session."""
    return frozenset(_consents(tx, session_id).get(client, ()))


def add_session_consent(tx: Tx, session_id: str, client: str, scopes: Iterable[str]) -> None:
    """Remember that these were allowed, beside those that were before."""
    lock = "" if tx.dialect.name == "sqlite" else " FOR UPDATE"
    consents = _consents(tx, session_id, lock)
    consents[client] = sorted({*consents.get(client, ()), *scopes})
    tx.execute(_PUT_CONSENTS, {"id": session_id, "consents": json.dumps(consents)})


def forget_session_consents(tx: Tx, client: str, *, email: str | None = None) -> None:
    """Forget what a client was let have in all sessions, of one person or of everyone."""
    whose = "" if email is None else " AND email = :email"
    query = f"SELECT id FROM sessions WHERE consents <> '{{}}'{whose} ORDER BY id"
    lock = "" if tx.dialect.name == "sqlite" else " FOR UPDATE"
    values = {} if email is None else {"email": email}
    for session_id in tx.execute(sql(query + lock), values).scalars().all():
        consents = _consents(tx, session_id)
        if consents.pop(client, None) is not None:
            tx.execute(_PUT_CONSENTS, {"id": session_id, "consents": json.dumps(consents)})


def _consents(tx: Tx, session_id: str, lock: str = "") -> dict[str, list[str]]:
    text = tx.execute(sql(_CONSENTS + lock), {"id": session_id}).scalar()
    found: dict[str, list[str]] = json.loads(text or "{}")
    return found


def end_session(tx: Tx, session_id: str) -> bool:
    """End one session; False when there is none such."""
    return bool(tx.execute(sql("DELETE FROM sessions WHERE id = :id"), {"id": session_id}).rowcount)


def end_all(tx: Tx, email: str) -> None:
    """End all that a user's logins gave: sessions, what applications were granted, and devices that
    were let in and have not come for their tokens yet."""
    tx.execute(sql("DELETE FROM sessions WHERE email = :email"), {"email": email})
    device_codes.remove_of(tx, email)
    grants.revoke_of(tx, engine.now_us(tx), email=email)


@dataclass(frozen=True, slots=True)
class Ended:
    """How many sessions, and grants of applications, there were."""

    sessions: int
    grants: int


def end_everybodys(tx: Tx) -> Ended:
    """End all that any login gave, and those that are under way."""
    device_codes.remove_all(tx)
    tx.execute(sql("DELETE FROM upstream_logins"))
    sessions = tx.execute(sql("DELETE FROM sessions")).rowcount
    return Ended(sessions, grants.revoke_all(tx, engine.now_us(tx)))


def _forget(tx: Tx, table: str, key: str, before_us: int) -> None:
    old = f"SELECT {key} FROM {table} WHERE ends_us < :before ORDER BY ends_us LIMIT {FORGOTTEN}"
    tx.execute(sql(f"DELETE FROM {table} WHERE {key} IN ({old})"), {"before": before_us})


@dataclass(frozen=True, slots=True)
class PasswordRow:
    """A user of the local provider."""

    email: str
    hash: str
    created_us: int
    changed_us: int


_PASSWORDS = "SELECT email, hash, created_us, changed_us FROM passwords"


def password(tx: Tx, email: str) -> PasswordRow | None:
    """The user's password, hashed; None of who has none."""
    row = tx.execute(sql(f"{_PASSWORDS} WHERE email = :email"), {"email": email}).first()
    return None if row is None else PasswordRow(**row._mapping)


def passwords(tx: Tx) -> list[PasswordRow]:
    """All of them, by e-mail address."""
    return [PasswordRow(**row._mapping) for row in tx.execute(sql(f"{_PASSWORDS} ORDER BY email"))]


def add_password(tx: Tx, row: PasswordRow) -> bool:
    """A new user; False when there is one of that address."""
    added = tx.execute(
        sql(
            "INSERT INTO passwords (email, hash, created_us, changed_us)"
            " VALUES (:email, :hash, :created_us, :changed_us) ON CONFLICT DO NOTHING"
        ),
        {name: getattr(row, name) for name in PasswordRow.__slots__},
    )
    return bool(added.rowcount)


def change_password(tx: Tx, email: str, hashed: str, now_us: int) -> bool:
    """Another password, which ends every login of the user; False when there is no such user."""
    query = sql("UPDATE passwords SET hash = :hash, changed_us = :now WHERE email = :email")
    changed = tx.execute(query, {"email": email, "hash": hashed, "now": now_us}).rowcount
    end_all(tx, email)
    return bool(changed)


def rehash(tx: Tx, email: str, *, before: str, after: str) -> None:
    """The same password, hashed anew; nothing when it was changed meanwhile."""
    query = sql("UPDATE passwords SET hash = :after WHERE email = :email AND hash = :before")
    tx.execute(query, {"email": email, "before": before, "after": after})


def remove_password(tx: Tx, email: str) -> bool:
    """The user logs in with it no more; False when there is no such user."""
    end_all(tx, email)
    query = sql("DELETE FROM passwords WHERE email = :email")
    return bool(tx.execute(query, {"email": email}).rowcount)


@dataclass(frozen=True, slots=True)
class Away:
    """Who was sent to a provider: which, from which browser, and where to go afterwards."""

    id: str
    provider: str
    browser: str
    target: str


def send_away(tx: Tx, away: Away, *, now_us: int, ends_us: int) -> None:
    """Remember it until it is over; those that never came back are forgotten."""
    _forget(tx, "upstream_logins", "id", now_us)
    tx.execute(
        sql(
            "INSERT INTO upstream_logins (id, provider, browser, target, ends_us)"
            " VALUES (:id, :provider, :browser, :target, :ends)"
        ),
        {**{name: getattr(away, name) for name in Away.__slots__}, "ends": ends_us},
    )


_TAKE_BACK = sql(
    "DELETE FROM upstream_logins WHERE id = :id AND provider = :provider AND browser = :browser"
    " AND ends_us > :now RETURNING target"
)


def take_back(tx: Tx, away_id: str, provider: str, browser: str, *, now_us: int) -> str | None:
    """Where to go on to; None unless this browser was sent there, for the first time and lately."""
    asked = {"id": away_id, "provider": provider, "browser": browser, "now": now_us}
    row = tx.execute(_TAKE_BACK, asked).first()
    return None if row is None else str(row.target)
