"""Switches that are thrown for all processes at once: rows of `meta`."""

from storage.catalog.engine import Tx, sql

READ_ONLY = "read_only"
"""An operator's."""
IN_DOUBT = "epoch_in_doubt"
"""The store's own: catalog and buckets are not of one epoch."""


def read_only(tx: Tx) -> str | None:
    """Why the store takes no writes at the moment; None when it takes them."""
    query = sql("SELECT value FROM meta WHERE key IN (:own, :thrown) ORDER BY key LIMIT 1")
    return tx.execute(query, {"own": IN_DOUBT, "thrown": READ_ONLY}).scalar_one_or_none()


def set_read_only(tx: Tx, reason: str | None) -> None:
    """Take no writes from now on, and say why; with None take them again."""
    put(tx, READ_ONLY, reason)


def value(tx: Tx, key: str) -> str | None:
    """What a row says, None when it is not there."""
    query = sql("SELECT value FROM meta WHERE key = :key")
    return tx.execute(query, {"key": key}).scalar_one_or_none()


def put(tx: Tx, key: str, text: str | None) -> None:
    """Have a row say this; with None it is removed."""
    tx.execute(sql("DELETE FROM meta WHERE key = :key"), {"key": key})
    if text is not None:
        row = {"key": key, "value": text}
        tx.execute(sql("INSERT INTO meta (key, value) VALUES (:key, :value)"), row)
