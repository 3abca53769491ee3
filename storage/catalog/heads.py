"""Head rows: one lock and one change counter for each uuid or named resource."""

from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, select

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, execute_sql, sql
from storage.catalog.tables.versions import heads

_CREATE_ON_SQLITE = (
    "INSERT INTO heads (kind, uuid) VALUES (:kind, :uuid) ON CONFLICT (kind, uuid) DO NOTHING"
)
_CREATE = sql(f"{_CREATE_ON_SQLITE} RETURNING id")
_HOLD = sql("SELECT id FROM heads WHERE kind = :kind AND uuid = :uuid FOR UPDATE")
_COUNT_CHANGE = (
    "UPDATE heads SET changes = changes + 1 WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)
_COUNT_CHANGE_BY_CLOCK = (
    "UPDATE heads SET changes = CASE WHEN changes < :now THEN :now ELSE changes + 1 END"
    " WHERE kind = :kind AND uuid = :uuid RETURNING changes"
)


def lock(tx: Tx, kind: str, uuids: Iterable[str]) -> None:
    """Lock heads until the transaction ends, creating those that are absent."""
    names = sorted(set(uuids))
    if len(names) != 1:
        _lock_many(tx, kind, names)
        return
    parameters = {"kind": kind, "uuid": names[0]}
    if tx.dialect.name == "sqlite":
        # The transaction already locks the whole catalog.
        execute_sql(tx, _CREATE_ON_SQLITE, parameters)
    elif (
        tx.execute(_HOLD, parameters).first() is None
        and tx.execute(_CREATE, parameters).first() is None
    ):
        # Another transaction created it in between, and its creator holds the lock.
        tx.execute(_HOLD, parameters).scalar_one()


def _lock_many(tx: Tx, kind: str, uuids: Sequence[str]) -> None:
    """Lock heads in two statements, each of which visits them in order."""
    wanted = {"uuid": ("text", uuids)}
    statement = (
        "INSERT INTO heads (kind, uuid) SELECT :kind, uuid FROM {source} WHERE true"
        " ORDER BY uuid ON CONFLICT (kind, uuid) DO NOTHING"
    )
    bulk.execute_with(tx, statement, "wanted", wanted, kind=kind)
    if tx.dialect.name != "sqlite":
        same = "h.kind = :kind AND h.uuid = wanted.uuid"
        head = bulk.join_one(tx, "heads", "h", same, lock=True)
        query = f"SELECT h.id FROM {{source}} {head}"
        locked = bulk.execute_with(tx, query, "wanted", wanted, kind=kind)
        assert len(locked.all()) == len(uuids)


def count_change(tx: Tx, kind: str, uuid: str) -> int:
    """Count one change of a locked head; return the count."""
    return int(execute_sql(tx, _COUNT_CHANGE, {"kind": kind, "uuid": uuid}).scalar_one())


def lock_and_count(tx: Tx, kind: str, uuid: str) -> int:
    """Lock a head until the transaction ends, and count one change of it; return the count."""
    return int(execute_sql(tx, _LOCK_AND_COUNT, {"kind": kind, "uuid": uuid}).scalar_one())


_LOCK_AND_COUNT = (
    "INSERT INTO heads (kind, uuid, changes) VALUES (:kind, :uuid, 1) ON CONFLICT (kind, uuid)"
    " DO UPDATE SET changes = heads.changes + 1 RETURNING changes"
)


def count_change_by_clock(tx: Tx, kind: str, uuid: str) -> int:
    """Set the count to the clock, or add 1 if it is ahead; return the count.

    So a catalog restored from a backup never repeats a count.
    """
    return int(execute_now(tx, _COUNT_CHANGE_BY_CLOCK, {"kind": kind, "uuid": uuid}).scalar_one())


def read_changes(tx: Tx, kind: str, uuid: str) -> int:
    """Return how often a head changed; 0 when it does not exist."""
    return tx.execute(_SELECT_CHANGES, {"kind": kind, "uuid": uuid}).scalar_one_or_none() or 0


def read_all_changes(tx: Tx, kind: str, uuids: Sequence[str]) -> dict[str, int]:
    """Return the change counts of several heads by uuid, without those that do not exist."""
    rows = tx.execute(_SELECT_ALL_CHANGES, {"kind": kind, "uuids": uuids})
    return {row.uuid: row.changes for row in rows}


# Read at every request: building a query takes longer than running it.
_SELECT_CHANGES = select(heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid == bindparam("uuid")
)
_SELECT_ALL_CHANGES = select(heads.c.uuid, heads.c.changes).where(
    heads.c.kind == bindparam("kind"), heads.c.uuid.in_(bindparam("uuids", expanding=True))
)
