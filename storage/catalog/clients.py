"""Applications that an operator let ask people for grants. Secrets are given as digests."""

from dataclasses import dataclass

import orjson
from sqlalchemy import Row

from storage.catalog.engine import Tx, sql


@dataclass(frozen=True, slots=True)
class ClientRow:
    """An application as it is kept; without a secret it is public."""

    id: str
    name: str
    secret: str | None
    redirect_uris: tuple[str, ...]
    first_party: bool
    created_us: int


_NAMES = ", ".join(ClientRow.__slots__)
_ADD = sql(
    f"INSERT INTO clients ({_NAMES}) VALUES (:id, :name, :secret, :uris, :first_party, :created_us)"
    " ON CONFLICT DO NOTHING"
)


def add(tx: Tx, row: ClientRow) -> bool:
    """A new client; False when there is one of that id."""
    members = {name: getattr(row, name) for name in ClientRow.__slots__ if name != "redirect_uris"}
    uris = orjson.dumps(row.redirect_uris).decode()
    return bool(tx.execute(_ADD, {**members, "uris": uris}).rowcount)


def find(tx: Tx, client_id: str) -> ClientRow | None:
    """The client of that id."""
    query = sql(f"SELECT {_NAMES} FROM clients WHERE id = :id")
    row = tx.execute(query, {"id": client_id}).first()
    return None if row is None else _client(row)


def listing(tx: Tx) -> list[ClientRow]:
    """All of them, by id: an operator adds each by hand."""
    return [_client(row) for row in tx.execute(sql(f"SELECT {_NAMES} FROM clients ORDER BY id"))]


_REMOVE = tuple(
    sql(statement)
    for statement in (
        "DELETE FROM consents WHERE client = :id",
        "DELETE FROM device_codes WHERE client = :id",
        "DELETE FROM clients WHERE id = :id",
    )
)


def remove(tx: Tx, client_id: str) -> bool:
    """Remove a client and all that people agreed to; False when there is none. Its grants are the
    caller's to revoke."""
    removed = [tx.execute(statement, {"id": client_id}).rowcount for statement in _REMOVE]
    return bool(removed[-1])


def _client(row: Row[tuple[object, ...]]) -> ClientRow:
    members = dict(row._mapping)
    members["redirect_uris"] = tuple(orjson.loads(members["redirect_uris"]))
    members["first_party"] = bool(members["first_party"])
    return ClientRow(**members)
