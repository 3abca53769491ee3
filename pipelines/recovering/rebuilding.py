"""Rebuilding a catalog that was lost from either bucket alone.

The catalog is of an epoch that no bucket knows while it is filled: the store is read-only, nothing
is numbered, sent or deleted, until `reconcile` has merged what the other bucket tells. A rebuild
that died, or met a bucket that was away, is begun again; the other bucket's adds to the first's.
"""

import logging
from collections.abc import Callable, Iterator

from pipelines.recovering import (
    epochs,
    rebuild_bundles,
    rebuild_ends,
    rebuild_files,
    rebuild_journals,
)
from pipelines.recovering.rebuild_reading import LEASE, LEASE_S, Run, Tally
from storage.catalog import Tx, heads, leases, now_us, switches
from storage.catalog import epochs as epoch_rows
from storage.errors import Conflict
from storage.model import Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

PHASES: tuple[Callable[[Run], Tally], ...] = (
    # In this order: what is taken in names what came before it.
    rebuild_files.purge_markers,
    rebuild_files.tombstones,
    rebuild_files.file_records,
    rebuild_files.bytes_there,
    rebuild_bundles.bundle_records,
    rebuild_bundles.collection_records,
    rebuild_journals.journalled,
    rebuild_ends.follow,
)


def catalog(stores: Stores, replica: Replica, *, token: str) -> Iterator[Tally]:
    """Fill the catalog from one bucket, telling of each kind when it is done. Conflict for a
    catalog that holds something else, Unavailable when the bucket is away: begin again later."""
    run = _begun(stores, replica, token)
    try:
        for phase in PHASES:
            tally = phase(run)
            log.info("rebuild: %s", tally)
            yield tally
    finally:
        run.end()


def _begun(stores: Stores, replica: Replica, token: str) -> Run:
    last = max((name for name in epochs.marks(stores, replica)), default="")
    with stores.catalog.write() as tx:
        if not leases.hold(tx, LEASE, token=token, lease_s=LEASE_S):
            raise Conflict("Another rebuild of this catalog is going on.")
        if switches.value(tx, epoch_rows.REBUILDING) is None:
            _begin(tx, last, token)
        return Run(
            stores, replica, token, floor=int(switches.value(tx, epoch_rows.REBUILDING) or 0)
        )


def _begin(tx: Tx, last: str, token: str) -> None:
    if epoch_rows.holds_anything(tx):
        raise Conflict(
            "The catalog is not empty: `reconcile` takes in what it lacks, a rebuild wants an"
            " empty one."
        )
    heads.lock(tx, "epoch", ["mark"])
    # Counts of changes begin beyond any that a search index was ever told.
    switches.put(tx, epoch_rows.REBUILDING, str(now_us(tx)))
    epoch_rows.begin_alone(tx, f"{int(last.partition('-')[0] or 0) + 1:020d}-{token}")
    switches.put(tx, switches.IN_DOUBT, REASON)


REASON = "The catalog is being rebuilt. Run `python -m ops reconcile` when that is done."
