"""Garbage collection: condemn unreferenced blobs, and delete them after a grace period.

An ingest of the same bytes revives a condemned blob first.
"""

import logging
from collections.abc import Sequence
from itertools import islice

from storage import keys
from storage.catalog import garbage_collection, now_us
from storage.model import REPLICAS, FileVersion, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH_BLOBS = 500
"""Blobs that one transaction condemns, or one run deletes from a replica."""


def revive_files(stores: Stores, replica: Replica, rows: Sequence[FileVersion]) -> None:
    """Revive the blobs of files, before a check whether a bucket holds them."""
    revive_blobs(stores, replica, [row.checksums.sha256 for row in rows])


def revive_blobs(stores: Stores, replica: Replica, sums: Sequence[str]) -> None:
    """Revive blobs by SHA-256; a read is enough if none is condemned."""
    condemned = stores.catalog.run_query(
        lambda tx: garbage_collection.filter_condemned(tx, replica, sums)
    )
    if not condemned:
        return
    with stores.catalog.write() as tx:
        for sha256 in sorted(condemned):
            garbage_collection.revive(tx, replica, sha256)
    log.info("%d condemned blobs in %s are revived", len(condemned), replica)


def condemn_orphans(stores: Stores) -> int:
    """Start the grace period of stored blobs to which nothing refers; return how many.

    Failed verifications leave them, and copies that ended after a purge. Blobs of verifications in
    progress have an open task.
    """
    count = 0
    for replica in REPLICAS:
        listing = (keys.parse_blob(info.key) for info in stores.replicas[replica].list(keys.BLOBS))
        sums = filter(None, listing)
        condemned = 0
        while batch := list(islice(sums, BATCH_BLOBS)):
            with stores.catalog.write() as tx:
                condemned += garbage_collection.condemn(tx, replica, batch)
        if condemned:
            log.info("%d blobs in %s are condemned", condemned, replica)
        count += condemned
    return count


def delete_expired(stores: Stores, *, grace_s: float) -> int:
    """Delete blobs whose grace period has ended; return how many."""
    count = 0
    for replica in REPLICAS:
        with stores.catalog.read() as tx:
            before = now_us(tx) - int(grace_s * 1e6)
            due = garbage_collection.list_deletable(tx, replica, before, limit=BATCH_BLOBS)
        for sha256 in due:
            with stores.catalog.write() as tx:
                # The lock makes an ingest of the same bytes wait until the object is deleted.
                if garbage_collection.lock_for_deletion(tx, replica, sha256, before):
                    stores.replicas[replica].delete(keys.blob_key(sha256))
                    garbage_collection.record_deletion(tx, replica, sha256)
                    count += 1
    return count
