"""Garbage collection of blobs: condemn, wait for the grace period, delete under a lock.

Files, published or not, and open ingest tasks refer to blobs. A writer that stores a blob again
first deletes its row here, and so waits for a deletion in progress, and only then checks whether
the blob is in the bucket.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, select, update

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import tasks
from storage.catalog.tables.versions import blob_replicas, blobs, condemned, files
from storage.model import Replica


def filter_referenced(tx: Tx, sums: Sequence[str]) -> set[str]:
    """Return those SHA-256 sums that a file or an open task refers to."""
    of_files = (
        select(blobs.c.sha256)
        .where(blobs.c.sha256.in_(sums))
        .where(select(files.c.id).where(files.c.blob_id == blobs.c.id).exists())
    )
    open_tasks = select(tasks.c.sha256).where(
        tasks.c.sha256.in_(sums), tasks.c.finished_us.is_(None)
    )
    return {*tx.execute(of_files).scalars(), *tx.execute(open_tasks).scalars()}


def condemn(tx: Tx, replica: Replica, sums: Sequence[str]) -> int:
    """Start the grace period of unreferenced blobs; return how many are new."""
    free = sorted(set(sums) - filter_referenced(tx, sums))
    if not free:
        return 0
    statement = (
        "INSERT INTO condemned (replica, sha256, at_us)"
        " SELECT :replica, sha256, :now FROM {source} WHERE true ORDER BY sha256"
        " ON CONFLICT (replica, sha256) DO NOTHING"
    )
    columns = {"sha256": ("text", free)}
    result = sql.execute_with(tx, statement, "free", columns, replica=replica)
    tx.execute(update(blob_replicas).where(_is_copy(replica, free)).values(state="condemned"))
    return result.rowcount


def filter_condemned(tx: Tx, replica: Replica, sums: Sequence[str]) -> set[str]:
    """Return those SHA-256 sums that are condemned."""
    query = select(condemned.c.sha256).where(
        condemned.c.replica == replica, condemned.c.sha256.in_(sums)
    )
    return set(tx.execute(query).scalars())


def revive(tx: Tx, replica: Replica, sha256: str) -> None:
    """Revive a blob; waits for a deletion in progress, after which the blob is gone."""
    tx.execute(delete(condemned).filter_by(replica=replica, sha256=sha256))


def list_deletable(tx: Tx, replica: Replica, before_us: int, *, limit: int) -> list[str]:
    """List blobs whose grace period ended, the longest condemned first."""
    query = select(condemned.c.sha256).where(
        condemned.c.replica == replica, condemned.c.at_us <= before_us
    )
    return list(tx.execute(query.order_by(condemned.c.at_us).limit(limit)).scalars())


def lock_for_deletion(tx: Tx, replica: Replica, sha256: str, before_us: int) -> bool:
    """Lock a blob's row for its deletion; False, and revive it, when it is referenced again."""
    blob = (condemned.c.replica == replica) & (condemned.c.sha256 == sha256)
    query = select(condemned.c.sha256).where(blob, condemned.c.at_us <= before_us)
    if tx.execute(query.with_for_update()).first() is None:
        return False
    if sha256 in filter_referenced(tx, [sha256]):
        revive(tx, replica, sha256)
        copies = _is_copy(replica, [sha256]) & (blob_replicas.c.state == "condemned")
        tx.execute(update(blob_replicas).where(copies).values(state="present"))
        return False
    return True


def record_deletion(tx: Tx, replica: Replica, sha256: str) -> None:
    """Record that a bucket's blob was deleted; delete the blob's row with its last copy."""
    revive(tx, replica, sha256)
    tx.execute(delete(blob_replicas).where(_is_copy(replica, [sha256])))
    anywhere = select(blob_replicas.c.blob_id).where(blob_replicas.c.blob_id == blobs.c.id)
    tx.execute(delete(blobs).where(blobs.c.sha256 == sha256, ~anywhere.exists()))


def _is_copy(replica: Replica, sums: Sequence[str]) -> ColumnElement[bool]:
    ids = select(blobs.c.id).where(blobs.c.sha256.in_(sums))
    return (blob_replicas.c.replica == replica) & blob_replicas.c.blob_id.in_(ids)
