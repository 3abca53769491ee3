"""Checkout: a bundle's files, under their names, where somebody computes; copied and verified."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pipelines import flow, formats, topics
from pipelines.batches import run_through
from pipelines.depositing import manifests, replicas
from pipelines.keeping import copying, failover
from pipelines.keeping.bulk_copying import BulkCopies
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import bundles, checkouts, todo
from storage.catalog.checkouts import Job
from storage.errors import Damaged, Lost, NotFound, SourceChanged, StoreError, Unavailable
from storage.model import FQID, Claim, Entry, Replica, Todo
from storage.protocols import BlobInfo, BlobStore, BulkTarget
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 256
"""Entries read, and copies counted, at a time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to check out; without `destination` into the store's own checkout area."""

    replica: Replica
    uuid: str
    version: str | None
    destination: str | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Requested:
    """The job, and what to send for it."""

    job_id: str
    todo: tuple[Todo, ...]


def request(
    stores: Stores, wanted: Wanted, requester: str | None, *, request_id: str = ""
) -> Requested:
    """Record a job for a visible bundle; NotFound."""
    bundle = manifests.find(stores, wanted.replica, wanted.uuid, wanted.version)
    job_id = formats.new_uuid()
    follow = (Todo(flow.Step.CHECKOUT, wanted.replica, job_id),)
    with stores.catalog.write() as tx:
        job = Job(
            id=job_id,
            replica=wanted.replica,
            uuid=bundle.fqid.uuid,
            version=bundle.fqid.version,
            bundle_id=bundle.id,
            destination=wanted.destination,
            email=wanted.email,
            requester=requester,
            state="RUNNING",
            location=None,
            cause=None,
            files=0,
            files_total=bundle.file_count,
            bytes=0,
            bytes_total=bundles.bytes_of(tx, bundle.id),
            created_us=0,
            finished_us=None,
        )
        checkouts.add(tx, job)
        todo.add(tx, follow, request_id=request_id)
    return Requested(job_id, follow)


def status(stores: Stores, replica: Replica, job_id: str) -> Job:
    """How far a job of this replica is; NotFound."""
    with stores.catalog.read() as tx:
        job = checkouts.get(tx, job_id)
    if job is None or job.replica != replica:
        raise NotFound(f"There is no checkout job {job_id} in replica {replica}.")
    return job


def checkout(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Copy every file of a job; run again, it finds what is copied already."""
    with stores.catalog.read() as tx:
        job = checkouts.get(tx, claim.todo.ref)
    if job is None or job.state != "RUNNING":
        with stores.catalog.write() as tx:
            todo.finish(tx, claim)
        return ()
    location, cause = None, None
    try:
        location = _copy_all(stores, job, beat)
    except (Lost, Unavailable):
        raise
    except StoreError as error:
        cause = error.detail
        log.warning("checkout %s failed: %s", job.id, cause)
    return _end(stores, job, claim, location=location, cause=cause)


def _end(
    stores: Stores, job: Job, claim: Claim, *, location: str | None, cause: str | None
) -> tuple[Todo, ...]:
    follow = flow.follows("checkout", "job", job.replica, job.id) if job.email else ()
    state = "SUCCEEDED" if cause is None else "FAILED"
    with stores.catalog.write() as tx:
        checkouts.finish(tx, job.id, state=state, location=location, cause=cause)
        todo.finish(tx, claim)
        todo.add(tx, follow, request_id=claim.request_id)
    stores.notices.publish(topics.of_checkout(job.id))
    return follow


def _copy_all(stores: Stores, job: Job, beat: Beat) -> str:
    """Copy every file, some at a time; returns the URL of their folder."""
    target = _target(stores, job)
    fqid = FQID(job.uuid, job.version)
    source = replicas.serving(stores, manifests.KIND, job.replica, fqid)
    copy = partial(_copy_one, stores, source, target, job, beat)
    bulk = None
    first = copy
    if isinstance(target, BulkTarget):
        bulk = BulkCopies(stores.replicas[source], target, keys.checkout(job.id))
        first = partial(_copy_in_bulk, bulk, target.list_below(keys.checkout(job.id)), job, copy)
    parallel = stores.copy_parallel
    done = size = 0

    def copy_and_tell(entry: Entry) -> None:
        first(entry)
        beat(entry.size)

    with ThreadPoolExecutor(parallel) as pool:
        for batch in _batches(stores, job):
            # The first small copy shows what the others need to know of the bucket.
            alone = 1 if done == 0 and batch[0].size <= copying.INLINE else 0
            run_through(pool, copy_and_tell, batch[:alone], parallel=1)
            run_through(pool, copy_and_tell, batch[alone:], parallel=parallel)
            done, size = done + len(batch), size + sum(entry.size for entry in batch)
            with stores.catalog.write() as tx:
                checkouts.progress(tx, job.id, files=done, size=size)
        if bulk and bulk.has_copied:
            for batch in _batches(stores, job):
                wrong = [entry for entry in batch if not _is_right(bulk, job, entry)]
                run_through(pool, copy, wrong, parallel=parallel)
                beat(0)
    return target.direct_url(keys.checkout(job.id))


def _copy_in_bulk(
    bulk: BulkCopies,
    before: Mapping[str, BlobInfo],
    job: Job,
    copy: Callable[[Entry], Entry],
    entry: Entry,
) -> Entry:
    """Copy one file; what lay there `before`, or may not have been copied, is looked at now."""
    key, blob = keys.checkout_file(job.id, entry.name), keys.blob(entry.checksums.sha256)
    if key not in before and bulk.copy(blob, key, size=entry.size, is_free=True):
        return entry
    return copy(entry)


def _is_right(bulk: BulkCopies, job: Job, entry: Entry) -> bool:
    return bulk.is_right(keys.checkout_file(job.id, entry.name), entry.size, entry.checksums)


def _target(stores: Stores, job: Job) -> BlobStore:
    if job.destination is None:
        return stores.checkouts[job.replica]
    return stores.destination(job.replica, job.destination)


def _batches(stores: Stores, job: Job) -> Iterator[Sequence[Entry]]:
    with stores.catalog.read() as tx:
        bundle = bundles.by_id(tx, job.bundle_id).bundle
    for start in range(0, bundle.file_count, BATCH):
        yield manifests.entries(stores, bundle, start, BATCH)


def _copy_one(
    stores: Stores, source: Replica, target: BlobStore, job: Job, beat: Beat, entry: Entry
) -> Entry:
    """Copy one file; from the other replica if its bytes are damaged in this one."""
    blob = keys.blob(entry.checksums.sha256)
    copy = partial(
        copying.copy,
        target=target,
        key=blob,
        target_key=keys.checkout_file(job.id, entry.name),
        size=entry.size,
        checksums=entry.checksums,
        beat=beat,
    )
    try:
        copy(stores.replicas[source])
    except (Damaged, NotFound, SourceChanged) as error:
        failover.order_repair(stores, source, blob, error.detail)
        copy(stores.replicas[failover.other_replica(source)])
    return entry


def mail(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Tell a job's requester how it ended; at least once."""
    with stores.catalog.read() as tx:
        job = checkouts.get(tx, claim.todo.ref)
    if job is not None and job.email and stores.mail is not None:
        stores.mail(job.email, *_letter(job))
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def _letter(job: Job) -> tuple[str, str]:
    name = f"{job.uuid}.{job.version}"
    if job.state == "SUCCEEDED":
        return f"Bundle {name} is checked out", f"Bundle {name} lies at {job.location}\n"
    return f"Checkout of bundle {name} failed", f"Checkout {job.id} failed: {job.cause}\n"


def expire(stores: Stores, before_us: int) -> int:
    """Remove the copies of old jobs from the checkout area; returns how many jobs."""
    with stores.catalog.read() as tx:
        jobs = checkouts.kept_before(tx, before_us)
    for job in jobs:
        target = stores.checkouts[job.replica]
        for info in target.list(keys.checkout(job.id)):
            target.delete(info.key)
        with stores.catalog.write() as tx:
            checkouts.expire(tx, job.id)
    return len(jobs)
