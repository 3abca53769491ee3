"""The end of blobs: present → condemned → a time of grace → deleted under a lock on its row.

What refers to bytes: a file, published or not, and an open task that verifies them. Whoever takes
bytes in again takes the row away before looking whether they are there, and so waits for a
deletion that is going on.
"""

from collections.abc import Sequence

from sqlalchemy import Select, delete, select, update

from storage.catalog import bulk
from storage.catalog.engine import Tx, now_us, sql
from storage.catalog.schema import blob_replicas, blobs, condemned, files, tasks
from storage.model import Replica


def referenced(tx: Tx, sums: Sequence[str]) -> set[str]:
    """Those of these bytes that a file has, or that are being verified."""
    kept = (
        select(blobs.c.sha256)
        .where(blobs.c.sha256.in_(sums))
        .where(select(files.c.id).where(files.c.blob_id == blobs.c.id).exists())
    )
    open_tasks = select(tasks.c.sha256).where(
        tasks.c.sha256.in_(sums), tasks.c.finished_us.is_(None)
    )
    return {*tx.execute(kept).scalars(), *tx.execute(open_tasks).scalars()}


def condemn(tx: Tx, replica: Replica, sums: Sequence[str]) -> int:
    """Begin the time of grace of those that nothing refers to; returns how many are new."""
    free = sorted(set(sums) - referenced(tx, sums))
    if not free:
        return 0
    source, parameters = bulk.derived(tx, "free", {"sha256": ("text", free)})
    made = tx.execute(
        sql(
            "INSERT INTO condemned (replica, sha256, at_us)"
            f" SELECT :replica, sha256, :now FROM {source} WHERE true ORDER BY sha256"
            " ON CONFLICT (replica, sha256) DO NOTHING"
        ),
        {**parameters, "replica": replica, "now": now_us(tx)},
    )
    ids = select(blobs.c.id).where(blobs.c.sha256.in_(free))
    tx.execute(
        update(blob_replicas)
        .where(blob_replicas.c.replica == replica, blob_replicas.c.blob_id.in_(ids))
        .values(state="condemned")
    )
    return made.rowcount


def among(tx: Tx, replica: Replica, sums: Sequence[str]) -> set[str]:
    """Those of these bytes that are on their way out."""
    query = select(condemned.c.sha256).where(
        condemned.c.replica == replica, condemned.c.sha256.in_(sums)
    )
    return set(tx.execute(query).scalars())


def revive(tx: Tx, replica: Replica, sha256: str) -> None:
    """Let these bytes live; waits for whoever deletes them, who then has deleted them."""
    tx.execute(
        delete(condemned).where(condemned.c.replica == replica, condemned.c.sha256 == sha256)
    )


def due(tx: Tx, replica: Replica, before_us: int, *, limit: int) -> list[str]:
    """Bytes whose grace ended, the longest condemned first."""
    query = select(condemned.c.sha256).where(
        condemned.c.replica == replica, condemned.c.at_us <= before_us
    )
    return list(tx.execute(query.order_by(condemned.c.at_us).limit(limit)).scalars())


def hold(tx: Tx, replica: Replica, sha256: str, before_us: int) -> bool:
    """Take hold of the row for the deletion of its bytes; False when they are not to be deleted:
    somebody revived them, or refers to them, and then they live."""
    query = select(condemned.c.sha256).where(
        condemned.c.replica == replica,
        condemned.c.sha256 == sha256,
        condemned.c.at_us <= before_us,
    )
    if tx.execute(query.with_for_update()).first() is None:
        return False
    if sha256 in referenced(tx, [sha256]):
        _restore(tx, replica, sha256)
        return False
    return True


def _restore(tx: Tx, replica: Replica, sha256: str) -> None:
    revive(tx, replica, sha256)
    tx.execute(
        update(blob_replicas)
        .where(blob_replicas.c.replica == replica, blob_replicas.c.blob_id.in_(_ids(sha256)))
        .where(blob_replicas.c.state == "condemned")
        .values(state="present")
    )


def deleted(tx: Tx, replica: Replica, sha256: str) -> None:
    """The bytes are gone from this bucket; with the last of them goes the blob's own row."""
    revive(tx, replica, sha256)
    tx.execute(
        delete(blob_replicas).where(
            blob_replicas.c.replica == replica, blob_replicas.c.blob_id.in_(_ids(sha256))
        )
    )
    anywhere = select(blob_replicas.c.blob_id).where(blob_replicas.c.blob_id == blobs.c.id)
    tx.execute(delete(blobs).where(blobs.c.sha256 == sha256, ~anywhere.exists()))


def _ids(sha256: str) -> Select[tuple[int]]:
    return select(blobs.c.id).where(blobs.c.sha256 == sha256)
