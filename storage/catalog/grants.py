"""Grants and the refresh tokens that came of them; what a person agreed to. Codes and tokens are
given as digests. Times are the caller's, in microseconds.

Whoever changes a grant, or a token of it, holds the grant's row: of two who redeem one code, or
use one refresh token, the second sees what the first did.
"""

from dataclasses import dataclass

from storage.catalog import heads
from storage.catalog.engine import Tx, sql

HEAD, ALL = "grants", "all"
FORGOTTEN = 200
"""Rows that one statement forgets: whoever adds some takes old ones away."""


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What one person let one client have; the members of a code are None where none was given."""

    id: str
    client: str
    email: str
    scope: str
    auth_us: int
    code: str | None
    code_ends_us: int | None
    redirect_uri: str | None
    challenge: str | None
    nonce: str | None
    created_us: int
    redeemed_us: int | None
    revoked_us: int | None
    ends_us: int

    def stands(self, now_us: int) -> bool:
        """Whether tokens may be had by it, and those that it gave are good."""
        return self.revoked_us is None and now_us < self.ends_us


@dataclass(frozen=True, slots=True)
class RefreshRow:
    """A refresh token: used once, and remembered until its end."""

    id: str
    grant_id: str
    created_us: int
    used_us: int | None
    ends_us: int


_COLUMNS = GrantRow.__slots__
_LIST = ", ".join(_COLUMNS)
_OWN = ", ".join(f"g.{name}" for name in _COLUMNS)
_ADD = sql(f"INSERT INTO grants ({_LIST}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})")


def add(tx: Tx, row: GrantRow) -> None:
    """A new grant; those that ended are forgotten, a bounded number at a time."""
    _forget(tx, "grants", row.created_us)
    tx.execute(_ADD, {name: getattr(row, name) for name in _COLUMNS})


def find(tx: Tx, grant_id: str) -> GrantRow | None:
    """The grant, whether it stands or not."""
    row = tx.execute(sql(f"SELECT {_LIST} FROM grants WHERE id = :id"), {"id": grant_id}).first()
    return None if row is None else GrantRow(**row._mapping)


_STANDS = sql("SELECT 1 FROM grants WHERE id = :id AND revoked_us IS NULL AND ends_us > :now")


def stands(tx: Tx, grant_id: str, now_us: int) -> bool:
    """Whether the tokens that a grant gave are good; one that is forgotten gave none that are."""
    return tx.execute(_STANDS, {"id": grant_id, "now": now_us}).first() is not None


def hold_by_code(tx: Tx, code: str) -> GrantRow | None:
    """The grant that a code is of, redeemed or not, held until the unit of work ends."""
    return _held(tx, "grants AS g WHERE g.code = :key", code)


def hold_by_token(tx: Tx, token: str) -> GrantRow | None:
    """The grant that a refresh token is of, held until the unit of work ends."""
    joined = "grants AS g JOIN refresh_tokens AS r ON r.grant_id = g.id WHERE r.id = :key"
    return _held(tx, joined, token)


def _held(tx: Tx, where: str, key: str) -> GrantRow | None:
    # On SQLite the unit of work holds the whole catalog.
    lock = "" if tx.dialect.name == "sqlite" else " FOR UPDATE OF g"
    row = tx.execute(sql(f"SELECT {_OWN} FROM {where}{lock}"), {"key": key}).first()
    return None if row is None else GrantRow(**row._mapping)


def redeem(tx: Tx, grant_id: str, now_us: int, *, ends_us: int) -> None:
    """Its code was used; the grant now ends when its tokens do. The caller holds it."""
    query = sql("UPDATE grants SET redeemed_us = :now, ends_us = :ends WHERE id = :id")
    tx.execute(query, {"id": grant_id, "now": now_us, "ends": ends_us})


@dataclass(frozen=True, slots=True)
class Standing:
    """A grant that gave tokens and may give more."""

    id: str
    client: str
    scope: str
    since_us: int
    used_us: int


_STANDING = sql(
    "SELECT g.id AS id, g.client AS client, g.scope AS scope, g.redeemed_us AS since_us,"
    " COALESCE((SELECT max(r.created_us) FROM refresh_tokens AS r WHERE r.grant_id = g.id),"
    " g.redeemed_us) AS used_us FROM grants AS g WHERE g.email = :email AND g.revoked_us IS NULL"
    " AND g.redeemed_us IS NOT NULL AND g.ends_us > :now"
    " ORDER BY g.redeemed_us DESC, g.id LIMIT :limit"
)


def standing(tx: Tx, email: str, now_us: int, *, limit: int) -> list[Standing]:
    """The grants of a person that gave tokens and stand, the newest first."""
    rows = tx.execute(_STANDING, {"email": email, "now": now_us, "limit": limit})
    return [Standing(**row._mapping) for row in rows]


def revoke(tx: Tx, grant_id: str, now_us: int) -> bool:
    """Nothing that came of it is good any more; False when that was so already."""
    query = sql("UPDATE grants SET revoked_us = :now WHERE id = :id AND revoked_us IS NULL")
    return bool(_counted(tx, tx.execute(query, {"id": grant_id, "now": now_us}).rowcount))


def revoke_of(tx: Tx, now_us: int, *, email: str | None = None, client: str | None = None) -> int:
    """The same for all grants of a person, of a client, or of both; returns how many."""
    by = {"email": email, "client": client}
    named = {name: value for name, value in by.items() if value is not None}
    if not named:
        raise ValueError("neither a person nor a client")
    conditions = " AND ".join(f"{name} = :{name}" for name in named)
    query = f"UPDATE grants SET revoked_us = :now WHERE revoked_us IS NULL AND {conditions}"
    return _counted(tx, tx.execute(sql(query), {**named, "now": now_us}).rowcount)


def _counted(tx: Tx, revoked: int) -> int:
    """What stood so far is to be asked anew. The count comes last: whoever holds it waits for no
    grant any more."""
    if revoked:
        heads.lock(tx, HEAD, [ALL])
        heads.change_by_clock(tx, HEAD, ALL)
    return revoked


def version(tx: Tx) -> int:
    """A number that is greater after every revocation, and never comes back."""
    return heads.changes(tx, HEAD, ALL)


def revoke_all(tx: Tx, now_us: int) -> int:
    """The same for all grants that there are; returns how many."""
    query = sql("UPDATE grants SET revoked_us = :now WHERE revoked_us IS NULL AND ends_us > :now")
    return _counted(tx, tx.execute(query, {"now": now_us}).rowcount)


_ADD_TOKEN = sql(
    "INSERT INTO refresh_tokens (id, grant_id, created_us, used_us, ends_us)"
    " VALUES (:id, :grant_id, :created_us, :used_us, :ends_us)"
)


def add_token(tx: Tx, row: RefreshRow) -> None:
    """A new refresh token; those that ended are forgotten, a bounded number at a time."""
    _forget(tx, "refresh_tokens", row.created_us)
    tx.execute(_ADD_TOKEN, {name: getattr(row, name) for name in RefreshRow.__slots__})


def token(tx: Tx, token_id: str) -> RefreshRow | None:
    """The refresh token, used or not."""
    names = ", ".join(RefreshRow.__slots__)
    query = sql(f"SELECT {names} FROM refresh_tokens WHERE id = :id")
    row = tx.execute(query, {"id": token_id}).first()
    return None if row is None else RefreshRow(**row._mapping)


def use_token(tx: Tx, token_id: str, now_us: int) -> None:
    """It was used; the caller holds its grant and saw that it was not."""
    query = sql("UPDATE refresh_tokens SET used_us = :now WHERE id = :id")
    tx.execute(query, {"id": token_id, "now": now_us})


def agreed(tx: Tx, email: str, client: str) -> frozenset[str]:
    """The scopes that a person let a client have for good."""
    query = sql("SELECT scope FROM consents WHERE email = :email AND client = :client")
    scope = tx.execute(query, {"email": email, "client": client}).scalar()
    return frozenset((scope or "").split())


_AGREE = sql(
    "INSERT INTO consents (email, client, scope, at_us) VALUES (:email, :client, :scope, :now)"
    " ON CONFLICT (email, client) DO UPDATE SET scope = excluded.scope, at_us = excluded.at_us"
)


def agree(tx: Tx, email: str, client: str, scopes: frozenset[str], now_us: int) -> None:
    """Remember that these were agreed to, beside those that were before."""
    scope = " ".join(sorted(scopes | agreed(tx, email, client)))
    tx.execute(_AGREE, {"email": email, "client": client, "scope": scope, "now": now_us})


def disagree(tx: Tx, email: str, client: str) -> None:
    """Forget what a person let a client have for good."""
    query = sql("DELETE FROM consents WHERE email = :email AND client = :client")
    tx.execute(query, {"email": email, "client": client})


def _forget(tx: Tx, table: str, before_us: int) -> None:
    # Two who forget at once would wait for each other.
    others = "" if tx.dialect.name == "sqlite" else " FOR UPDATE SKIP LOCKED"
    old = f"SELECT id FROM {table} WHERE ends_us < :before ORDER BY ends_us LIMIT {FORGOTTEN}"
    old += others
    tx.execute(sql(f"DELETE FROM {table} WHERE id IN ({old})"), {"before": before_us})
