"""State shared by all processes: read-only switch, named values, and leases."""

from sqlalchemy import delete, insert

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import leases, meta
from storage.errors import Unavailable

READ_ONLY_KEY = "read_only"
"""Set by an operator."""
LAST_BACKUP_KEY = "last_backup_us"
"""When the last backup was complete, microseconds since 1970."""
EPOCH_IN_DOUBT_KEY = "epoch_in_doubt"
"""Set by the store while catalog and buckets have different epochs."""


def find_read_only_reason(tx: Tx) -> str | None:
    """Return why the store is read-only; None when it is not."""
    query = sql.parse("SELECT value FROM meta WHERE key IN (:own, :thrown) ORDER BY key LIMIT 1")
    keys = {"own": EPOCH_IN_DOUBT_KEY, "thrown": READ_ONLY_KEY}
    return tx.execute(query, keys).scalar_one_or_none()


def check_writable(tx: Tx) -> None:
    """Raise Unavailable (`read_only`) while the store is read-only."""
    if reason := find_read_only_reason(tx):
        raise Unavailable(reason, code="read_only")


def set_read_only(tx: Tx, reason: str | None) -> None:
    """Make the store read-only with a reason, or with None writable again."""
    write_value(tx, READ_ONLY_KEY, reason)


def read_value(tx: Tx, key: str) -> str | None:
    """Return the value of a key; None when it is not set."""
    query = sql.parse("SELECT value FROM meta WHERE key = :key")
    return tx.execute(query, {"key": key}).scalar_one_or_none()


def find_last_backup_us(tx: Tx) -> int | None:
    """Return when the last backup was complete; None if there was none yet."""
    at = read_value(tx, LAST_BACKUP_KEY)
    return None if at is None else int(at)


def write_value(tx: Tx, key: str, text: str | None) -> None:
    """Set the value of a key; None deletes it."""
    tx.execute(delete(meta).filter_by(key=key))
    if text is not None:
        tx.execute(insert(meta), {"key": key, "value": text})


def replace_value(tx: Tx, key: str, former: str | None, text: str) -> bool:
    """Set the value of a key if it is still the former one; the row stays locked until the commit.

    None stands for a key without a value.
    """
    statement = (
        "INSERT INTO meta (key, value) VALUES (:key, :text) ON CONFLICT (key) DO NOTHING"
        if former is None
        else "UPDATE meta SET value = :text WHERE key = :key AND value = :former"
    )
    parameters = {"key": key, "text": text} | ({} if former is None else {"former": former})
    return tx.execute(sql.parse(statement), parameters).rowcount == 1


def acquire_lease(tx: Tx, name: str, *, token: str, lease_s: float) -> bool:
    """Acquire or extend a lease; False while another token holds it."""
    statement = (
        "INSERT INTO leases (name, token, until_us) VALUES (:name, :token, :now + :lease_us)"
        " ON CONFLICT (name) DO UPDATE SET token = excluded.token, until_us = excluded.until_us"
        " WHERE leases.token = excluded.token OR leases.until_us < :now"
    )
    values = {"name": name, "token": token, "lease_us": int(lease_s * 1e6)}
    return bool(sql.execute(tx, statement, values).rowcount)


def is_leased(tx: Tx, name: str) -> bool:
    """Return whether any process holds the lease."""
    query = "SELECT 1 FROM leases WHERE name = :name AND until_us >= :now"
    return sql.execute(tx, query, {"name": name}).first() is not None


def release_lease(tx: Tx, name: str, *, token: str) -> None:
    """Release a lease if this token holds it."""
    tx.execute(delete(leases).filter_by(name=name, token=token))
