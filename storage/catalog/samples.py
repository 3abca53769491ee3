"""Samples of ids: counts of large tables in a time that does not grow with them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Table, func, select

from storage.catalog.sql import Tx

EXACT_IDS = 1_000_000
"""Tables of so many ids are counted; of larger ones a sample is."""
SPANS, SPAN_IDS = 100, 40
"""A sample is so many runs of ids, evenly spaced: neighbours lie on one page."""


@dataclass(frozen=True, slots=True)
class IdSample:
    """Ids of a table, and for how many ids each of them stands."""

    ids: Sequence[int]
    weight: float

    def scale(self, counted: int) -> int:
        """Return how many there are in the table, judging by those counted in the sample."""
        return round(counted * self.weight)


def find_last_id(tx: Tx, table: Table) -> int:
    """Return the greatest id of a table; 0 without rows."""
    return int(tx.execute(select(func.max(table.c.id))).scalar_one() or 0)


def choose_ids(last_id: int) -> IdSample:
    """Return a sample of the ids from 1 to `last_id`: all of them if they are few."""
    step = max(SPAN_IDS, -(-last_id // SPANS))
    ids = [
        ident
        for first in range(1, last_id + 1, step)
        for ident in range(first, min(first + SPAN_IDS, last_id + 1))
    ]
    return IdSample(ids, last_id / len(ids) if ids else 0.0)
