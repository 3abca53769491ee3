"""Sweeps: compare buckets and indexes with the catalog, and clean up abandoned writes.

What is missing or damaged gets an ordinary job.
"""

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TypeVar

from pipelines import bundles, collections, files, journal_copies, manifests
from pipelines.flow import Heartbeat, Step, parse_version_ref
from pipelines.integrity import delete_late_records
from storage import keys
from storage.catalog import (
    Tx,
    documents,
    ingest,
    integrity,
    jobs,
    now_us,
    purges,
    replication,
    versions,
)
from storage.catalog import files as file_rows
from storage.catalog.replication import DivergedVersion
from storage.errors import ConflictError, NotFoundError
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

SWEEP_BATCH = 1_000
MAX_NAMED_MISSING = 20
"""Missing names that a result lists."""
SETTLED_US = 120_000_000
"""Age below which a version is left to its own jobs."""
BLOBS_SETTLED_US = 5_000_000
"""The same for blobs: a repair reads again, so a race does no harm."""
INDEX_SETTLED_US = 5_000_000
"""The same for documents, which are recorded once they are searchable: a page of the index may be
older than the page of the catalog that it is compared with."""

Item = TypeVar("Item")
BatchHandler = Callable[[Stores, Replica, list[str]], None]
"""Handles a batch of names that differ in a replica."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """One comparison of a kind in a replica; `named` lists some of what is missing."""

    kind: str
    replica: Replica
    seen: int
    missing: int
    unexpected: int
    named: tuple[str, ...] = ()


def compare_sorted(left: Iterable[str], right: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Merge two sorted listings: each name with -1 (left only), 1 (right only) or 0 (both)."""
    merged = heapq.merge(((name, -1) for name in left), ((name, 1) for name in right))
    for name, sides in groupby(merged, itemgetter(0)):
        yield name, sum(side for _, side in sides)


def _sweep(
    stores: Stores,
    kind: str,
    replica: Replica,
    pairs: Iterator[tuple[str, int]],
    enqueue: BatchHandler | None,
    remove: BatchHandler | None = None,
) -> SweepResult:
    """Count compared names; enqueue jobs for missing ones, and remove unexpected ones."""
    result = SweepResult(kind, replica, 0, 0, 0)
    while batch := list(islice(pairs, SWEEP_BATCH)):
        missing = [name for name, side in batch if side < 0]
        unexpected = [name for name, side in batch if side > 0]
        if enqueue and missing:
            enqueue(stores, replica, missing)
        if remove and unexpected:
            remove(stores, replica, unexpected)
        result = replace(
            result,
            seen=result.seen + len(batch) - len(missing) - len(unexpected),
            missing=result.missing + len(missing),
            unexpected=result.unexpected + len(unexpected),
            named=(*result.named, *missing)[:MAX_NAMED_MISSING],
        )
    return result


def iterate_pages(
    stores: Stores, page: Callable[[Tx, Item, int], list[Item]], first: Item, *, settled_us: int
) -> Iterator[Item]:
    """Yield all that the catalog lists after `first`, in one transaction per page.

    `page` gets the item to start after, and the time before which everything is settled.
    """
    after = first
    while True:
        with stores.catalog.read() as tx:
            listed = page(tx, after, now_us(tx) - settled_us)
        yield from listed
        if len(listed) < SWEEP_BATCH:
            return
        after = listed[-1]


def sweep_replicas(stores: Stores, *, repair: bool = True) -> list[SweepResult]:
    """Compare every bucket with the catalog; without `repair` nothing is written."""
    if repair:
        _recheck_diverged(stores)
    return [
        *(
            _sweep_records(stores, kind, replica, repair=repair)
            for kind in keys.KINDS
            for replica in REPLICAS
        ),
        *(_sweep_blobs(stores, replica, repair=repair) for replica in REPLICAS),
        *(_sweep_journals(stores, replica, repair=repair) for replica in REPLICAS),
    ]


def _recheck_diverged(stores: Stores) -> None:
    """Enqueue jobs that compare diverged records again: the right ones may have been put back."""
    after: DivergedVersion | None = None
    while True:
        with stores.catalog.read() as tx:
            diverged = replication.list_diverged(tx, after=after, limit=SWEEP_BATCH)
            checks = [job for one in diverged for job in _find_checks(tx, one)]
        if checks:
            with stores.catalog.write() as tx:
                jobs.insert_new(tx, checks)
        if len(diverged) < SWEEP_BATCH:
            return
        after = diverged[-1]


def _find_checks(tx: Tx, one: DivergedVersion) -> Iterator[Job]:
    """Yield the job that puts a record into its bucket if it is absent, and else compares it."""
    fqid = FQID.parse(one.name)
    for kind in keys.KINDS:
        if one.kind == kind and versions.find_published_id(tx, kind, fqid) is not None:
            yield Job(Step.SYNC, one.replica, f"{kind}:{fqid}")
        if one.kind == "tombstone" and versions.find_tombstone(tx, kind, *fqid) is not None:
            for job in manifests.tombstone_jobs(kind, *fqid):
                if job.replica == one.replica:
                    yield job


def sweep_indexes(stores: Stores, *, repair: bool = True) -> list[SweepResult]:
    """Compare every replica's index with the catalog, and index lost documents again.

    Subscribers are not notified again.
    """
    return [_sweep_index(stores, replica, repair=repair) for replica in REPLICAS]


def _sweep_records(
    stores: Stores, kind: keys.Kind, replica: Replica, *, repair: bool
) -> SweepResult:
    """Sync missing records and repair damaged ones; remove only unexpected ones that are purged."""
    known = iterate_pages(
        stores,
        lambda tx, after, before_us: versions.list_published_after(
            tx, kind, after, before_us=before_us, limit=SWEEP_BATCH
        ),
        FQID("", ""),
        settled_us=SETTLED_US,
    )
    damaged: list[str] = []

    def list_stored() -> Iterator[str]:
        for info in _list_objects(stores, replica, keys.record_prefix(kind)):
            if (record := keys.parse_record(info.key)) is not None:
                if info.damaged:
                    damaged.append(info.key)
                yield str(record.fqid)

    result = _sweep(
        stores,
        kind,
        replica,
        compare_sorted(map(str, known), list_stored()),
        partial(_enqueue_syncs, kind) if repair else None,
        partial(_remove_purged, kind) if repair else None,
    )
    if repair:
        _enqueue_repairs(stores, replica, damaged)
    if result.unexpected:
        message = "sweep: %d %ss in %s are newer than the sweep or unknown"
        log.info(message, result.unexpected, kind, replica)
    return result


def _list_objects(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """List objects; those that changed since their verification count as damaged."""
    listing = stores.replicas[replica].list(prefix)
    while batch := list(islice(listing, SWEEP_BATCH)):
        modified = {info.key: info.modified_us for info in batch if info.modified_us is not None}
        with stores.catalog.read() as tx:
            changed = integrity.filter_changed(tx, replica, modified)
        for info in batch:
            yield replace(info, damaged=True) if info.key in changed else info


def _enqueue_syncs(kind: keys.Kind, stores: Stores, replica: Replica, names: list[str]) -> None:
    fqids = [FQID.parse(name) for name in names]
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, kind, [fqid.uuid for fqid in fqids])
        for fqid in fqids:
            ident = versions.find_published_id(tx, kind, fqid)
            if ident is not None:
                versions.delete_stored(tx, kind, ident, replica)
        jobs.insert_new(tx, [Job(Step.SYNC, replica, f"{kind}:{name}") for name in names])
    log.warning("sweep: %d %ss to be brought to %s", len(names), kind, replica)


def _remove_purged(kind: keys.Kind, stores: Stores, replica: Replica, names: list[str]) -> None:
    """Delete records that a stalled writer put after the end of their purge."""
    with stores.catalog.read() as tx:
        purged = purges.filter_purged(tx, kind, [FQID.parse(name) for name in names])
    delete_late_records(stores, replica, kind, purged)
    if purged:
        log.warning("sweep: %d purged %ss were still in %s", len(purged), kind, replica)


def _sweep_blobs(stores: Stores, replica: Replica, *, repair: bool) -> SweepResult:
    """Repair blobs that are missing, damaged or of another size.

    Unexpected ones belong to a running verification, or are left to garbage collection.
    """
    known = iterate_pages(
        stores,
        lambda tx, after, before_us: file_rows.list_blobs(
            tx, replica, after, before_us=before_us, limit=SWEEP_BATCH
        ),
        ("", 0),
        settled_us=BLOBS_SETTLED_US,
    )
    stored = (
        f"{sha256} {'damaged' if info.damaged else info.size}"
        for info in _list_objects(stores, replica, keys.BLOBS)
        if (sha256 := keys.parse_blob(info.key)) is not None
    )

    def enqueue(stores: Stores, replica: Replica, names: list[str]) -> None:
        _enqueue_repairs(stores, replica, [keys.blob_key(name.partition(" ")[0]) for name in names])

    pairs = compare_sorted((f"{sha256} {size}" for sha256, size in known), stored)
    return _sweep(stores, "blob", replica, pairs, enqueue if repair else None)


def _enqueue_repairs(stores: Stores, replica: Replica, damaged: list[str]) -> None:
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job(Step.REPAIR, replica, key) for key in damaged])
    if damaged:
        log.warning("sweep: %d objects to be repaired in %s", len(damaged), replica)


def _sweep_journals(stores: Stores, bucket: Replica, *, repair: bool) -> SweepResult:
    """Compare a bucket's journals of both replicas; unexpected ones are old or being written."""
    pairs = chain.from_iterable(
        compare_sorted(
            journal_copies.list_expected_objects(stores, replica, settled_us=SETTLED_US),
            journal_copies.list_stored_objects(stores, bucket, replica),
        )
        for replica in REPLICAS
    )
    return _sweep(
        stores, "journal", bucket, pairs, journal_copies.enqueue_copies if repair else None
    )


def _sweep_index(stores: Stores, replica: Replica, *, repair: bool) -> SweepResult:
    recorded = iterate_pages(
        stores,
        lambda tx, after, before_us: documents.list_indexed_after(
            tx, replica, after, before_us=before_us, limit=SWEEP_BATCH
        ),
        FQID("", ""),
        settled_us=INDEX_SETTLED_US,
    )
    pairs = compare_sorted(map(str, recorded), map(str, stores.search[replica].list_ids()))
    return _sweep(stores, "document", replica, pairs, _enqueue_indexing if repair else None)


def _enqueue_indexing(stores: Stores, replica: Replica, names: list[str]) -> None:
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job(Step.INDEX, replica, name) for name in names])
    log.warning("sweep: %d documents to be indexed again in %s", len(names), replica)


def enqueue_reservations(stores: Stores, *, grace_s: float) -> int:
    """Enqueue the completion of reservations whose writer should have been done by now."""
    with stores.catalog.read() as tx:
        before = now_us(tx) - int(grace_s * 1e6)
        rows = [
            (kind, fqid)
            for kind in keys.KINDS
            for fqid in versions.list_stale_reservations(tx, kind, before, limit=SWEEP_BATCH)
        ]
    if rows:
        wanted = [Job(Step.PUBLISH, REPLICAS[0], f"{kind}:{fqid}") for kind, fqid in rows]
        with stores.catalog.write() as tx:
            jobs.insert_new(tx, wanted)
    return len(rows)


def abort_stale_uploads(stores: Stores, *, older_than_s: float) -> int:
    """Abort multipart uploads that were abandoned."""
    with stores.catalog.read() as tx:
        rows = ingest.list_stale_uploads(tx, now_us(tx) - int(older_than_s * 1e6))
    for replica, key, token in rows:
        blobs = stores.replicas[next(name for name in REPLICAS if name == replica)]
        try:
            blobs.upload(key, part_size=1, content_type="", token=token).abort()
        except NotFoundError:
            log.info("upload of %s to %s was gone already", key, replica)
        with stores.catalog.write() as tx:
            ingest.delete_upload(tx, replica, key, token)
    return len(rows)


def remove_temporaries(stores: Stores, *, older_than_s: float, now: float) -> int:
    """Remove temporary files that dead writers left in the buckets."""
    buckets = (*stores.replicas.values(), stores.areas, *stores.checkouts.values())
    return sum(bucket.sweep_temporaries(older_than_s, now=now) for bucket in buckets)


def complete_reservation(stores: Stores, claim: JobClaim, _heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Put and publish the reservation `<kind>:<fqid>`, unless it is published already."""
    kind, fqid = parse_version_ref(claim.job)
    if kind == files.KIND:
        follow = _complete_file(stores, fqid, claim.request_id)
    else:
        follow = _complete_manifest(stores, kind, fqid, claim.request_id)
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return follow


def _complete_file(stores: Stores, fqid: FQID, request_id: str) -> tuple[Job, ...]:
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, fqid)
    if row is None or row.published:
        return ()
    files.put_origin_record(stores, row)
    with stores.catalog.write() as tx:
        follow = files.publish(tx, row)
        jobs.insert(tx, follow, request_id=request_id)
    return follow


def _complete_manifest(
    stores: Stores, kind: keys.Kind, fqid: FQID, request_id: str
) -> tuple[Job, ...]:
    try:
        if kind == bundles.KIND:
            return manifests.resume_write(stores, bundles.BUNDLE, fqid, request_id=request_id)
        return manifests.resume_write(stores, collections.COLLECTION, fqid, request_id=request_id)
    except ConflictError as error:
        if error.code == manifests.tombstone_code(kind):
            return ()  # The tombstone hides the version, and no request waits for it.
        raise
