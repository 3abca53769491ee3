"""The end of bytes: what nothing refers to is condemned, and after a time of grace deleted.

Whoever takes the same bytes in again revives them first. The catalog's part is in
`storage/catalog/condemned.py`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from storage import keys
from storage.catalog import condemned, now_us
from storage.catalog.files import Reserved
from storage.model import REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 500


def revive(stores: Stores, replica: Replica, rows: Sequence[Reserved]) -> None:
    """Let the bytes of these files live, before anybody looks whether a bucket holds them."""
    revive_bytes(stores, replica, [row.file.checksums.sha256 for row in rows])


def revive_bytes(stores: Stores, replica: Replica, sums: Sequence[str]) -> None:
    """The same by SHA-256; one probe each where nothing is condemned."""
    dying = stores.catalog.ask(lambda tx: condemned.among(tx, replica, sums))
    if not dying:
        return
    with stores.catalog.write() as tx:
        for sha256 in sorted(dying):
            condemned.revive(tx, replica, sha256)
    log.info("%d condemned blobs in %s live on", len(dying), replica)


def condemn(stores: Stores, replica: Replica, sums: Iterable[str]) -> int:
    """Begin the time of grace of bytes that a bucket holds and nothing refers to."""
    made = 0
    for batch in _batches(sums):
        with stores.catalog.write() as tx:
            made += condemned.condemn(tx, replica, batch)
    if made:
        log.info("%d blobs in %s are condemned", made, replica)
    return made


def condemn_orphans(stores: Stores) -> int:
    """Condemn what lies in the buckets and nothing refers to: verifications that failed, copies
    for what was purged meanwhile. One that goes on has an open task."""
    return sum(condemn(stores, replica, _listed(stores, replica)) for replica in REPLICAS)


def _listed(stores: Stores, replica: Replica) -> Iterator[str]:
    for info in stores.replicas[replica].list(keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is not None:
            yield sha256


def _batches(sums: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(sums)
    while batch := list(islice(rest, BATCH)):
        yield batch


def reap(stores: Stores, *, grace_s: float) -> int:
    """Delete the bytes whose grace ended; returns how many."""
    return sum(_reap(stores, replica, grace_s) for replica in REPLICAS)


def _reap(stores: Stores, replica: Replica, grace_s: float) -> int:
    gone = 0
    with stores.catalog.read() as tx:
        before = now_us(tx) - int(grace_s * 1e6)
        due = condemned.due(tx, replica, before, limit=BATCH)
    for sha256 in due:
        with stores.catalog.write() as tx:
            # Held while the object goes: who deposits the same bytes waits here, and then looks.
            if condemned.hold(tx, replica, sha256, before):
                stores.replicas[replica].delete(keys.blob(sha256))
                condemned.deleted(tx, replica, sha256)
                gone += 1
    return gone
