"""Counts for operators: how much waits, and what a human should look at."""

from sqlalchemy import func, literal_column, select

from storage.catalog.engine import Tx
from storage.catalog.schema import deliveries, documents


def unindexed(tx: Tx) -> dict[str, int]:
    """Documents that the search engine refused, by replica."""
    counted = select(documents.c.replica, func.count()).where(documents.c.state == "unindexed")
    rows = tx.execute(counted.group_by(documents.c.replica))
    return {str(replica): int(count) for replica, count in rows}


def pending_deliveries(tx: Tx) -> int:
    """Deliveries that are neither made nor given up."""
    counted = select(func.count()).select_from(deliveries)
    # A literal: for a parameter no engine would look at the index of what is pending alone.
    pending = deliveries.c.state == literal_column("'pending'")
    return int(tx.execute(counted.where(pending)).scalar_one())
