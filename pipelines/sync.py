"""Copy files, bundles and collections to another replica.

A half copy is never visible: what a record names is in the bucket, with the right checksum, before
the record is. Every step may run twice, half, or beside its twin.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from pipelines import (
    bundles,
    collections,
    copies,
    failover,
    files,
    flow,
    garbage_collection,
    integrity,
    links,
    purges,
    records,
)
from pipelines.collections import KIND
from pipelines.copies import BulkCopies, Heartbeat
from pipelines.job_batches import CompletedJobs, run_each, run_in_groups, run_until_error
from pipelines.limits import ETAG_CHUNK
from pipelines.replication import COPY_STEPS
from storage import keys
from storage.catalog import Tx, heads, ingest, now_us, versions
from storage.catalog import bundles as catalog_bundles
from storage.catalog import collections as rows
from storage.catalog import files as file_rows
from storage.catalog import jobs as catalog_jobs
from storage.catalog import purges as catalog_purges
from storage.catalog.collections import Collection, LinkTarget
from storage.catalog.replication import find_waiting
from storage.errors import Conflict, NotFound, NotReady
from storage.model import FQID, REPLICAS, CollectionLink, FileVersion, Job, JobClaim, Replica
from storage.protocols import BlobStore, BulkCopyTarget
from storage.stores import Stores

MAX_CHECKED_TARGETS = 20
"""Targets of which it is found out how they stand."""
RECHECK_FRACTION, RECHECK_CAP_S = 0.1, 600
"""It is looked whether the targets came after this part of the time waited, a second at the least
and this at the most."""


def sync_collection(
    stores: Stores, claim: JobClaim, fqid: FQID, _beat: Heartbeat
) -> tuple[Job, ...]:
    """Bring the record into one bucket and let its owner see it there. Waits while anything
    that it links to is on its way, or put aside; what is gone everywhere is not waited for."""
    target = flow.job_replica(claim.job)
    with stores.catalog.read() as tx:
        row = rows.find(tx, fqid)
        purged = catalog_purges.filter_purged(tx, KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no collection {fqid}.")
        contents = [] if row is None or purged else _read_links(tx, claim, row)
    if row is None or purged:
        return purges.cancel_sync(stores, claim, purged)
    key, data = keys.record_key(KIND, fqid), records.encode_collection_record(row, contents)
    same = integrity.put_or_repair_record(stores, target, key, data)
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [fqid.uuid])
        purged = catalog_purges.filter_purged(tx, KIND, [fqid])
        if not purged:
            _publish_collection(tx, row, target, same=same)
            catalog_jobs.finish(tx, claim)
            woken = catalog_jobs.wake(tx, claim.job.step, target, claim.job.ref)
    return purges.cancel_sync(stores, claim, purged) if purged else woken


def _publish_collection(tx: Tx, row: Collection, target: Replica, *, same: bool) -> None:
    if same:
        collections.publish_in_replica(tx, row, target)
    else:
        versions.record_stored(tx, KIND, row.id, target, diverged=True)


def _read_links(tx: Tx, claim: JobClaim, row: Collection) -> list[CollectionLink]:
    """Its links, once all that they lead to is here; Waits before."""
    target = flow.job_replica(claim.job)
    contents = [link for run in rows.list_link_segments(tx, row.id) for link in run.links]
    coming = _find_missing_targets(tx, row, [links.link_target(link) for link in contents], target)
    if coming:
        raise _build_wait(tx, claim, target, coming)
    return contents


def _find_missing_targets(
    tx: Tx, row: Collection, targets: list[LinkTarget], target: Replica
) -> set[LinkTarget]:
    """What readers of another replica see and those of this one do not."""
    lacking = set(targets) - rows.filter_visible_targets(tx, [target], row.owner, targets)
    others = [replica for replica in REPLICAS if replica != target]
    return rows.filter_visible_targets(tx, others, row.owner, sorted(lacking))


def _build_wait(tx: Tx, claim: JobClaim, here: Replica, coming: set[LinkTarget]) -> NotReady:
    """What holds it up: what was put aside before what is under way; looked at again after a part
    of the time that it has waited, so that what waits for a human costs little."""
    told = [_format_target(tx, one, here) for one in sorted(coming)[:MAX_CHECKED_TARGETS]]
    told.sort(key=lambda one: not one[0])
    mine = find_waiting(tx, (claim.job.step,), claim.job.ref).get(here)
    waited_s = 0.0 if mine is None else (now_us(tx) - mine.born_us) / 1e6
    return NotReady(
        f"{len(coming)} of its links lead to what {here} has not yet: {told[0][1]}",
        retry_after_s=int(min(max(waited_s * RECHECK_FRACTION, 1), RECHECK_CAP_S)),
        until=_find_last_collection(coming),
    )


def _find_last_collection(coming: set[LinkTarget]) -> str | None:
    """The collection among them that is likely to come last: it wakes what waits for it, so that a
    chain of any length comes at one go. Files and bundles wait for nothing, and come soon."""
    linked = [fqid for kind, fqid in coming if kind == KIND]
    if not linked:
        return None
    return f"{KIND}:{max(linked, key=lambda fqid: fqid.version)}"


def _format_target(tx: Tx, one: LinkTarget, here: Replica) -> tuple[bool, str]:
    """Whether a target was put aside, and that or how it stands."""
    kind, fqid = one
    row = find_waiting(tx, COPY_STEPS, f"{kind}:{fqid}").get(here)
    if row is not None and row.parked:
        return True, f"{kind} {fqid} was put aside ({row.reason})."
    return False, f"{kind} {fqid}."


FILE_BATCH = 512
"""Files of one bundle that are looked up, and revealed, at a time."""
LISTED_PER_HEAD_REQUEST = 8
"""Objects that a listing shows for the price of a look at one."""
SMALL_BUNDLE_FILES = 100
"""Files of a bundle that is synced together with others."""
UPLOAD_TOUCH_S = 60.0
"""Heartbeat interval of an upload; the sweep of unfinished uploads waits much longer."""


def sync_version(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Make one replica hold what another one holds; `<kind>:<fqid>`."""
    kind, _, name = claim.job.ref.partition(":")
    return _SYNC_BY_KIND[kind](stores, claim, FQID.parse(name), beat)


def _sync_file(stores: Stores, claim: JobClaim, fqid: FQID, beat: Heartbeat) -> tuple[Job, ...]:
    target = flow.job_replica(claim.job)
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, fqid)
        purged = catalog_purges.filter_purged(tx, files.KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no file {fqid}.")
        known = file_rows.filter_stored_blobs(tx, target, [row] if row else [])
    if row is None or purged:
        return purges.cancel_sync(stores, claim, purged)
    garbage_collection.revive_files(stores, target, [row])
    _copy_file(stores, target, beat, known, row)
    with stores.catalog.write() as tx:
        purged = _publish_files(tx, [row], target)
        if not purged:
            catalog_jobs.finish(tx, claim)
    stores.pubsub.publish(flow.file_topic(target, fqid))
    return purges.cancel_sync(stores, claim, purged) if purged else ()


def sync_versions(stores: Stores, claims: Sequence[JobClaim], beat: Heartbeat) -> CompletedJobs:
    """Sync several small files, and several bundles whose files came; those that go well are
    revealed together. Collections, and bundles that need more, go by themselves."""
    by_kind: dict[str, dict[FQID, JobClaim]] = {files.KIND: {}, bundles.KIND: {}}
    for claim in claims:
        kind, _, name = claim.job.ref.partition(":")
        if kind in by_kind:
            by_kind[kind][FQID.parse(name)] = claim
    completed = dict[Job, tuple[Job, ...]]()
    if len(by_kind[files.KIND]) > 1:
        completed.update(_sync_files(stores, by_kind[files.KIND], beat))
    if len(by_kind[bundles.KIND]) > 1:
        completed.update(_sync_bundles(stores, by_kind[bundles.KIND]))
    return completed


def _sync_files(stores: Stores, claimed: Mapping[FQID, JobClaim], beat: Heartbeat) -> CompletedJobs:
    target = _target_replica(claimed)
    with stores.catalog.read() as tx:
        rows = {row.file.fqid: row for row in file_rows.find_all(tx, list(claimed))}
        for fqid in catalog_purges.filter_purged(tx, files.KIND, list(rows)):
            del rows[fqid]
        known = file_rows.filter_stored_blobs(tx, target, list(rows.values()))
    garbage_collection.revive_files(stores, target, list(rows.values()))
    return run_in_groups(
        lambda fqid: _copy_file(stores, target, beat, known, rows[fqid]),
        rows,
        lambda copied: _finish_files(stores, target, claimed, [rows[fqid] for fqid in copied]),
        step=flow.Step.SYNC,
        replica=target,
        parallel=stores.copy_parallel,
    )


def _finish_files(
    stores: Stores,
    target: Replica,
    claimed: Mapping[FQID, JobClaim],
    rows: Sequence[file_rows.FileRow],
) -> CompletedJobs:
    """Reveal files whose blobs and records are there, and complete their jobs."""
    with stores.catalog.write() as tx:
        purged = _publish_files(tx, rows, target)
        done = [row.file.fqid for row in rows if row.file.fqid not in purged]
        catalog_jobs.finish_all(tx, [claimed[fqid] for fqid in done])
    for fqid in done:
        stores.pubsub.publish(flow.file_topic(target, fqid))
    return {claimed[fqid].job: () for fqid in done}


def _sync_bundles(stores: Stores, claimed: Mapping[FQID, JobClaim]) -> CompletedJobs:
    target = _target_replica(claimed)
    rows = _find_complete_bundles(stores, target, list(claimed))

    def place(fqid: FQID) -> bool:
        data = records.encode_bundle_record(
            rows[fqid], bundles.build_manifest(stores, rows[fqid].bundle)
        )
        return integrity.put_or_repair_record(
            stores, target, keys.record_key(bundles.KIND, fqid), data
        )

    placed = run_each(
        place, rows, step=flow.Step.SYNC, replica=target, parallel=stores.copy_parallel
    )
    if not placed:
        return {}
    completed = dict[Job, tuple[Job, ...]]()
    with stores.catalog.write() as tx:
        heads.lock(tx, bundles.KIND, [fqid.uuid for fqid in placed])
        purged = catalog_purges.filter_purged(tx, bundles.KIND, list(placed))
        done = [fqid for fqid in placed if fqid not in purged]
        for fqid in done:
            follow = _publish_bundle(tx, rows[fqid], target, same=placed[fqid])
            completed[claimed[fqid].job] = follow
        catalog_jobs.finish_all(tx, [claimed[fqid] for fqid in done])
        jobs = [(claimed[fqid].job, claimed[fqid].request_id) for fqid in done]
        catalog_jobs.insert_each(
            tx, [(job, request) for own, request in jobs for job in completed[own]]
        )
    return completed


def _find_complete_bundles(
    stores: Stores, target: Replica, fqids: Sequence[FQID]
) -> dict[FQID, catalog_bundles.BundleRow]:
    """Those of these bundles that are small, not purged, and have all of their files here."""
    with stores.catalog.read() as tx:
        rows = {row.bundle.fqid: row for row in catalog_bundles.find_all(tx, fqids)}
        purged = catalog_purges.filter_purged(tx, bundles.KIND, list(rows))
        needed = {
            fqid: set(catalog_bundles.list_file_ids(tx, row.bundle.id))
            for fqid, row in rows.items()
            if row.bundle.file_count <= SMALL_BUNDLE_FILES and fqid not in purged
        }
        idents = sorted(set[int]().union(*needed.values()))
        seen = file_rows.filter_published_ids(tx, target, idents)
    return {fqid: rows[fqid] for fqid, files_of in needed.items() if files_of <= seen}


def _target_replica(claimed: Mapping[FQID, JobClaim]) -> Replica:
    return flow.job_replica(next(iter(claimed.values())).job)


def _copy_file(
    stores: Stores,
    target: Replica,
    beat: Heartbeat,
    known: Set[int],
    row: file_rows.FileRow,
    *,
    brought: Set[int] = frozenset(),
) -> None:
    """A file's blob, unless it was `brought` just now or is `known` and there, and its record into
    a bucket; readers do not see it yet."""
    if row.blob_id not in brought:
        _copy_blob(stores, row.file, target, beat, known=row.blob_id in known)
    if not files.put_record(stores, row, target):
        raise Conflict(f"The record of {row.file.fqid} differs.", code="file_already_exists")


def _publish_files(tx: Tx, rows: Sequence[file_rows.FileRow], target: Replica) -> dict[FQID, bool]:
    """Let readers see them, but for those that were purged meanwhile, which are returned."""
    heads.lock(tx, files.KIND, [row.file.fqid.uuid for row in rows])
    purged = catalog_purges.filter_purged(tx, files.KIND, [row.file.fqid for row in rows])
    file_rows.publish(tx, [row for row in rows if row.file.fqid not in purged], target)
    return purged


def _copy_blob(
    stores: Stores, file: FileVersion, target: Replica, beat: Heartbeat, *, known: bool
) -> None:
    """The file's bytes into a bucket, compared by checksum."""
    key = keys.blob_key(file.checksums.sha256)
    blobs = stores.replicas[target]
    if known and failover.find_damage(stores, target, key, file) is None:
        return
    large = file.size > ETAG_CHUNK
    copies.copy_object(
        _choose_source(stores, file, target),
        blobs,
        key,
        key,
        size=file.size,
        checksums=file.checksums,
        heartbeat=beat,
        ledger=_UploadLedger(stores, target, key) if large else None,
    )


class _UploadLedger:
    """The catalog's row of a large copy, so that another worker takes it up where one died."""

    def __init__(self, stores: Stores, target: Replica, key: str) -> None:
        self._stores, self._target, self._key = stores, target, key
        self._noted: str | None = None
        self._touched = -UPLOAD_TOUCH_S

    def token(self) -> str | None:
        """See copying.Ledger."""
        with self._stores.catalog.read() as tx:
            self._noted = ingest.find_latest_upload(tx, self._target, self._key)
        return self._noted

    def note(self, token: str) -> None:
        """See copying.Ledger; one write for each new token, and now and then for an old one."""
        known, now = token == self._noted, time.monotonic()
        if known and now < self._touched + UPLOAD_TOUCH_S:
            return
        with self._stores.catalog.write() as tx:
            (ingest.touch_upload if known else ingest.insert_upload)(
                tx, self._target, self._key, token
            )
        self._noted, self._touched = token, now

    def close(self) -> None:
        """See copying.Ledger."""
        if self._noted is not None:
            with self._stores.catalog.write() as tx:
                ingest.delete_upload(tx, self._target, self._key, self._noted)


def _choose_source(stores: Stores, file: FileVersion, target: Replica) -> BlobStore:
    """Where to copy from: the origin, unless it is the origin that is to be repaired."""
    origin = file.origin if file.origin != target else next(r for r in REPLICAS if r != target)
    return stores.replicas[origin]


def _sync_bundle(stores: Stores, claim: JobClaim, fqid: FQID, beat: Heartbeat) -> tuple[Job, ...]:
    target = flow.job_replica(claim.job)
    with stores.catalog.read() as tx:
        row = catalog_bundles.find(tx, fqid)
        purged = catalog_purges.filter_purged(tx, bundles.KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no bundle {fqid}.")
        idents = [] if row is None or purged else catalog_bundles.list_file_ids(tx, row.bundle.id)
        seen = file_rows.filter_published_ids(tx, target, idents)
    if row is None or purged:
        return purges.cancel_sync(stores, claim, purged)
    _copy_missing_files(stores, sorted(set(idents) - seen), target, beat)
    data = records.encode_bundle_record(row, bundles.build_manifest(stores, row.bundle))
    key = keys.record_key(bundles.KIND, fqid)
    same = integrity.put_or_repair_record(stores, target, key, data)
    with stores.catalog.write() as tx:
        heads.lock(tx, bundles.KIND, [fqid.uuid])
        purged = catalog_purges.filter_purged(tx, bundles.KIND, [fqid])
        if not purged:
            follow = _publish_bundle(tx, row, target, same=same)
            catalog_jobs.finish(tx, claim)
            catalog_jobs.insert(tx, follow, request_id=claim.request_id)
    return purges.cancel_sync(stores, claim, purged) if purged else follow


def _publish_bundle(
    tx: Tx, row: catalog_bundles.BundleRow, target: Replica, *, same: bool
) -> tuple[Job, ...]:
    if not same:
        versions.record_stored(tx, bundles.KIND, row.bundle.id, target, diverged=True)
        return ()
    return bundles.publish_in_replica(tx, row, target, step="sync")


def _copy_missing_files(
    stores: Stores, idents: Sequence[int], target: Replica, beat: Heartbeat
) -> None:
    """Copy the files that a bundle needs and that have not come on their own yet.

    Two batches at a time: one is looked up or revealed while the other is copied."""
    batches = [idents[start : start + FILE_BATCH] for start in range(0, len(idents), FILE_BATCH)]
    with ThreadPoolExecutor(stores.copy_parallel) as pool, ThreadPoolExecutor(2) as two:
        bring = partial(_copy_file_batch, stores, target, beat, pool)
        run_until_error(two, bring, batches, parallel=2)


def _copy_file_batch(
    stores: Stores, target: Replica, beat: Heartbeat, pool: Executor, idents: Sequence[int]
) -> None:
    with stores.catalog.read() as tx:
        rows = file_rows.list_by_ids(tx, idents)
        known = file_rows.filter_stored_blobs(tx, target, rows)
        most = file_rows.estimate_blob_count(tx)
    garbage_collection.revive_files(stores, target, rows)
    small = (row for row in rows if row.file.size <= copies.INLINE_BYTES)
    new = {row.blob_id: row for row in small if row.blob_id not in known}
    is_worth_listing = len(new) * LISTED_PER_HEAD_REQUEST >= most
    brought = _copy_in_bulk(stores, target, beat, pool, new) if is_worth_listing else frozenset()

    def copy(row: file_rows.FileRow) -> None:
        _copy_file(stores, target, beat, known, row, brought=brought)
        beat(0)

    run_until_error(pool, copy, rows, parallel=stores.copy_parallel)
    with stores.catalog.write() as tx:
        purged = _publish_files(tx, rows, target)
    purges.delete_late_records(stores, target, files.KIND, purged)


def _copy_in_bulk(
    stores: Stores,
    target: Replica,
    beat: Heartbeat,
    pool: Executor,
    rows: Mapping[int, file_rows.FileRow],
) -> Set[int]:
    """Copy small blobs, and compare all by one listing; those that are there and right."""
    blobs = stores.replicas[target]
    if not isinstance(blobs, BulkCopyTarget) or not rows:
        return frozenset()
    bulk = BulkCopies(stores.replicas[failover.other_replica(target)], blobs, keys.BLOBS)

    def copy(file: FileVersion) -> None:
        key = keys.blob_key(file.checksums.sha256)
        if not bulk.copy(key, key, size=file.size):
            _copy_blob(stores, file, target, beat, known=False)
        beat(0)

    new = [row.file for row in rows.values()]
    # The first copy shows what the others need to know of the bucket.
    copy(new[0])
    run_until_error(pool, copy, new[1:], parallel=stores.copy_parallel)
    wrong = {ident for ident, row in rows.items() if not _is_copied_intact(bulk, row.file)}
    for ident in wrong:
        file = rows[ident].file
        key = keys.blob_key(file.checksums.sha256)
        copies.remove_wrong_copy(
            blobs, key, size=file.size, checksums=file.checksums, heartbeat=beat
        )
    return rows.keys() - wrong


def _is_copied_intact(bulk: BulkCopies, file: FileVersion) -> bool:
    return bulk.is_intact(keys.blob_key(file.checksums.sha256), file.size, file.checksums)


_SYNC_BY_KIND: Mapping[str, Callable[[Stores, JobClaim, FQID, Heartbeat], tuple[Job, ...]]] = {
    files.KIND: _sync_file,
    bundles.KIND: _sync_bundle,
    collections.KIND: sync_collection,
}
