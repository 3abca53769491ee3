"""Times of last verification of objects that have no other row: journals and purge markers."""

from collections.abc import Sequence

from storage import keys
from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, sql
from storage.model import Replica


def record(tx: Tx, replica: Replica, found: Sequence[str]) -> None:
    """Record that objects were verified just now; keys of blobs and records are passed over."""
    rest = [key for key in found if key.startswith((keys.JOURNALS, keys.PURGED))]
    if rest:
        source, given = bulk.derived(tx, "found", {"key": ("text", rest)})
        execute_now(tx, _RECORD.format(source=source), {**given, "replica": replica})


# Without a condition SQLite would take ON for that of a join.
_RECORD = (
    "INSERT INTO verified_objects (replica, key, verified_us)"
    " SELECT :replica, found.key, :now FROM {source} WHERE true"
    " ON CONFLICT (replica, key) DO UPDATE SET verified_us = excluded.verified_us"
)


def times(tx: Tx, replica: Replica, some: Sequence[str]) -> dict[str, int]:
    """Return when those of these objects that ever were verified last were."""
    source, given = bulk.derived(tx, "wanted", {"key": ("text", list(some))})
    same = "v.replica = :replica AND v.key = wanted.key"
    one = bulk.one_each(tx, "verified_objects", "v", same)
    statement = sql(f"SELECT v.key, v.verified_us FROM {source} {one}")
    found = tx.execute(statement, {**given, "replica": replica})
    return {row.key: row.verified_us for row in found}


def forget(tx: Tx, replica: Replica, key: str) -> None:
    """Forget an object that was removed on purpose."""
    tx.execute(
        sql("DELETE FROM verified_objects WHERE replica = :replica AND key = :key"),
        {"replica": replica, "key": key},
    )
