"""Users, groups, roles and memberships that come back from a backup: whatever was decided without
them is to be decided anew.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table

from storage.catalog import accounts, refilling
from storage.catalog.engine import Tx

Rows = Sequence[Mapping[str, Any]]


def restorer(table: Table) -> Callable[[Tx, Rows], int]:
    """Brings rows of this table back where they are not."""

    def restore(tx: Tx, rows: Rows) -> int:
        accounts.hold(tx)
        added = refilling.add(tx, table, rows)
        if added:
            accounts.changed(tx)
        return added

    return restore
