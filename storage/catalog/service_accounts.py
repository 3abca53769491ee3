"""Public keys of service accounts, which sign their own tokens."""

from dataclasses import dataclass

from storage.catalog.engine import Tx, execute_now, sql


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A public key of an account; `jwk` is JSON."""

    email: str
    kid: str
    jwk: str
    created_us: int


_SELECT_USABLE_KEY = (
    "SELECT jwk FROM service_keys WHERE email = :email AND kid = :kid AND NOT EXISTS (SELECT 1"
    " FROM accounts WHERE kind = 'user' AND id = :email AND status = 'disabled')"
)


def find_usable_key(tx: Tx, email: str, kid: str) -> str | None:
    """Return a key, unless its account is disabled: one query."""
    return tx.execute(sql(_SELECT_USABLE_KEY), {"email": email, "kid": kid}).scalar_one_or_none()


def insert_key(tx: Tx, email: str, kid: str, jwk: str) -> bool:
    """Insert a key; False when the account has one with this id."""
    statement = (
        "INSERT INTO service_keys (email, kid, jwk, created_us) VALUES (:email, :kid, :jwk, :now)"
        " ON CONFLICT (email, kid) DO NOTHING"
    )
    return execute_now(tx, statement, {"email": email, "kid": kid, "jwk": jwk}).rowcount == 1


def delete_keys(tx: Tx, email: str, kid: str | None = None) -> list[str]:
    """Delete one key, or all keys if `kid` is None; return the ids of deleted ones."""
    query = "DELETE FROM service_keys WHERE email = :email" + (" AND kid = :kid" if kid else "")
    return sorted(tx.execute(sql(f"{query} RETURNING kid"), {"email": email, "kid": kid}).scalars())


def list_keys(tx: Tx, email: str | None = None) -> list[ServiceKey]:
    """List all keys, or those of one account, by account and then by age."""
    where = "WHERE email = :email" if email else ""
    query = sql(f"SELECT * FROM service_keys {where} ORDER BY email, created_us, kid")
    return [ServiceKey(**row._mapping) for row in tx.execute(query, {"email": email})]
