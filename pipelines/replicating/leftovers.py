"""What the dead left: reservations to complete, uploads to abort, temporary files to remove."""

import logging

from pipelines.flow import Step
from storage import keys
from storage.catalog import now_us, todo, uploads, versions
from storage.errors import NotFound
from storage.model import REPLICAS, Todo
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 1_000


def reservations(stores: Stores, *, grace_s: float) -> int:
    """Enqueue the completion of reservations whose writer should have been done by now."""
    with stores.catalog.read() as tx:
        before = now_us(tx) - int(grace_s * 1e6)
        rows = [
            (kind, fqid)
            for kind in keys.KINDS
            for fqid in versions.reserved_before(tx, kind, before, limit=BATCH)
        ]
    if rows:
        wanted = [Todo(Step.PUBLISH, REPLICAS[0], f"{kind}:{fqid}") for kind, fqid in rows]
        with stores.catalog.write() as tx:
            todo.add_new(tx, wanted)
    return len(rows)


def unfinished_uploads(stores: Stores, *, older_than_s: float) -> int:
    """Abort multipart uploads that nobody can be working on any more."""
    with stores.catalog.read() as tx:
        rows = uploads.older_than(tx, now_us(tx) - int(older_than_s * 1e6))
    for replica, key, token in rows:
        blobs = stores.replicas[next(name for name in REPLICAS if name == replica)]
        try:
            blobs.upload(key, part_size=1, content_type="", token=token).abort()
        except NotFound:
            log.info("upload of %s to %s was gone already", key, replica)
        with stores.catalog.write() as tx:
            uploads.closed(tx, replica, key, token)
    return len(rows)


def temporaries(stores: Stores, *, older_than_s: float, now: float) -> int:
    """Remove what writers that died left in the buckets' working space."""
    buckets = (*stores.replicas.values(), stores.areas, *stores.checkouts.values())
    return sum(bucket.sweep_temporaries(older_than_s, now=now) for bucket in buckets)
