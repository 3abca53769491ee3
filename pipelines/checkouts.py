"""Checkouts: copy a bundle's files to where people compute, and mail the requester."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pipelines import bundles, copies, failover, flow, formats
from pipelines.copies import BulkCopies
from pipelines.flow import Heartbeat
from pipelines.job_batches import run_until_error
from storage import keys
from storage.catalog import bundles as catalog_bundles
from storage.catalog import checkouts, jobs
from storage.catalog.checkouts import Checkout
from storage.errors import (
    ClaimLost,
    DamagedObjectError,
    DomainError,
    NotFoundError,
    SourceChanged,
    Unavailable,
)
from storage.model import FQID, Job, JobClaim, ManifestEntry, Replica
from storage.protocols import BlobInfo, BlobStore, BulkCopyTarget
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH_ENTRIES = 256
"""Entries read, and copies counted, at a time."""


@dataclass(frozen=True, slots=True)
class CheckoutRequest:
    """A bundle to check out, by default into the store's own checkout area."""

    replica: Replica
    uuid: str
    version: str | None
    destination: str | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True)
class RequestedCheckout:
    """The id of a checkout, and the jobs to send for it."""

    job_id: str
    jobs: tuple[Job, ...]


def create(
    stores: Stores, request: CheckoutRequest, requester: str | None, *, request_id: str = ""
) -> RequestedCheckout:
    """Record the checkout of a visible bundle; raise NotFoundError."""
    bundle = bundles.find(stores, request.replica, request.uuid, request.version)
    job_id = formats.new_uuid()
    follow = (Job(flow.Step.CHECKOUT, request.replica, job_id),)
    with stores.catalog.write() as tx:
        job = Checkout(
            id=job_id,
            replica=request.replica,
            uuid=bundle.fqid.uuid,
            version=bundle.fqid.version,
            bundle_id=bundle.id,
            destination=request.destination,
            email=request.email,
            requester=requester,
            state="RUNNING",
            location=None,
            cause=None,
            files=0,
            files_total=bundle.file_count,
            bytes=0,
            bytes_total=catalog_bundles.sum_bytes(tx, bundle.id),
            created_us=0,
            finished_us=None,
        )
        checkouts.insert_checkout(tx, job)
        jobs.insert(tx, follow, request_id=request_id)
    return RequestedCheckout(job_id, follow)


def get_status(stores: Stores, replica: Replica, job_id: str) -> Checkout:
    """Return a checkout of this replica with its progress; raise NotFoundError."""
    with stores.catalog.read() as tx:
        job = checkouts.find(tx, job_id)
    if job is None or job.replica != replica:
        raise NotFoundError(f"There is no checkout job {job_id} in replica {replica}.")
    return job


def run_checkout(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Copy all files of a checkout; running it again skips existing copies."""
    with stores.catalog.read() as tx:
        job = checkouts.find(tx, claim.job.ref)
    if job is None or job.state != "RUNNING":
        with stores.catalog.write() as tx:
            jobs.finish(tx, claim)
        return ()
    location, cause = None, None
    try:
        location = _copy_all(stores, job, heartbeat)
    except (ClaimLost, Unavailable):
        raise
    except DomainError as error:
        cause = error.detail
        log.warning("checkout %s failed: %s", job.id, cause)
    return _finish(stores, job, claim, location=location, cause=cause)


def _finish(
    stores: Stores, job: Checkout, claim: JobClaim, *, location: str | None, cause: str | None
) -> tuple[Job, ...]:
    follow = flow.following_jobs("checkout", "job", job.replica, job.id) if job.email else ()
    state = "SUCCEEDED" if cause is None else "FAILED"
    with stores.catalog.write() as tx:
        checkouts.finish(tx, job.id, state=state, location=location, cause=cause)
        jobs.finish(tx, claim)
        jobs.insert(tx, follow, request_id=claim.request_id)
    stores.pubsub.publish(flow.checkout_topic(job.id))
    return follow


def _copy_all(stores: Stores, job: Checkout, heartbeat: Heartbeat) -> str:
    """Copy all files concurrently, and return the URL of their folder."""
    target = (
        stores.checkouts[job.replica]
        if job.destination is None
        else stores.open_destination(job.replica, job.destination)
    )
    fqid = FQID(job.uuid, job.version)
    source = failover.choose_replica(stores, bundles.KIND, job.replica, fqid)
    copy = partial(_copy_one, stores, source, target, job, heartbeat)
    prefix = keys.checkout_prefix(job.id)
    bulk, existing = None, dict[str, BlobInfo]()
    if isinstance(target, BulkCopyTarget):
        bulk = BulkCopies(stores.replicas[source], target, prefix)
        existing = dict(target.list_prefix(prefix))
    parallel = stores.copy_parallel
    done = size = 0

    def copy_and_report(entry: ManifestEntry) -> None:
        key = keys.checkout_file_key(job.id, entry.name)
        blob = keys.blob_key(entry.checksums.sha256)
        is_free = bulk is not None and key not in existing
        # By itself if the key was taken, or if a bulk copy may have failed.
        if not (bulk and is_free and bulk.copy(blob, key, size=entry.size, is_free=True)):
            copy(entry)
        heartbeat(entry.size)

    with ThreadPoolExecutor(parallel) as pool:
        for batch in _iterate_batches(stores, job):
            # The first small copy shows whether the bucket allows bulk copies.
            single = 1 if done == 0 and batch[0].size <= copies.INLINE_BYTES else 0
            run_until_error(pool, copy_and_report, batch[:single], parallel=1)
            run_until_error(pool, copy_and_report, batch[single:], parallel=parallel)
            done, size = done + len(batch), size + sum(entry.size for entry in batch)
            with stores.catalog.write() as tx:
                checkouts.record_progress(tx, job.id, files=done, size=size)
        if bulk and bulk.has_copied:
            for batch in _iterate_batches(stores, job):
                wrong = [
                    entry
                    for entry in batch
                    if not bulk.is_intact(
                        keys.checkout_file_key(job.id, entry.name), entry.size, entry.checksums
                    )
                ]
                run_until_error(pool, copy, wrong, parallel=parallel)
                heartbeat(0)
    return target.direct_url(prefix)


def _iterate_batches(stores: Stores, job: Checkout) -> Iterator[Sequence[ManifestEntry]]:
    with stores.catalog.read() as tx:
        bundle = catalog_bundles.get(tx, job.bundle_id)
    for start in range(0, bundle.file_count, BATCH_ENTRIES):
        yield bundles.read_entries(stores, bundle, start, BATCH_ENTRIES)


def _copy_one(
    stores: Stores,
    source: Replica,
    target: BlobStore,
    job: Checkout,
    heartbeat: Heartbeat,
    entry: ManifestEntry,
) -> None:
    """Copy one file, from the other replica if its bytes are damaged in this one."""
    blob = keys.blob_key(entry.checksums.sha256)
    copy = partial(
        copies.copy_object,
        target=target,
        key=blob,
        target_key=keys.checkout_file_key(job.id, entry.name),
        size=entry.size,
        checksums=entry.checksums,
        heartbeat=heartbeat,
    )
    try:
        copy(stores.replicas[source])
    except (DamagedObjectError, NotFoundError, SourceChanged) as error:
        failover.order_repair(stores, source, blob, error.detail)
        copy(stores.replicas[failover.other_replica(source)])


def send_mail(stores: Stores, claim: JobClaim, _beat: Heartbeat) -> tuple[Job, ...]:
    """Mail the result of a checkout to its requester, at least once."""
    with stores.catalog.read() as tx:
        job = checkouts.find(tx, claim.job.ref)
    if job is not None and job.email and stores.send_mail is not None:
        stores.send_mail(job.email, *_compose_mail(job))
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def _compose_mail(job: Checkout) -> tuple[str, str]:
    name = f"{job.uuid}.{job.version}"
    if job.state == "SUCCEEDED":
        return (
            f"Bundle {name} is checked out",
            f"The files of bundle {name} are at {job.location}\n",
        )
    return f"Checkout of bundle {name} failed", f"Checkout {job.id} failed: {job.cause}\n"


def expire(stores: Stores, before_us: int) -> int:
    """Delete the copies of checkouts finished before a time; return how many checkouts."""
    with stores.catalog.read() as tx:
        jobs = checkouts.list_expirable(tx, before_us)
    for job in jobs:
        target = stores.checkouts[job.replica]
        for info in target.list(keys.checkout_prefix(job.id)):
            target.delete(info.key)
        with stores.catalog.write() as tx:
            checkouts.mark_expired(tx, job.id)
    return len(jobs)
