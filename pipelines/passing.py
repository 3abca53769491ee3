"""What the audit log tells of who came and went: kept for a while, as changes are for ever."""

from storage.catalog import audit
from storage.stores import Stores


def forget(stores: Stores, before_us: int) -> None:
    """Forget what was told before a moment, a bounded number at a time."""
    while True:
        with stores.catalog.write(durable=False) as tx:
            if audit.forget(tx, before_us) < audit.FORGOTTEN:
                return
