"""State shared by all processes: read-only switch, leases, and counts for operators."""

from sqlalchemy import delete, func, literal_column, select

from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.tables.event_log import deliveries
from storage.catalog.tables.jobs import leases
from storage.catalog.tables.versions import bundles, documents
from storage.model import FQID

READ_ONLY_KEY = "read_only"
"""Set by an operator."""
EPOCH_IN_DOUBT_KEY = "epoch_in_doubt"
"""Set by the store while catalog and buckets have different epochs."""


def find_read_only_reason(tx: Tx) -> str | None:
    """Return why the store is read-only; None when it is not."""
    query = sql("SELECT value FROM meta WHERE key IN (:own, :thrown) ORDER BY key LIMIT 1")
    keys = {"own": EPOCH_IN_DOUBT_KEY, "thrown": READ_ONLY_KEY}
    return tx.execute(query, keys).scalar_one_or_none()


def set_read_only(tx: Tx, reason: str | None) -> None:
    """Make the store read-only with a reason, or with None writable again."""
    write_value(tx, READ_ONLY_KEY, reason)


def read_value(tx: Tx, key: str) -> str | None:
    """Return the value of a key; None when it is not set."""
    query = sql("SELECT value FROM meta WHERE key = :key")
    return tx.execute(query, {"key": key}).scalar_one_or_none()


def write_value(tx: Tx, key: str, text: str | None) -> None:
    """Set the value of a key; None deletes it."""
    tx.execute(sql("DELETE FROM meta WHERE key = :key"), {"key": key})
    if text is not None:
        row = {"key": key, "value": text}
        tx.execute(sql("INSERT INTO meta (key, value) VALUES (:key, :value)"), row)


def acquire_lease(tx: Tx, name: str, *, token: str, lease_s: float) -> bool:
    """Acquire or extend a lease; False while another token holds it."""
    statement = (
        "INSERT INTO leases (name, token, until_us) VALUES (:name, :token, :now + :lease_us)"
        " ON CONFLICT (name) DO UPDATE SET token = excluded.token, until_us = excluded.until_us"
        " WHERE leases.token = excluded.token OR leases.until_us < :now"
    )
    values = {"name": name, "token": token, "lease_us": int(lease_s * 1e6)}
    return bool(execute_now(tx, statement, values).rowcount)


def is_leased(tx: Tx, name: str) -> bool:
    """Return whether any process holds the lease."""
    query = "SELECT 1 FROM leases WHERE name = :name AND until_us >= :now"
    return execute_now(tx, query, {"name": name}).first() is not None


def release_lease(tx: Tx, name: str, *, token: str) -> None:
    """Release a lease if this token holds it."""
    tx.execute(delete(leases).where(leases.c.name == name, leases.c.token == token))


# Literals: with a parameter no engine would use the partial index.
_IS_UNINDEXED = documents.c.state == literal_column("'unindexed'")
_IS_PENDING = deliveries.c.state == literal_column("'pending'")


def count_unindexed(tx: Tx) -> dict[str, int]:
    """Count documents that the search engine refused, by replica."""
    counted = select(documents.c.replica, func.count()).where(_IS_UNINDEXED)
    rows = tx.execute(counted.group_by(documents.c.replica))
    return {str(replica): int(count) for replica, count in rows}


def list_unindexed(tx: Tx, *, limit: int) -> list[tuple[str, FQID, str]]:
    """List replica, bundle and reason of documents that the search engine refused."""
    query = (
        select(documents.c.replica, bundles.c.uuid, bundles.c.version, documents.c.reason)
        .join(bundles, bundles.c.id == documents.c.bundle_id)
        .where(_IS_UNINDEXED)
        .order_by(documents.c.replica, documents.c.at_us)
    )
    rows = tx.execute(query.limit(limit))
    return [(replica, FQID(uuid, version), reason or "") for replica, uuid, version, reason in rows]


def count_pending_deliveries(tx: Tx) -> int:
    """Count pending deliveries."""
    counted = select(func.count()).select_from(deliveries)
    return int(tx.execute(counted.where(_IS_PENDING)).scalar_one())
