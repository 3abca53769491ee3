"""Public keys of accounts that sign their own tokens."""

from dataclasses import dataclass

from storage.catalog.engine import Tx, execute_now, sql


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """One key of an account; `jwk` is JSON."""

    email: str
    kid: str
    jwk: str
    created_us: int


_USABLE = (
    "SELECT jwk FROM service_keys WHERE email = :email AND kid = :kid AND NOT EXISTS (SELECT 1"
    " FROM accounts WHERE kind = 'user' AND id = :email AND status = 'disabled')"
)


def usable(tx: Tx, email: str, kid: str) -> str | None:
    """The key, as long as its account is on the list and not disabled: one query."""
    return tx.execute(sql(_USABLE), {"email": email, "kid": kid}).scalar_one_or_none()


_ADD = (
    "INSERT INTO service_keys (email, kid, jwk, created_us) VALUES (:email, :kid, :jwk, :now)"
    " ON CONFLICT (email, kid) DO NOTHING"
)


def add(tx: Tx, email: str, kid: str, jwk: str) -> bool:
    """Put a key on the list; False when the account has one of that name."""
    given = {"email": email, "kid": kid, "jwk": jwk}
    return execute_now(tx, _ADD, given).rowcount == 1


def remove(tx: Tx, email: str, kid: str | None = None) -> list[str]:
    """Take one key, or without `kid` all keys, from the list; the names of those that went."""
    query = "DELETE FROM service_keys WHERE email = :email" + (" AND kid = :kid" if kid else "")
    given = {"email": email, "kid": kid} if kid else {"email": email}
    return sorted(tx.execute(sql(f"{query} RETURNING kid"), given).scalars())


def keys(tx: Tx, email: str | None = None) -> list[ServiceKey]:
    """All keys, or those of one account, by account and then by age."""
    where = "WHERE email = :email" if email else ""
    query = sql(f"SELECT * FROM service_keys {where} ORDER BY email, created_us, kid")
    rows = tx.execute(query, {"email": email} if email else {})
    return [ServiceKey(row.email, row.kid, row.jwk, row.created_us) for row in rows]
