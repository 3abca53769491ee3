"""Copy files, bundles and collections to another replica, and report lag and backlog.

A replica shows a version only when everything that its record names is stored there with the right
checksum. Each step may repeat, stop early or overlap with itself.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pipelines import (
    bundles,
    collections,
    copies,
    failover,
    files,
    flow,
    garbage_collection,
    integrity,
    purges,
    records,
)
from pipelines.copies import BulkCopies, UploadLedger
from pipelines.flow import Heartbeat, Step
from pipelines.job_batches import CompletedJobs, run_each, run_in_groups, run_until_error
from pipelines.limits import ETAG_CHUNK
from storage import keys
from storage.catalog import Tx, documents, now_us, replication, versions
from storage.catalog import bundles as catalog_bundles
from storage.catalog import collections as catalog_collections
from storage.catalog import files as catalog_files
from storage.catalog import jobs as catalog_jobs
from storage.catalog import purges as catalog_purges
from storage.catalog.collections import Collection, LinkTarget
from storage.catalog.replication import (
    DivergedVersion,
    ReplicationBacklog,
    WaitingJob,
    find_waiting,
)
from storage.errors import ConflictError, NotReady
from storage.keys import KINDS, Kind
from storage.model import (
    FQID,
    REPLICAS,
    BundleVersion,
    CollectionLink,
    FileVersion,
    Job,
    JobClaim,
    Replica,
)
from storage.protocols import BulkCopyTarget
from storage.stores import Stores

COPY_STEPS = (Step.SYNC, Step.SYNC_LARGE)
FILE_BATCH = 512
"""Files of one bundle that are looked up, and published, at a time."""
LISTED_PER_HEAD_REQUEST = 8
"""Objects that a listing returns for the price of one HEAD request."""
SMALL_BUNDLE_FILES = 100
"""Most files of a bundle that is synced together with others."""
MAX_CHECKED_TARGETS = 20
"""Missing targets of a collection whose jobs are looked up for the reason of its wait."""
RECHECK_FRACTION, RECHECK_CAP_S = 0.1, 600
"""Part of the time waited after which a collection's targets are checked again: at least a second,
at most the cap."""


def sync_version(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Copy the version `<kind>:<fqid>` to the replica of the job; raise NotFoundError."""
    kind, fqid = flow.parse_version_ref(claim.job)
    return _SYNC_BY_KIND[kind](stores, claim, fqid, heartbeat)


def sync_versions(
    stores: Stores, claims: Sequence[JobClaim], heartbeat: Heartbeat
) -> CompletedJobs:
    """Sync several small files, and several small bundles whose files are stored, together."""
    by_kind: dict[str, dict[FQID, JobClaim]] = {files.KIND: {}, bundles.KIND: {}}
    for claim in claims:
        kind, fqid = flow.parse_version_ref(claim.job)
        if kind in by_kind:
            by_kind[kind][fqid] = claim
    completed = dict[Job, tuple[Job, ...]]()
    if len(by_kind[files.KIND]) > 1:
        completed.update(_sync_files(stores, by_kind[files.KIND], heartbeat))
    if len(by_kind[bundles.KIND]) > 1:
        completed.update(_sync_bundles(stores, by_kind[bundles.KIND]))
    return completed


def _target_replica(claimed: Mapping[FQID, JobClaim]) -> Replica:
    return flow.job_replica(next(iter(claimed.values())).job)


# Files -------------------------------------------------------------------------------------


def _sync_file(
    stores: Stores, claim: JobClaim, fqid: FQID, heartbeat: Heartbeat
) -> tuple[Job, ...]:
    target = flow.job_replica(claim.job)
    rows, stored = _load_files(stores, target, [fqid])
    for row in rows.values():
        _copy_file(stores, target, heartbeat, stored, row)
    if rows and _finish_files(stores, target, {fqid: claim}, [*rows.values()]):
        return ()
    return purges.cancel_sync(stores, claim)


def _sync_files(
    stores: Stores, claimed: Mapping[FQID, JobClaim], heartbeat: Heartbeat
) -> CompletedJobs:
    target = _target_replica(claimed)
    rows, stored = _load_files(stores, target, [*claimed])
    return run_in_groups(
        lambda fqid: _copy_file(stores, target, heartbeat, stored, rows[fqid]),
        rows,
        lambda copied: _finish_files(stores, target, claimed, [rows[fqid] for fqid in copied]),
        step=flow.Step.SYNC,
        replica=target,
        parallel=stores.copy_parallel,
    )


def _load_files(
    stores: Stores, target: Replica, fqids: Sequence[FQID]
) -> tuple[dict[FQID, FileVersion], Set[int]]:
    """Return the files that are not purged, and the ids of blobs that should be in the replica."""
    with stores.catalog.read() as tx:
        purged = catalog_purges.filter_purged(tx, files.KIND, fqids)
        rows = [row for row in catalog_files.find_all(tx, fqids) if row.fqid not in purged]
        stored = catalog_files.filter_stored_blobs(tx, target, rows)
    garbage_collection.revive_files(stores, target, rows)
    return {row.fqid: row for row in rows}, stored


def _finish_files(
    stores: Stores, target: Replica, claimed: Mapping[FQID, JobClaim], rows: Sequence[FileVersion]
) -> CompletedJobs:
    """Publish files whose blobs and records are stored, and finish their jobs."""
    with stores.catalog.write() as tx:
        purged = _publish_files(tx, rows, target)
        done = [row.fqid for row in rows if row.fqid not in purged]
        catalog_jobs.finish_all(tx, [claimed[fqid] for fqid in done])
    stores.pubsub.publish(*(flow.file_topic(target, row.fqid) for row in rows))
    return {claimed[fqid].job: () for fqid in done}


def _publish_files(tx: Tx, rows: Sequence[FileVersion], target: Replica) -> dict[FQID, bool]:
    """Publish files; return those that were purged meanwhile."""
    versions.lock_heads(tx, files.KIND, [row.fqid.uuid for row in rows])
    purged = catalog_purges.filter_purged(tx, files.KIND, [row.fqid for row in rows])
    catalog_files.publish(tx, [row for row in rows if row.fqid not in purged], target)
    return purged


def _copy_file(
    stores: Stores,
    target: Replica,
    heartbeat: Heartbeat,
    stored: Set[int],
    row: FileVersion,
    *,
    copied: Set[int] = frozenset(),
) -> None:
    """Put a file's blob and record into a bucket; readers do not see it yet.

    A blob in `copied` is there and intact, one in `stored` is checked.
    """
    if row.blob_id not in copied:
        _copy_blob(stores, row, target, heartbeat, is_stored=row.blob_id in stored)
    if not files.put_record(stores, row, target):
        raise ConflictError(f"The record of {row.fqid} differs.", code="file_already_exists")


def _copy_blob(
    stores: Stores, file: FileVersion, target: Replica, heartbeat: Heartbeat, *, is_stored: bool
) -> None:
    key = keys.blob_key(file.checksums.sha256)
    if is_stored and failover.find_damage(stores, target, key, file) is None:
        return
    # If the origin's copy is to be repaired, the other replica has the bytes.
    source = file.origin if file.origin != target else failover.other_replica(target)
    copies.copy_object(
        stores.replicas[source],
        stores.replicas[target],
        key,
        key,
        size=file.size,
        checksums=file.checksums,
        heartbeat=heartbeat,
        ledger=UploadLedger(stores, target, key) if file.size > ETAG_CHUNK else None,
    )


# Bundles -----------------------------------------------------------------------------------


def _sync_bundle(
    stores: Stores, claim: JobClaim, fqid: FQID, heartbeat: Heartbeat
) -> tuple[Job, ...]:
    target = flow.job_replica(claim.job)
    for row, missing in _load_bundles(stores, target, [fqid]):
        idents = sorted(missing)
        batches = [idents[at : at + FILE_BATCH] for at in range(0, len(idents), FILE_BATCH)]
        # Two at a time: one is looked up or published while the other is copied.
        with ThreadPoolExecutor(stores.copy_parallel) as pool, ThreadPoolExecutor(2) as two:
            copy_batch = partial(_copy_file_batch, stores, target, heartbeat, pool)
            run_until_error(two, copy_batch, batches, parallel=2)
        is_equal = {fqid: _put_bundle_record(stores, row, target)}
        completed = _publish_bundles(stores, target, {fqid: claim}, {fqid: row}, is_equal)
        if completed:
            return completed[claim.job]
    return purges.cancel_sync(stores, claim)


def _sync_bundles(stores: Stores, claimed: Mapping[FQID, JobClaim]) -> CompletedJobs:
    target = _target_replica(claimed)
    loaded = _load_bundles(stores, target, [*claimed], max_files=SMALL_BUNDLE_FILES)
    rows = {row.fqid: row for row, missing in loaded if not missing}
    is_equal = run_each(
        lambda fqid: _put_bundle_record(stores, rows[fqid], target),
        rows,
        step=flow.Step.SYNC,
        replica=target,
        parallel=stores.copy_parallel,
    )
    return _publish_bundles(stores, target, claimed, rows, is_equal) if is_equal else {}


def _load_bundles(
    stores: Stores, target: Replica, fqids: Sequence[FQID], *, max_files: int | None = None
) -> list[tuple[BundleVersion, Set[int]]]:
    """Return bundles that are not purged, each with the ids of files that the replica lacks."""
    with stores.catalog.read() as tx:
        purged = catalog_purges.filter_purged(tx, bundles.KIND, fqids)
        named = [
            (row, set(catalog_bundles.list_file_ids(tx, row.id)))
            for row in catalog_bundles.find_all(tx, fqids)
            if row.fqid not in purged and (max_files is None or row.file_count <= max_files)
        ]
        idents = sorted(set[int]().union(*(file_ids for _, file_ids in named)))
        published = catalog_files.filter_published_ids(tx, target, idents)
    return [(row, file_ids - published) for row, file_ids in named]


def _put_bundle_record(stores: Stores, row: BundleVersion, target: Replica) -> bool:
    """Put a bundle's record into a bucket; return False if other bytes exist."""
    data = records.encode_bundle_record(row, bundles.build_manifest(stores, row))
    key = keys.record_key(bundles.KIND, row.fqid)
    return integrity.put_or_repair_record(stores, target, key, data)


def _publish_bundles(
    stores: Stores,
    target: Replica,
    claimed: Mapping[FQID, JobClaim],
    rows: Mapping[FQID, BundleVersion],
    is_equal: Mapping[FQID, bool],
) -> CompletedJobs:
    """Publish bundles that are not purged and whose records are stored, and finish their jobs."""
    completed = dict[Job, tuple[Job, ...]]()
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, bundles.KIND, [fqid.uuid for fqid in is_equal])
        purged = catalog_purges.filter_purged(tx, bundles.KIND, [*is_equal])
        done = [fqid for fqid in is_equal if fqid not in purged]
        for fqid in done:
            row, follow = rows[fqid], tuple[Job, ...]()
            if is_equal[fqid]:
                follow = bundles.publish_in_replica(tx, row, target, step="sync")
            else:
                versions.record_stored(tx, bundles.KIND, row.id, target, diverged=True)
            completed[claimed[fqid].job] = follow
        catalog_jobs.finish_all(tx, [claimed[fqid] for fqid in done])
        catalog_jobs.insert_each(
            tx,
            [
                (job, claimed[fqid].request_id)
                for fqid in done
                for job in completed[claimed[fqid].job]
            ],
        )
    return completed


def _copy_file_batch(
    stores: Stores, target: Replica, heartbeat: Heartbeat, pool: Executor, idents: Sequence[int]
) -> None:
    """Copy files of a bundle whose own jobs have not run yet, and publish them."""
    with stores.catalog.read() as tx:
        rows = catalog_files.list_by_ids(tx, idents)
        stored = catalog_files.filter_stored_blobs(tx, target, rows)
        listed = catalog_files.estimate_blob_count(tx)
    garbage_collection.revive_files(stores, target, rows)
    small = (row for row in rows if row.size <= copies.INLINE_BYTES)
    new = {row.blob_id: row for row in small if row.blob_id not in stored}
    is_worth_listing = len(new) * LISTED_PER_HEAD_REQUEST >= listed
    copied = _copy_in_bulk(stores, target, heartbeat, pool, new) if is_worth_listing else set()

    def copy(row: FileVersion) -> None:
        _copy_file(stores, target, heartbeat, stored, row, copied=copied)
        heartbeat(0)

    run_until_error(pool, copy, rows, parallel=stores.copy_parallel)
    with stores.catalog.write() as tx:
        purged = _publish_files(tx, rows, target)
    integrity.delete_late_records(stores, target, files.KIND, purged)


def _copy_in_bulk(
    stores: Stores,
    target: Replica,
    heartbeat: Heartbeat,
    pool: Executor,
    by_blob: Mapping[int, FileVersion],
) -> Set[int]:
    """Copy small blobs and compare them by one listing; return the ids of those that are right."""
    blobs = stores.replicas[target]
    if not isinstance(blobs, BulkCopyTarget) or not by_blob:
        return frozenset()
    bulk = BulkCopies(stores.replicas[failover.other_replica(target)], blobs, keys.BLOBS)

    def copy(file: FileVersion) -> None:
        key = keys.blob_key(file.checksums.sha256)
        if not bulk.copy(key, key, size=file.size):
            _copy_blob(stores, file, target, heartbeat, is_stored=False)
        heartbeat(0)

    # The first copy shows whether the bucket allows bulk copies.
    first, *others = by_blob.values()
    copy(first)
    run_until_error(pool, copy, others, parallel=stores.copy_parallel)
    wrong = set[int]()
    for ident, file in by_blob.items():
        key = keys.blob_key(file.checksums.sha256)
        if not bulk.is_intact(key, file.size, file.checksums):
            wrong.add(ident)
            copies.remove_wrong_copy(
                blobs, key, size=file.size, checksums=file.checksums, heartbeat=heartbeat
            )
    return by_blob.keys() - wrong


# Collections -------------------------------------------------------------------------------


def _sync_collection(
    stores: Stores, claim: JobClaim, fqid: FQID, _heartbeat: Heartbeat
) -> tuple[Job, ...]:
    """Put a collection's record into a bucket and publish it there.

    Raise NotReady while the other replica shows a target that this one lacks. Targets that are
    gone everywhere are not waited for.
    """
    target = flow.job_replica(claim.job)
    with stores.catalog.read() as tx:
        row = catalog_collections.find(tx, fqid)
        if row is None or catalog_purges.filter_purged(tx, collections.KIND, [fqid]):
            contents = None
        else:
            contents = _read_links(tx, claim, row, target)
    if row is None or contents is None:
        return purges.cancel_sync(stores, claim)
    data = records.encode_collection_record(row, contents)
    key = keys.record_key(collections.KIND, fqid)
    is_equal = integrity.put_or_repair_record(stores, target, key, data)
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, collections.KIND, [fqid.uuid])
        is_purged = bool(catalog_purges.filter_purged(tx, collections.KIND, [fqid]))
        if not is_purged:
            if is_equal:
                collections.publish_in_replica(tx, row, target)
            else:
                versions.record_stored(tx, collections.KIND, row.id, target, diverged=True)
            catalog_jobs.finish(tx, claim)
            woken = catalog_jobs.wake(tx, claim.job.step, target, claim.job.ref)
    return purges.cancel_sync(stores, claim) if is_purged else woken


def _read_links(tx: Tx, claim: JobClaim, row: Collection, target: Replica) -> list[CollectionLink]:
    """Return a collection's links; raise NotReady while the replica lacks a target."""
    runs = catalog_collections.list_link_segments(tx, row.id)
    contents = [link for run in runs for link in run.links]
    targets = [collections.link_target(link) for link in contents]
    visible = catalog_collections.filter_visible_targets
    lacking = {*targets} - visible(tx, [target], row.owner, targets)
    if missing := visible(tx, [failover.other_replica(target)], row.owner, sorted(lacking)):
        raise _make_wait(tx, claim, target, missing)
    return contents


def _make_wait(tx: Tx, claim: JobClaim, target: Replica, missing: set[LinkTarget]) -> NotReady:
    """Return the error that postpones a collection's sync.

    It names a target whose job is dead, if there is one. The delay grows with the time waited, so
    that waiting for an operator costs little. The missing collection that was written last wakes
    this one, so a chain of any length is synced without pauses.
    """
    dead, waiting = list[str](), list[str]()
    for kind, fqid in sorted(missing)[:MAX_CHECKED_TARGETS]:
        job = find_waiting(tx, COPY_STEPS, f"{kind}:{fqid}").get(target)
        if job is not None and job.parked:
            dead.append(f"{kind} {fqid} was put aside ({job.reason}).")
        else:
            waiting.append(f"{kind} {fqid}.")
    reason = (dead + waiting)[0]
    own = find_waiting(tx, (claim.job.step,), claim.job.ref).get(target)
    waited_s = 0.0 if own is None else (now_us(tx) - own.born_us) / 1e6
    linked = [fqid for kind, fqid in missing if kind == collections.KIND]
    last = max(linked, key=lambda fqid: fqid.version, default=None)
    return NotReady(
        f"{len(missing)} of its links lead to what {target} has not yet: {reason}",
        retry_after_s=int(min(max(waited_s * RECHECK_FRACTION, 1), RECHECK_CAP_S)),
        until=None if last is None else f"{collections.KIND}:{last}",
    )


_SYNC_BY_KIND: Mapping[str, Callable[[Stores, JobClaim, FQID, Heartbeat], tuple[Job, ...]]] = {
    files.KIND: _sync_file,
    bundles.KIND: _sync_bundle,
    collections.KIND: _sync_collection,
}


# Report ------------------------------------------------------------------------------------

ReplicaState = Literal["present", "pending", "parked", "diverged"]

REPLICATION_STEPS = (*COPY_STEPS, Step.BURY, Step.INDEX)
"""Steps between a write and its completion in every replica."""

WINDOW_S = 3_600
WINDOW_VERSIONS = 1_000
"""Age, and number per replica, of the versions that count for the lag."""
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The state of a version in a replica, since `at_us` if known; `reason` of a dead job."""

    state: ReplicaState
    at_us: int | None
    reason: str | None = None


def find_status(stores: Stores, kind: str, ident: int, fqid: FQID) -> dict[Replica, ReplicaStatus]:
    """Return the state of one version in every replica."""
    with stores.catalog.read() as tx:
        seen = replication.find_stored_records(tx, kind, ident)
        waiting = replication.find_waiting(tx, COPY_STEPS, f"{kind}:{fqid}")
    statuses: dict[Replica, ReplicaStatus] = {}
    for replica in REPLICAS:
        if (record := seen.get(replica)) is not None:
            state: ReplicaState = "diverged" if record.diverged else "present"
            statuses[replica] = ReplicaStatus(state, record.at_us)
        elif (job := waiting.get(replica)) is not None:
            state = "parked" if job.parked else "pending"
            statuses[replica] = ReplicaStatus(state, job.born_us, job.reason)
        else:
            statuses[replica] = ReplicaStatus("pending", None)
    return statuses


@dataclass(frozen=True, slots=True)
class ReplicationLag:
    """Time from publication in the origin to publication here; None without versions."""

    kind: Kind
    replica: Replica
    versions: int
    p50_us: int | None
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """Lag, backlog and problems of replication, at `now_us`."""

    now_us: int
    lag: list[ReplicationLag]
    backlog: list[ReplicationBacklog]
    oldest: list[WaitingJob]
    failures: list[WaitingJob]
    diverged: list[DivergedVersion]
    unindexed: list[tuple[str, FQID, str]]
    counts: dict[str, int]


def build_report(stores: Stores) -> ReplicationReport:
    """Report the lag, the backlog, and what keeps the replicas from being equal."""
    with stores.catalog.read() as tx:
        return ReplicationReport(
            now_us=now_us(tx),
            lag=[_measure_lag(tx, kind, replica) for kind in KINDS for replica in REPLICAS],
            backlog=replication.list_backlog(tx, REPLICATION_STEPS),
            oldest=replication.list_oldest(tx, (*COPY_STEPS, Step.BURY)),
            failures=replication.list_failures(tx, REPLICATION_STEPS, limit=MAX_SHOWN),
            diverged=replication.list_diverged(tx, limit=MAX_SHOWN),
            unindexed=documents.list_unindexed(tx, limit=MAX_SHOWN),
            counts=replication.count_problems(tx),
        )


def _measure_lag(tx: Tx, kind: Kind, replica: Replica) -> ReplicationLag:
    window_us = WINDOW_S * 1_000_000
    ascending = replication.list_lags(tx, kind, replica, window_us=window_us, limit=WINDOW_VERSIONS)
    if not ascending:
        return ReplicationLag(kind, replica, 0, None, None)
    p50, p99 = percentile(ascending, 50), percentile(ascending, 99)
    return ReplicationLag(kind, replica, len(ascending), p50, p99)


def percentile(ascending: Sequence[int], percent: int) -> int:
    """Return the least value that so many percent do not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]
