"""Head rows: one a uuid, locked first by every writer of it, several in sorted order."""

from collections.abc import Iterable

from sqlalchemy import select, tuple_

from storage.catalog.engine import Tx, sql
from storage.catalog.schema import heads

_CREATE = sql(
    "INSERT INTO heads (kind, uuid) VALUES (:kind, :uuid) ON CONFLICT (kind, uuid) DO NOTHING"
)
_HOLD = sql("SELECT id FROM heads WHERE kind = :kind AND uuid = :uuid FOR UPDATE")
_CHANGE = sql(
    "UPDATE heads SET changes = changes + 1 WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)


def lock(tx: Tx, kind: str, uuids: Iterable[str]) -> None:
    """Hold these uuids until the unit of work ends, creating their heads where absent."""
    for uuid in sorted(set(uuids)):
        named = {"kind": kind, "uuid": uuid}
        tx.execute(_CREATE, named)
        # On SQLite the unit of work holds the whole catalog.
        if tx.dialect.name != "sqlite":
            tx.execute(_HOLD, named).scalar_one()


def change(tx: Tx, kind: str, uuid: str) -> int:
    """Count one more change of a locked head and return the count."""
    return int(tx.execute(_CHANGE, {"kind": kind, "uuid": uuid}).scalar_one())


def changes(tx: Tx, kind: str, uuid: str) -> int:
    """How often this head changed; 0 when it does not exist."""
    query = select(heads.c.changes).where(tuple_(heads.c.kind, heads.c.uuid) == (kind, uuid))
    return int(tx.execute(query).scalar_one_or_none() or 0)
