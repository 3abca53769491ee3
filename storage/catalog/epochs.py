"""The catalog's epoch: its last one, the one that is coming, and whether the buckets agree."""

from storage.catalog import switches
from storage.catalog.engine import Tx, sql

CURRENT, COMING = "epoch", "epoch_coming"
REBUILDING = "rebuilding"
"""There from the beginning of a rebuild until catalog and buckets are reconciled: where counts of
changes begin."""


def read(tx: Tx) -> tuple[str | None, str | None]:
    """The epoch that every bucket has a mark of, and the one that some have."""
    return switches.value(tx, CURRENT), switches.value(tx, COMING)


def announce(tx: Tx, name: str) -> None:
    """Buckets may have this one's mark from now on."""
    switches.put(tx, COMING, name)


def settle(tx: Tx, name: str) -> None:
    """Every bucket has this one's mark; nothing when that was said before."""
    if switches.value(tx, COMING) == name:
        switches.put(tx, CURRENT, name)
        switches.put(tx, COMING, None)


def holds_data(tx: Tx) -> bool:
    """Whether the catalog knows of any data at all."""
    found = sql(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM files) OR EXISTS (SELECT 1 FROM bundles)"
        " OR EXISTS (SELECT 1 FROM purges)"
    )
    return tx.execute(found).first() is not None


_DATA = ("files", "bundles", "purges", "collections", "tombstones", "events", "journals")


def holds_anything(tx: Tx) -> bool:
    """The same, and of what buckets tell beside data."""
    found = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in _DATA)
    return tx.execute(sql(f"SELECT 1 WHERE {found}")).first() is not None


def begin_alone(tx: Tx, name: str) -> None:
    """Be of an epoch that no bucket knows: they disagree until they are reconciled."""
    switches.put(tx, COMING, None)
    switches.put(tx, CURRENT, name)
