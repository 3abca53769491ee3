"""Switches that an operator throws for all processes at once: rows of `meta`."""

from storage.catalog.engine import Tx, sql

READ_ONLY = "read_only"


def read_only(tx: Tx) -> str | None:
    """Why the store takes no writes at the moment; None when it takes them."""
    query = sql("SELECT value FROM meta WHERE key = :key")
    return tx.execute(query, {"key": READ_ONLY}).scalar_one_or_none()


def set_read_only(tx: Tx, reason: str | None) -> None:
    """Take no writes from now on, and say why; with None take them again."""
    if reason is None:
        tx.execute(sql("DELETE FROM meta WHERE key = :key"), {"key": READ_ONLY})
        return
    statement = sql(
        "INSERT INTO meta (key, value) VALUES (:key, :value)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    tx.execute(statement, {"key": READ_ONLY, "value": reason})
