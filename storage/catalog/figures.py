"""Counts for operators: how much waits, and what a human should look at."""

from sqlalchemy import func, literal_column, select

from storage.catalog.engine import Tx
from storage.catalog.schema import bundles, deliveries, documents
from storage.model import FQID

# Literals: for a parameter no engine would look at the index of these rows alone.
_REFUSED = documents.c.state == literal_column("'unindexed'")
_PENDING = deliveries.c.state == literal_column("'pending'")


def unindexed(tx: Tx) -> dict[str, int]:
    """Documents that the search engine refused, by replica."""
    counted = select(documents.c.replica, func.count()).where(_REFUSED)
    rows = tx.execute(counted.group_by(documents.c.replica))
    return {str(replica): int(count) for replica, count in rows}


def refusals(tx: Tx, *, limit: int) -> list[tuple[str, FQID, str]]:
    """Replica, bundle and reason of some documents that the search engine refused."""
    query = (
        select(documents.c.replica, bundles.c.uuid, bundles.c.version, documents.c.reason)
        .join(bundles, bundles.c.id == documents.c.bundle_id)
        .where(_REFUSED)
        .order_by(documents.c.replica, documents.c.at_us)
    )
    rows = tx.execute(query.limit(limit))
    return [(replica, FQID(uuid, version), reason or "") for replica, uuid, version, reason in rows]


def pending_deliveries(tx: Tx) -> int:
    """Deliveries that are neither made nor given up."""
    counted = select(func.count()).select_from(deliveries)
    return int(tx.execute(counted.where(_PENDING)).scalar_one())
