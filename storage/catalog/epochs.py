"""The catalog's epoch: its last one, the one that is coming, and whether the buckets agree."""

from storage.catalog import switches
from storage.catalog.engine import Tx, sql

CURRENT, COMING = "epoch", "epoch_coming"


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
