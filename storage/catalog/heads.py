"""Head rows: one a uuid, locked first by every writer of it, several in sorted order."""

from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, select

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, execute_sql, sql
from storage.catalog.schema import heads

_CREATE_ON_SQLITE = (
    "INSERT INTO heads (kind, uuid) VALUES (:kind, :uuid) ON CONFLICT (kind, uuid) DO NOTHING"
)
_CREATE = sql(f"{_CREATE_ON_SQLITE} RETURNING id")
_HOLD = sql("SELECT id FROM heads WHERE kind = :kind AND uuid = :uuid FOR UPDATE")
_CHANGE = (
    "UPDATE heads SET changes = changes + 1 WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)
_CHANGE_BY_CLOCK = (
    "UPDATE heads SET changes = CASE WHEN changes < :now THEN :now ELSE changes + 1 END"
    " WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)


def lock(tx: Tx, kind: str, uuids: Iterable[str]) -> None:
    """Hold these uuids until the unit of work ends, creating their heads where absent."""
    wanted = sorted(set(uuids))
    if len(wanted) != 1:
        _lock_many(tx, kind, wanted)
        return
    named = {"kind": kind, "uuid": wanted[0]}
    if tx.dialect.name == "sqlite":
        # The unit of work holds the whole catalog.
        execute_sql(tx, _CREATE_ON_SQLITE, named)
    elif tx.execute(_HOLD, named).first() is None and tx.execute(_CREATE, named).first() is None:
        # Somebody else made it in between; who makes it holds it.
        tx.execute(_HOLD, named).scalar_one()


def _lock_many(tx: Tx, kind: str, uuids: Sequence[str]) -> None:
    """The same in two statements, each of which goes through the heads in their order."""
    source, parameters = bulk.derived(tx, "wanted", {"uuid": ("text", uuids)})
    named = {**parameters, "kind": kind}
    tx.execute(
        sql(
            f"INSERT INTO heads (kind, uuid) SELECT :kind, uuid FROM {source} WHERE true"
            " ORDER BY uuid ON CONFLICT (kind, uuid) DO NOTHING"
        ),
        named,
    )
    if tx.dialect.name != "sqlite":
        same = "h.kind = :kind AND h.uuid = wanted.uuid"
        head = bulk.one_each(tx, "heads", "h", same, lock=True)
        held = tx.execute(sql(f"SELECT h.id FROM {source} {head}"), named)
        assert len(held.all()) == len(uuids)


def change(tx: Tx, kind: str, uuid: str) -> int:
    """Count one more change of a locked head and return the count."""
    return int(execute_sql(tx, _CHANGE, {"kind": kind, "uuid": uuid}).scalar_one())


def lock_and_change(tx: Tx, kind: str, uuid: str) -> int:
    """Hold one uuid until the unit of work ends, and count one more change of it."""
    return int(execute_sql(tx, _LOCK_AND_CHANGE, {"kind": kind, "uuid": uuid}).scalar_one())


_LOCK_AND_CHANGE = (
    "INSERT INTO heads (kind, uuid, changes) VALUES (:kind, :uuid, 1) ON CONFLICT (kind, uuid)"
    " DO UPDATE SET changes = heads.changes + 1 RETURNING changes"
)


def change_by_clock(tx: Tx, kind: str, uuid: str) -> int:
    """The same by a count that is the time, so that a catalog which came back from a backup never
    counts to where it was before."""
    found = execute_now(tx, _CHANGE_BY_CLOCK, {"kind": kind, "uuid": uuid})
    return int(found.scalar_one())


def changes(tx: Tx, kind: str, uuid: str) -> int:
    """How often this head changed; 0 when it does not exist."""
    found = tx.execute(_CHANGES, {"kind": kind, "uuid": uuid})
    return int(found.scalar_one_or_none() or 0)


def changes_of(tx: Tx, kind: str, uuids: Sequence[str]) -> dict[str, int]:
    """The same for several heads, by uuid; nothing for one that does not exist."""
    rows = tx.execute(_CHANGES_OF, {"kind": kind, "uuids": uuids})
    return {row.uuid: row.changes for row in rows}


# Asked at every request: building a query takes longer than running it.
_CHANGES = select(heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid == bindparam("uuid")
)
_CHANGES_OF = select(heads.c.uuid, heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid.in_(bindparam("uuids", expanding=True))
)
