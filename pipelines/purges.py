"""Purge versions permanently: marker, records, rows, then blobs.

A purged version is under a tombstone, so it is hidden and cannot be written again. Each step may
repeat, stop early or overlap with itself:

- MARK puts a marker into every bucket.
- ERASE deletes the records, once all buckets have the marker and no job needs the document.
- FORGET deletes the catalog's rows, once no record is left, and condemns unreferenced blobs.

Files to which only purged bundles refer are purged in the same way, each by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines import files, flow, integrity, journals, quotas, records
from pipelines.flow import Heartbeat, Step
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    checkouts,
    collections,
    events,
    garbage_collection,
    jobs,
    purges,
    versions,
)
from storage.catalog import files as file_rows
from storage.catalog.events import EVENT_TYPES
from storage.catalog.purges import Purge
from storage.catalog.quotas import Amount
from storage.errors import ConflictError, NotFoundError, Unavailable
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.stores import Stores

BUNDLE_KIND: keys.Kind = "bundle"
BATCH_FILES = 256
"""Files of a bundle that one transaction schedules for their purge."""


@dataclass(frozen=True, slots=True)
class PurgeExtent:
    """What a purge deletes; `kept_files` counts files to which something else refers."""

    versions: Sequence[FQID]
    files: int
    kept_files: int
    has_tombstone: bool


def measure_extent(
    stores: Stores, uuid: str, version: str | None, *, kind: keys.Kind = BUNDLE_KIND
) -> PurgeExtent:
    """Return what a purge of one version, or of all versions of a uuid, would delete."""
    with stores.catalog.read() as tx:
        fqids = _find_versions(tx, kind, uuid, version)
        bundle_ids = [
            row.id
            for fqid in fqids
            if kind == BUNDLE_KIND and (row := bundles.find(tx, fqid)) is not None
        ]
        file_ids = {ident for bundle in bundle_ids for ident in bundles.list_file_ids(tx, bundle)}
        unshared = purges.filter_named_only_by(tx, sorted(file_ids), bundle_ids)
        has_tombstone = _has_tombstone(tx, kind, uuid, version)
    return PurgeExtent(fqids, len(unshared), len(file_ids) - len(unshared), has_tombstone)


def _find_versions(tx: Tx, kind: keys.Kind, uuid: str, version: str | None) -> list[FQID]:
    """Return the versions to purge; raise NotFoundError if there are none, nor a purge of them."""
    rows = purges.list_versions if kind == BUNDLE_KIND else collections.list_versions
    fqids = [fqid for fqid in rows(tx, uuid) if version in (None, fqid.version)]
    if not fqids and purges.find(tx, kind, uuid, version or "") is None:
        name = uuid if version is None else f"{uuid}.{version}"
        raise NotFoundError(f"There is no {kind} {name}.")
    return fqids


def _has_tombstone(tx: Tx, kind: keys.Kind, uuid: str, version: str | None) -> bool:
    return versions.find_covering_tombstone(tx, kind, uuid, version or "") is not None


def order_purge(
    stores: Stores,
    uuid: str,
    version: str | None,
    *,
    reason: str,
    author: str,
    kind: keys.Kind = BUNDLE_KIND,
) -> tuple[Job, ...]:
    """Start the permanent deletion of one version, or of a uuid with all of its versions.

    Repeating it restarts what is unfinished. Raise NotFoundError if it never existed, ConflictError
    (`protected`) if it is not under a tombstone.
    """
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, kind, [uuid])
        fqids = _find_versions(tx, kind, uuid, version)
        if not _has_tombstone(tx, kind, uuid, version):
            raise ConflictError("Only what is under a tombstone is purged.", code="protected")
        follow: set[Job] = set()
        for fqid in fqids if version else (*fqids, FQID(uuid, "")):
            follow |= schedule_purge(tx, kind, fqid, reason=reason, author=author)
            if kind == BUNDLE_KIND and fqid.version:
                follow |= _record_delete_events(tx, fqid)
        jobs.insert(tx, follow)
    return tuple(sorted(follow))


def schedule_purge(tx: Tx, kind: keys.Kind, fqid: FQID, *, reason: str, author: str) -> set[Job]:
    """Insert a purge and return its jobs, none if it is finished; the caller locks the head."""
    new = Purge(
        id=0,
        kind=kind,
        uuid=fqid.uuid,
        version=fqid.version,
        reason=reason,
        author=author,
        origin=REPLICAS[0],
        digest=records.purge_digest(kind, fqid.uuid, fqid.version, reason),
        event_id=events.make_event_id("DELETE", REPLICAS[0], fqid),
        created_us=0,
        finished_us=None,
    )
    row = purges.insert(tx, new)
    if row.finished_us is not None:
        return set()
    return {Job(Step.MARK, replica, f"{kind}:{row.name}") for replica in REPLICAS}


def _record_delete_events(tx: Tx, fqid: FQID) -> set[Job]:
    """Record a DELETE event for each replica that showed the version; return the jobs."""
    row = bundles.find(tx, fqid)
    follow: set[Job] = set()
    for replica in REPLICAS:
        created = events.make_event_id("CREATE", replica, fqid)
        deleted = events.make_event_id("DELETE", replica, fqid)
        if row is None or events.find(tx, created) is None or events.find(tx, deleted) is not None:
            continue
        event = events.append(tx, "DELETE", replica, fqid, row.id)
        follow |= {*flow.following_jobs("purge", "bundle", replica, str(fqid), event=event)}
    return follow


def write_marker(stores: Stores, claim: JobClaim, _beat: Heartbeat) -> tuple[Job, ...]:
    """Put the marker into one bucket; after the last bucket, the records can be erased."""
    purge, replica = _get_purge(stores, claim), flow.job_replica(claim.job)
    kind, fqid = flow.parse_version_ref(claim.job)
    key = keys.purge_marker_key(kind, fqid.uuid, fqid.version or None)
    integrity.put_or_repair_record(stores, replica, key, records.encode_marker_record(purge))
    follow: list[Job] = []
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, purge.kind, [purge.uuid])
        everywhere = purges.record_marker(tx, purge, replica)
        if everywhere and purge.version:
            follow = [Job(Step.ERASE, name, claim.job.ref) for name in REPLICAS]
        elif everywhere:
            purges.finish(tx, purge)
        jobs.finish(tx, claim)
        jobs.insert(tx, follow, request_id=claim.request_id)
    return tuple(follow)


def _get_purge(stores: Stores, claim: JobClaim) -> Purge:
    kind, fqid = flow.parse_version_ref(claim.job)
    with stores.catalog.read() as tx:
        purge = purges.find(tx, kind, *fqid)
    if purge is None:
        raise NotFoundError(f"There is no purge of {claim.job.ref}.")
    return purge


def erase_record(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Delete the record from one bucket, and a bundle's copies from the checkout area.

    After the last replica the rows can be deleted. Raise Unavailable while jobs need the document.
    """
    purge, replica = _get_purge(stores, claim), flow.job_replica(claim.job)
    kind, fqid = flow.parse_version_ref(claim.job)
    if kind == BUNDLE_KIND:
        # Stored queries see the document on DELETE.
        with stores.catalog.read() as tx:
            waiting = next((job for job in document_jobs(fqid) if jobs.exists(tx, job)), None)
        if waiting is not None:
            raise Unavailable(f"The purge of {fqid} waits for {waiting.step} in {waiting.replica}.")
        _end_checkouts(stores, fqid, replica, heartbeat)
    stores.replicas[replica].delete(keys.record_key(kind, fqid))
    follow: list[Job] = []
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, purge.kind, [purge.uuid])
        if purges.record_erasure(tx, purge, replica):
            follow = [Job(Step.FORGET, REPLICAS[0], claim.job.ref)]
        jobs.finish(tx, claim)
        jobs.insert(tx, follow, request_id=claim.request_id)
    return tuple(follow)


def document_jobs(fqid: FQID) -> list[Job]:
    """Return the jobs that may still need the document of a bundle."""
    by_event = [
        Job(step, replica, events.make_event_id(kind, replica, fqid))
        for step in (Step.MATCH, Step.PERCOLATE)
        for replica in REPLICAS
        for kind in EVENT_TYPES
    ]
    return by_event + [Job(Step.INDEX, replica, str(fqid)) for replica in REPLICAS]


def _end_checkouts(stores: Stores, fqid: FQID, replica: Replica, heartbeat: Heartbeat) -> None:
    """Delete a bundle's copies in the store's own checkout area.

    Fail running checkouts, and raise Unavailable then: their workers may still write.
    """
    with stores.catalog.write() as tx:
        row = bundles.find(tx, fqid)
        checkout_rows = [] if row is None else purges.list_checkouts(tx, row.id, replica)
        for job_id, state in checkout_rows:
            if state == "RUNNING":
                checkouts.finish(tx, job_id, state="FAILED", cause="The bundle was purged.")
                jobs.delete(tx, Job(Step.CHECKOUT, replica, job_id))
    area = stores.checkouts[replica]
    for job_id, _ in checkout_rows:
        for info in area.list(keys.checkout_prefix(job_id)):
            area.delete(info.key)
            heartbeat(0)
    if any(state == "RUNNING" for _, state in checkout_rows):
        raise Unavailable(f"The purge of {fqid} waits for the end of a checkout.")
    with stores.catalog.write() as tx:
        for job_id, _ in checkout_rows:
            checkouts.mark_expired(tx, job_id)


def delete_rows(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Delete the catalog's rows of a version whose records are erased in every bucket."""
    purge = _get_purge(stores, claim)
    if purge.kind == BUNDLE_KIND:
        return _delete_bundle_rows(stores, purge, claim, heartbeat)
    fqid = FQID(purge.uuid, purge.version)
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, purge.kind, [purge.uuid])
        if purge.kind == files.KIND:
            _delete_file_rows(stores, tx, fqid)
        else:
            collections.delete_version(tx, fqid)
        purges.finish(tx, purge)
        jobs.finish(tx, claim)
    return ()


def _delete_bundle_rows(
    stores: Stores, purge: Purge, claim: JobClaim, heartbeat: Heartbeat
) -> tuple[Job, ...]:
    fqid = FQID(purge.uuid, purge.version)
    with stores.catalog.read() as tx:
        row = bundles.find(tx, fqid)
        idents = [] if row is None else sorted(bundles.list_file_ids(tx, row.id))
    for start in range(0, len(idents), BATCH_FILES):
        _purge_unreferenced_files(stores, purge, idents[start : start + BATCH_FILES])
        heartbeat(0)
    follow = journals.redact_version(stores, fqid, heartbeat)
    event_ids = [
        events.make_event_id(kind, replica, fqid) for kind in EVENT_TYPES for replica in REPLICAS
    ]
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, BUNDLE_KIND, [purge.uuid])
        if row is not None:
            purges.delete_bundle(tx, row.id, event_ids)
        purges.finish(tx, purge)
        jobs.finish(tx, claim)
    return follow


def _purge_unreferenced_files(stores: Stores, purge: Purge, idents: Sequence[int]) -> None:
    """Hide and schedule for purging those files to which only purged bundles refer."""
    with stores.catalog.write() as tx:
        rows = file_rows.list_by_ids(tx, idents)
        versions.lock_heads(tx, files.KIND, [row.fqid.uuid for row in rows])
        unreferenced = set(purges.lock_unreferenced(tx, idents))
        follow: set[Job] = set()
        for row in rows:
            if row.id in unreferenced:
                fqid = row.fqid
                versions.unpublish(tx, files.KIND, *fqid)
                follow |= schedule_purge(
                    tx, files.KIND, fqid, reason=purge.reason, author=purge.author
                )
        jobs.insert_new(tx, follow)


def _delete_file_rows(stores: Stores, tx: Tx, fqid: FQID) -> None:
    row = file_rows.find(tx, fqid)
    if row is None:
        return
    if purges.is_referenced(tx, row.id):
        raise Unavailable(f"The purge of {fqid} waits for that of a bundle.")
    purges.delete_file(tx, row.id, fqid)
    if row.published:
        quotas.count_change(tx, stores, {row.author: Amount(-row.size, -1)})
    for replica in REPLICAS:
        garbage_collection.condemn(tx, replica, [row.checksums.sha256])


def cancel_sync(stores: Stores, claim: JobClaim) -> tuple[Job, ...]:
    """Finish the sync of a purged version, and delete a record put after the marker.

    Raise NotFoundError if the version was never written.
    """
    kind, fqid = flow.parse_version_ref(claim.job)
    with stores.catalog.read() as tx:
        purged = purges.filter_purged(tx, kind, [fqid])
    if not purged:
        raise NotFoundError(f"There is no {kind} {fqid}.")
    integrity.delete_late_records(stores, flow.job_replica(claim.job), kind, purged)
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()
