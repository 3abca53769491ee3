"""Sweeps: compare buckets and indexes with the catalog, and clean up abandoned writes.

Repairing adds the ordinary to-do row.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed_info
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from pipelines import bundles, collections, files, journal_copies, manifests, purges
from pipelines.copies import Heartbeat
from pipelines.flow import Step
from pipelines.manifests import ManifestKind
from storage import keys
from storage.catalog import Tx, documents, heads, ingest, integrity, jobs, now_us, versions
from storage.catalog import files as file_rows
from storage.catalog import purges as catalog_purges
from storage.errors import Conflict, NotFound
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

SWEEP_BATCH = 1_000
MAX_NAMED_MISSING = 20
"""How many of the missing a comparison names."""

Item = TypeVar("Item")
BatchHandler = Callable[[list[str]], None] | None
"""What is done about a batch of names; None: nothing."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What one comparison of a kind in a replica found."""

    kind: str
    replica: Replica
    seen: int
    missing: int
    unexpected: int
    named: tuple[str, ...] = ()
    """Some of what is missing."""


def compare_sorted(left: Iterable[str], right: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Merge two sorted listings: each key with -1 (left only), 1 (right only) or 0 (both)."""
    lefts, rights = iter(left), iter(right)
    mine, other = next(lefts, None), next(rights, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine < other):
            yield mine or "", -1
            mine = next(lefts, None)
        elif mine is None or other < mine:
            yield other, 1
            other = next(rights, None)
        else:
            yield mine, 0
            mine, other = next(lefts, None), next(rights, None)


class _SweepSide:
    """Names on one side only: counted, some kept, all told a batch at a time."""

    def __init__(self, tell: BatchHandler) -> None:
        self.count, self.named = 0, list[str]()
        self._tell, self._batch = tell, list[str]()

    def add(self, name: str) -> None:
        self.count += 1
        if self.count <= MAX_NAMED_MISSING:
            self.named.append(name)
        if self._tell:
            self._batch.append(name)
            if len(self._batch) == SWEEP_BATCH:
                self.flush()

    def flush(self) -> None:
        if self._tell and self._batch:
            self._tell(self._batch)
        self._batch = []


def handle_differences(
    kind: str,
    replica: Replica,
    pairs: Iterable[tuple[str, int]],
    mend: BatchHandler,
    drop: BatchHandler = None,
) -> SweepResult:
    """Count a comparison, and have what is missing mended, and what is too much looked at."""
    both, missing, strange = 0, _SweepSide(mend), _SweepSide(drop)
    for name, side in pairs:
        if side == 0:
            both += 1
        else:
            (missing if side < 0 else strange).add(name)
    missing.flush()
    strange.flush()
    return SweepResult(kind, replica, both, missing.count, strange.count, tuple(missing.named))


def iterate_pages(
    stores: Stores, page: Callable[[Tx, Item, int], list[Item]], first: Item, *, settled_us: int
) -> Iterator[Item]:
    """All that the catalog lists after `first`: a page at a time, no view held meanwhile. `page` is
    asked with where it begins and with the moment before which all is settled."""
    after = first
    while True:
        with stores.catalog.read() as tx:
            listed = page(tx, after, now_us(tx) - settled_us)
        yield from listed
        if len(listed) < SWEEP_BATCH:
            return
        after = listed[-1]


log = logging.getLogger(__name__)

SETTLED_US = 120_000_000
"""Age below which a version is left to its own to-do rows."""
BLOBS_SETTLED_US = 5_000_000
"""The same of blobs: a repair looks again, so that nothing comes of a race."""
INDEX_SETTLED_US = 5_000_000
"""The same of what was recorded only once it could be found: a page of the index may be older than
the page of the catalog that it is compared with."""


def sweep_replicas(stores: Stores, *, repair: bool = True) -> list[SweepResult]:
    """Compare every bucket's records and blobs with the catalog; with `repair` what is missing is
    enqueued, without it nothing is written."""
    records = [
        _compare_records(stores, kind, replica, repair=repair)
        for kind in keys.KINDS
        for replica in REPLICAS
    ]
    blobs = [_compare_blobs(stores, replica, repair=repair) for replica in REPLICAS]
    journals = [_compare_journals(stores, replica, repair=repair) for replica in REPLICAS]
    return [*records, *blobs, *journals]


def sweep_indexes(stores: Stores, *, repair: bool = True) -> list[SweepResult]:
    """Compare every replica's index with what the catalog says was indexed there, and enqueue again
    what the engine lost; nobody is told twice of a bundle that is found again."""
    return [_compare_index(stores, replica, repair=repair) for replica in REPLICAS]


# Records -----------------------------------------------------------------------------------


def _compare_records(
    stores: Stores, kind: keys.Kind, replica: Replica, *, repair: bool
) -> SweepResult:
    """A record that the catalog knows and the bucket lacks is brought again; one that only the
    bucket has is left alone, unless it was purged; if it stays unknown somebody should look."""
    damaged: list[str] = []
    pairs = compare_sorted(
        _list_known_versions(stores, kind),
        _list_stored_records(stores, kind, replica, damaged.append),
    )
    mend = partial(_enqueue_sync, stores, kind, replica) if repair else None
    drop = partial(_remove_purged, stores, kind, replica) if repair else None
    found = handle_differences(kind, replica, pairs, mend, drop)
    if repair:
        _enqueue_repairs(stores, replica, damaged)
    if found.unexpected:
        about = "sweep: %d %ss in %s are newer than the sweep or unknown"
        log.info(about, found.unexpected, kind, replica)
    return found


def _list_known_versions(stores: Stores, kind: keys.Kind) -> Iterator[str]:
    """Published versions by uuid, then version."""
    return map(
        str,
        iterate_pages(
            stores,
            lambda tx, after, before_us: versions.list_published_after(
                tx, kind, after, before_us=before_us, limit=SWEEP_BATCH
            ),
            FQID("", ""),
            settled_us=SETTLED_US,
        ),
    )


def _list_stored_records(
    stores: Stores, kind: keys.Kind, replica: Replica, damaged: Callable[[str], object]
) -> Iterator[str]:
    """Yield every record; pass the keys of damaged ones to `damaged`."""
    for info in _list_objects(stores, replica, keys.record_prefix(kind)):
        found = keys.parse_record(info.key)
        if found is not None:
            if info.damaged:
                damaged(info.key)
            yield str(found.fqid)


def _list_objects(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """List objects; those that were changed since they were verified count as damaged until they
    are read again."""
    listing = stores.replicas[replica].list(prefix)
    while batch := list(islice(listing, SWEEP_BATCH)):
        modified = {info.key: info.modified_us for info in batch if info.modified_us is not None}
        with stores.catalog.read() as tx:
            changed = integrity.filter_changed(tx, replica, modified)
        for info in batch:
            yield changed_info(info, damaged=True) if info.key in changed else info


def _enqueue_sync(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    if not names:
        return
    fqids = [FQID.parse(name) for name in names]
    with stores.catalog.write() as tx:
        heads.lock(tx, kind, [fqid.uuid for fqid in fqids])
        for fqid in fqids:
            ident = versions.find_published_id(tx, kind, fqid)
            if ident is not None:
                versions.delete_stored(tx, kind, ident, replica)
        # A row that is there already is left to its own time.
        wanted = [Job(Step.SYNC, replica, f"{kind}:{name}") for name in names]
        jobs.insert_new(tx, wanted)
    log.warning("sweep: %d %ss to be brought to %s", len(names), kind, replica)


def _remove_purged(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    """Remove records that came after all of their purge: from a writer that slept for so long."""
    with stores.catalog.read() as tx:
        purged = catalog_purges.filter_purged(tx, kind, [FQID.parse(name) for name in names])
    purges.delete_late_records(stores, replica, kind, purged)
    if purged:
        log.warning("sweep: %d purged %ss were still in %s", len(purged), kind, replica)


# Blobs and journals ------------------------------------------------------------------------


def _compare_blobs(stores: Stores, replica: Replica, *, repair: bool) -> SweepResult:
    """Blobs that are missing, damaged or of another size than the catalog knows are repaired; a
    blob that only the bucket has belongs to a verification that is going on, or to none."""
    known = iterate_pages(
        stores,
        lambda tx, after, before_us: file_rows.list_blobs(
            tx, replica, after, before_us=before_us, limit=SWEEP_BATCH
        ),
        ("", 0),
        settled_us=BLOBS_SETTLED_US,
    )
    mend = partial(_enqueue_blob_repairs, stores, replica) if repair else None
    named = (f"{sha256} {size}" for sha256, size in known)
    return handle_differences(
        "blob", replica, compare_sorted(named, _list_stored_blobs(stores, replica)), mend
    )


def _list_stored_blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    for info in _list_objects(stores, replica, keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is not None:
            yield f"{sha256} {'damaged' if info.damaged else info.size}"


def _enqueue_blob_repairs(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    _enqueue_repairs(stores, replica, [keys.blob_key(name.partition(" ")[0]) for name in wanted])


def _enqueue_repairs(stores: Stores, replica: Replica, wanted: Iterable[str]) -> None:
    """Have objects read again, and replaced if they are damaged."""
    rows = [Job(Step.REPAIR, replica, key) for key in wanted]
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, rows)
    if rows:
        log.warning("sweep: %d objects to be repaired in %s", len(rows), replica)


def _compare_journals(stores: Stores, bucket: Replica, *, repair: bool) -> SweepResult:
    """Journals of both replicas, each object with its size; one that only the bucket has is past,
    or being written."""
    mend = partial(journal_copies.enqueue_copies, stores, bucket) if repair else None
    pairs = chain.from_iterable(
        compare_sorted(
            journal_copies.list_expected_objects(stores, replica, settled_us=SETTLED_US),
            journal_copies.list_stored_objects(stores, bucket, replica),
        )
        for replica in REPLICAS
    )
    return handle_differences("journal", bucket, pairs, mend)


# Indexes -----------------------------------------------------------------------------------


def _compare_index(stores: Stores, replica: Replica, *, repair: bool) -> SweepResult:
    """What was said to be indexed, and what the engine has."""
    recorded = iterate_pages(
        stores,
        lambda tx, after, before_us: documents.list_indexed_after(
            tx, replica, after, before_us=before_us, limit=SWEEP_BATCH
        ),
        FQID("", ""),
        settled_us=INDEX_SETTLED_US,
    )
    held = map(str, stores.search[replica].list_ids())
    mend = partial(_enqueue_indexing, stores, replica) if repair else None
    return handle_differences("document", replica, compare_sorted(map(str, recorded), held), mend)


def _enqueue_indexing(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job(Step.INDEX, replica, name) for name in wanted])
    log.warning("sweep: %d documents to be indexed again in %s", len(wanted), replica)


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
        except NotFound:
            log.info("upload of %s to %s was gone already", key, replica)
        with stores.catalog.write() as tx:
            ingest.delete_upload(tx, replica, key, token)
    return len(rows)


def remove_temporaries(stores: Stores, *, older_than_s: float, now: float) -> int:
    """Remove what writers that died left in the buckets' working space."""
    buckets = (*stores.replicas.values(), stores.areas, *stores.checkouts.values())
    return sum(bucket.sweep_temporaries(older_than_s, now=now) for bucket in buckets)


def complete_reservation(stores: Stores, claim: JobClaim, _beat: Heartbeat) -> tuple[Job, ...]:
    """Put and publish one reservation, `<kind>:<fqid>`; nothing when it is published already."""
    kind, _, name = claim.job.ref.partition(":")
    follow = _COMPLETE_BY_KIND[kind](stores, FQID.parse(name), claim.request_id)
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
    kind: ManifestKind[Any], stores: Stores, fqid: FQID, request_id: str
) -> tuple[Job, ...]:
    try:
        return manifests.resume_write(stores, kind, fqid, request_id=request_id)
    except Conflict as error:
        if error.code == manifests.tombstone_code(kind.name):
            return ()  # The tombstone hides the version, and no request waits for it.
        raise


_COMPLETE_BY_KIND: Mapping[str, Callable[[Stores, FQID, str], tuple[Job, ...]]] = {
    files.KIND: _complete_file,
    bundles.KIND: partial(_complete_manifest, bundles.BUNDLE),
    collections.KIND: partial(_complete_manifest, collections.COLLECTION),
}
