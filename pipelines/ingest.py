"""Ingest staged files: record a task, then verify the bytes, store them and publish the file.

Verification reads the source once and stores the very buffers that it hashed. A file whose
checksums differ from the declared ones is never published, and leaves nothing behind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pipelines import (
    areas,
    checksums,
    copies,
    files,
    flow,
    formats,
    garbage_collection,
    quotas,
    records,
)
from pipelines.checksums import METADATA_PREFIX, ChecksumHasher, ComputedChecksums
from pipelines.copies import INLINE_BYTES, upload_parts
from pipelines.flow import Heartbeat
from pipelines.job_batches import CompletedJobs, run_each, run_in_groups, run_in_own_threads
from pipelines.limits import PENDING_RETRY_S
from storage import keys
from storage.catalog import Tx, ingest, purges, versions
from storage.catalog import files as file_rows
from storage.catalog import jobs as catalog_jobs
from storage.catalog.ingest import IngestTaskRow
from storage.catalog.quotas import Amount
from storage.errors import (
    ConflictError,
    DomainError,
    Forbidden,
    Invalid,
    NotFoundError,
    SourceChanged,
    Unavailable,
    Unprocessable,
)
from storage.model import FQID, REPLICAS, FileVersion, Job, JobClaim, Replica
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    SourceObject,
)
from storage.stores import Stores

MAX_CONTENT_TYPE = 1024
_EXISTS_CODE = "file_already_exists"
SMALL_BYTES = 1024 * 1024
"""Size up to which sending the bytes costs less than a request whether they are stored."""
SOURCE_CHECK_THREADS = 8
"""Sources that one request checks concurrently."""
MAX_SOURCE_ATTEMPTS = 4
"""Attempts to reach a source; with the pauses of the step that is ten minutes."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A file version to be ingested."""

    fqid: FQID
    replica: Replica
    source_url: str
    creator_uid: int


@dataclass(frozen=True, slots=True)
class AcceptedIngest:
    """The task that ingests a file, new or already open; None if the file is stored already."""

    fqid: FQID
    task_id: str | None
    jobs: tuple[Job, ...] = ()

    @property
    def is_new(self) -> bool:
        """Return whether this request started the task, and did not join an open one."""
        return bool(self.jobs)


@dataclass(frozen=True, slots=True)
class IngestTask:
    """The progress of a task: PENDING, RUNNING, SUCCEEDED or FAILED with its cause."""

    id: str
    fqid: FQID
    replica: Replica
    state: str
    size: int
    bytes_done: int
    cause: Mapping[str, Any] | None


class SourceUnreachable(DomainError):
    """The source cannot be reached; retried a few times before the task fails."""

    code = "source_not_readable"


class VerificationFailed(Exception):
    """The bytes differ from the declaration."""

    def __init__(self, cause: Mapping[str, Any]) -> None:
        super().__init__(str(cause["detail"]))
        self.cause = cause


def start_task(
    stores: Stores,
    new: IngestRequest,
    author: str,
    *,
    prefixes: tuple[str, ...] = (METADATA_PREFIX,),
    request_id: str = "",
) -> AcceptedIngest:
    """Check a source without reading its bytes, and record a task for the verification.

    Raise Invalid (scheme, content type), Forbidden (the store's own buckets), Unprocessable
    (`source_not_found`, `source_not_readable`, `missing_checksum`, `invalid_checksum`),
    ConflictError (other content, or other content pending), QuotaExceeded.
    """
    (result,) = start_tasks(stores, [new], author, prefixes=prefixes, request_id=request_id)
    if isinstance(result, DomainError):
        raise result
    return result


def start_tasks(
    stores: Stores,
    new: Sequence[IngestRequest],
    author: str,
    *,
    prefixes: tuple[str, ...] = (METADATA_PREFIX,),
    request_id: str = "",
) -> list[AcceptedIngest | DomainError]:
    """Start tasks of distinct versions; the result of an invalid one is the error.

    The errors are those of `start_task`.
    """

    @cache
    def find_owner(area: str) -> str:
        try:
            return areas.find(stores, area).owner
        except NotFoundError as error:
            raise Unprocessable(error.detail, code="source_not_found") from error

    def check_source(request: IngestRequest) -> IngestTaskRow | DomainError:
        try:
            url = _normalize_source_url(stores, request.source_url, author, find_owner)
            info = stores.sources.open(url).head()
            return _make_task(replace(request, source_url=url), info, author, prefixes)
        except DomainError as error:
            return error

    # In threads of this request, so that slow sources delay no other request.
    checked = run_in_own_threads(check_source, new, threads=SOURCE_CHECK_THREADS)
    tasks = {row.fqid: row for row in checked if isinstance(row, IngestTaskRow)}
    results: dict[FQID, AcceptedIngest | DomainError] = {}
    if tasks:
        with stores.catalog.write() as tx:
            results = _open_tasks(tx, stores, tasks, request_id)
    return [results[row.fqid] if isinstance(row, IngestTaskRow) else row for row in checked]


def _normalize_source_url(
    stores: Stores, url: str, author: str, find_owner: Callable[[str], str]
) -> str:
    """Return the URL that workers use, whatever host an area was addressed by.

    Raise Forbidden for the store's own buckets and for areas of other owners.
    """
    if stores.sources.is_own_bucket(url):
        raise Forbidden("The store's own buckets cannot be a source.")
    key = stores.sources.resolve_area_key(url)
    file = None if key is None else keys.parse_area_file(key)
    if file is not None and find_owner(file[0]) != author:
        raise Forbidden("This area belongs to another user.")
    return url if key is None else stores.areas.direct_url(key)


def _make_task(
    new: IngestRequest, info: BlobInfo, author: str, prefixes: tuple[str, ...]
) -> IngestTaskRow:
    declared = checksums.parse_declared(info.metadata, prefixes)
    content_type = info.content_type or DEFAULT_CONTENT_TYPE
    # It must fit into a header; sources may declare any text.
    is_valid = content_type.isascii() and content_type.isprintable()
    if not is_valid or len(content_type) > MAX_CONTENT_TYPE:
        raise Invalid(
            "The source's content type is not printable ASCII of at most"
            f" {MAX_CONTENT_TYPE} characters.",
            errors={"/source_url": ["Its content type cannot be used."]},
        )
    return IngestTaskRow(
        id=formats.new_uuid(),
        fqid=new.fqid,
        replica=new.replica,
        state="PENDING",
        digest=records.file_digest(new.creator_uid, content_type, info.size, declared),
        source_url=new.source_url,
        pin=info.pin,
        size=info.size,
        content_type=content_type,
        creator_uid=new.creator_uid,
        author=author,
        declared=declared,
        bytes_done=0,
        cause=None,
        created_us=0,
    )


def _open_tasks(
    tx: Tx, stores: Stores, tasks: Mapping[FQID, IngestTaskRow], request_id: str
) -> dict[FQID, AcceptedIngest | DomainError]:
    """Open a task for each version that neither exists nor is being verified, within the quota.

    All tasks are of one author.
    """
    versions.lock_heads(tx, files.KIND, [fqid.uuid for fqid in tasks])
    results = _find_existing(tx, tasks)
    results |= _join_open_tasks(
        tx, {fqid: row for fqid, row in tasks.items() if fqid not in results}
    )
    new = [row for fqid, row in tasks.items() if fqid not in results]
    if stores.quotas is not None and new:
        errors = quotas.reserve_amounts(
            tx, stores, new[0].author, [Amount(row.size, 1) for row in new]
        )
        results |= {
            row.fqid: error for row, error in zip(new, errors, strict=True) if error is not None
        }
        new = [row for row in new if row.fqid not in results]
    ingest.insert_all(tx, new)
    follow = {row.fqid: _verify_job(row) for row in new}
    catalog_jobs.insert(tx, follow.values(), request_id=request_id)
    return results | {
        row.fqid: AcceptedIngest(row.fqid, row.id, (follow[row.fqid],)) for row in new
    }


def claim_task(
    stores: Stores, new: IngestRequest, info: BlobInfo, author: str, *, lease_s: float
) -> JobClaim | None:
    """Record a task of a source whose `info` declares the checksums, and claim its job at once.

    No worker runs the job before the lease ends. None if the file is stored already; errors as in
    `start_task`. An open task of the same content is taken over from the process that had it.
    """
    # Keys of objects come from it.
    if formats.parse_fqids([new.fqid.uuid], [new.fqid.version]) != [new.fqid]:
        raise Invalid(f"'{str(new.fqid)[:100]}' is not a uuid and version in normal spelling.")
    row = _make_task(new, info, author, (METADATA_PREFIX,))
    with stores.catalog.write() as tx:
        accepted = _open_tasks(tx, stores, {row.fqid: row}, "import")[row.fqid]
        if isinstance(accepted, DomainError):
            raise accepted
        if accepted.task_id is None:
            return None
        job = _verify_job(replace(row, id=accepted.task_id))
        catalog_jobs.insert(tx, [job], request_id="import")
        claim = catalog_jobs.claim(
            tx, job, token=formats.new_uuid(), lease_s=lease_s, max_claims=MAX_SOURCE_ATTEMPTS
        )
        if claim is None:
            raise Unavailable("The store takes no work until `python -m ops reconcile` has run.")
    return claim


def _find_existing(
    tx: Tx, tasks: Mapping[FQID, IngestTaskRow]
) -> dict[FQID, AcceptedIngest | DomainError]:
    """Return the results of versions that exist: success for equal content, else a conflict."""
    results: dict[FQID, AcceptedIngest | DomainError] = {}
    for row in file_rows.find_all(tx, list(tasks)):
        fqid = row.fqid
        if row.digest != tasks[fqid].digest:
            results[fqid] = ConflictError(
                f"File {fqid} exists with other content.", code=_EXISTS_CODE
            )
        elif row.published:
            results[fqid] = AcceptedIngest(fqid, None)
    for fqid in purges.filter_purged(tx, files.KIND, list(tasks)):
        results[fqid] = ConflictError(f"File {fqid} was purged.", code=_EXISTS_CODE)
    return results


def _join_open_tasks(
    tx: Tx, tasks: Mapping[FQID, IngestTaskRow]
) -> dict[FQID, AcceptedIngest | DomainError]:
    """Join open tasks for equal content, and retry dead ones; other content is a conflict."""
    results: dict[FQID, AcceptedIngest | DomainError] = {}
    for current in ingest.list_open(tx, list(tasks)):
        if current.digest == tasks[current.fqid].digest:
            job = _verify_job(current)
            follow = (job,) if catalog_jobs.revive(tx, job) else ()
            results[current.fqid] = AcceptedIngest(current.fqid, current.id, jobs=follow)
        else:
            results[current.fqid] = ConflictError(
                f"Other content of file {current.fqid} is being verified.",
                code="file_pending",
                retry_after_s=PENDING_RETRY_S,
            )
    return results


def _verify_job(task: IngestTaskRow) -> Job:
    step = flow.Step.VERIFY_LARGE if task.size >= flow.LARGE_BYTES else flow.Step.VERIFY
    return Job(step, task.replica, task.id)


def get_task(stores: Stores, ident: str) -> IngestTask:
    """Return a task by id; raise NotFoundError."""
    with stores.catalog.read() as tx:
        row = ingest.find(tx, ident)
        if row is None:
            raise NotFoundError(f"There is no task {ident}.")
        is_running = row.state == "PENDING" and catalog_jobs.is_claimed(tx, _verify_job(row))
        state = "RUNNING" if is_running else row.state
    return IngestTask(row.id, row.fqid, row.replica, state, row.size, row.bytes_done, row.cause)


def verify(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Verify, store and publish the file of one task; running it again is safe."""
    row = stores.catalog.run_query(lambda tx: ingest.find(tx, claim.job.ref))
    if row is None or row.state in ("SUCCEEDED", "FAILED"):
        with stores.catalog.write() as tx:
            catalog_jobs.finish(tx, claim)
        return ()
    try:
        stored = _find_stored_blobs(stores, row.replica, [row])
        computed = _verify_and_store(stores, row, stored, heartbeat)
        return _publish_file(stores, row, computed, claim)
    except VerificationFailed as error:
        _fail_task(stores, row, error.cause, claim)
        return ()
    except SourceUnreachable as error:
        if claim.attempts < MAX_SOURCE_ATTEMPTS:
            raise
        _fail_task(stores, row, _error_cause(error), claim)
        return ()


def _find_stored_blobs(stores: Stores, replica: Replica, rows: Sequence[IngestTaskRow]) -> set[str]:
    """Return the SHA-256 of blobs that the replica should have; revive condemned ones."""
    sums = [row.declared.sha256 for row in rows]
    garbage_collection.revive_blobs(stores, replica, sums)
    with stores.catalog.read() as tx:
        return file_rows.filter_stored_checksums(tx, replica, sums)


def _verify_and_store(
    stores: Stores, row: IngestTaskRow, stored: Set[str], heartbeat: Heartbeat
) -> ComputedChecksums:
    """Store the source's bytes in the replica's bucket and return their checksums."""
    try:
        source = stores.sources.open(row.source_url)
    except Invalid as error:
        # Another program's source, whose run has ended: no worker can open it.
        raise VerificationFailed(_error_cause(error)) from error
    try:
        return _store_verified(stores, row, source, stored, heartbeat)
    except (SourceChanged, Unprocessable, Forbidden) as error:
        raise VerificationFailed(_error_cause(error)) from error


def _error_cause(error: DomainError) -> dict[str, Any]:
    return {"code": error.code, "detail": error.detail}


def _store_verified(
    stores: Stores, row: IngestTaskRow, source: SourceObject, stored: Set[str], heartbeat: Heartbeat
) -> ComputedChecksums:
    """Verify the source against its declaration, and store its bytes unless they are there.

    The key alone decides whether a stored blob is intact; a refused file changes nothing. The
    caller has revived the blob, in case it was condemned.
    """
    blobs, sha256 = stores.replicas[row.replica], row.declared.sha256
    key = keys.blob_key(sha256)
    # A small blob is put without a check first: the put itself finds an existing one.
    is_new = row.size <= SMALL_BYTES and sha256 not in stored
    condition = "absent" if is_new else copies.inspect_blob(blobs, key, sha256, heartbeat)
    if condition != "intact" and row.size > INLINE_BYTES:
        return _store_large(stores, row, source, condition, heartbeat)
    blocks = _read_source(stores, row, source, heartbeat)
    if condition == "intact":
        return _check_declared(row, checksums.compute_checksums(blocks, row.size))
    hasher = ChecksumHasher(row.size)
    data = b"".join(hasher.hash_blocks(blocks))
    computed = _check_declared(row, hasher.result())
    copies.store_bytes(blobs, key, data, sha256=sha256, heartbeat=heartbeat)
    return computed


def _read_source(
    stores: Stores, row: IngestTaskRow, source: SourceObject, heartbeat: Heartbeat
) -> Iterator[bytes]:
    """Yield the source's bytes.

    An unreachable bucket of the user fails the task in the end. The upload areas' bucket is ours:
    the job waits for it.
    """
    try:
        for block in source.read(row.pin):
            heartbeat(len(block))
            yield block
    except Unavailable as error:
        if stores.sources.resolve_area_key(row.source_url) is not None:
            raise
        raise SourceUnreachable(error.detail) from error


def _check_declared(row: IngestTaskRow, computed: ComputedChecksums) -> ComputedChecksums:
    wrong = checksums.find_mismatches(row.declared, computed)
    if wrong:
        field, declared, actual = wrong[0]
        detail = f"{field} was declared as {declared} but is {actual}."
        values = {"field": field, "declared": declared, "computed": actual}
        raise VerificationFailed({"code": "checksum_mismatch", "detail": detail, **values})
    return computed


def _store_large(
    stores: Stores,
    row: IngestTaskRow,
    source: SourceObject,
    condition: copies.BlobCondition,
    heartbeat: Heartbeat,
) -> ComputedChecksums:
    blobs, sha256 = stores.replicas[row.replica], row.declared.sha256
    key = keys.blob_key(sha256)
    part_size = checksums.part_size(row.size)
    upload = blobs.upload(key, part_size=part_size, content_type=DEFAULT_CONTENT_TYPE)
    with stores.catalog.write() as tx:
        ingest.insert_upload(tx, row.replica, key, upload.token)
    hasher = ChecksumHasher(row.size)

    def record_progress(number: int) -> None:
        with stores.catalog.write() as tx:
            ingest.touch_upload(tx, row.replica, key, upload.token)
            ingest.record_progress(tx, row.id, min(number * part_size, row.size))

    try:
        blocks = hasher.hash_blocks(_read_source(stores, row, source, heartbeat))
        upload_parts(upload, blocks, part_size, stored=record_progress)
        computed = _check_declared(row, hasher.result())
        copies.complete_upload(
            blobs, key, upload, sha256=sha256, found=condition, heartbeat=heartbeat
        )
    except BaseException:
        upload.abort()
        raise
    finally:
        with stores.catalog.write() as tx:
            ingest.delete_upload(tx, row.replica, key, upload.token)
    return computed


def _publish_file(
    stores: Stores, row: IngestTaskRow, computed: ComputedChecksums, claim: JobClaim
) -> tuple[Job, ...]:
    """Reserve the version, put its record, then publish it."""
    reserved = _reserve_files(stores, [row], {row.id: computed}).get(row.id)
    if reserved is None or reserved.digest != row.digest:
        # Without a row, the version was published and purged since this worker lost its claim.
        problem = "was purged" if reserved is None else "exists with other content"
        error = ConflictError(f"File {row.fqid} {problem}.", code=_EXISTS_CODE)
        raise VerificationFailed(_error_cause(error))
    files.put_origin_record(stores, reserved)
    return _publish_reserved(stores, {row.id: reserved}, {row.id: claim})[claim.job]


def verify_batch(stores: Stores, claims: Sequence[JobClaim], heartbeat: Heartbeat) -> CompletedJobs:
    """Verify several small files, and reserve and publish the successful ones together."""
    claimed = {claim.job.ref: claim for claim in claims}
    with stores.catalog.read() as tx:
        open_tasks = [
            row for row in ingest.find_all(tx, list(claimed)) if row.state in ("PENDING", "RUNNING")
        ]
    # Each version has at most one open task, so the tasks are of distinct versions.
    by_id = {row.id: row for row in open_tasks}
    if len(by_id) < 2:
        return {}
    replica = open_tasks[0].replica
    stored = _find_stored_blobs(stores, replica, open_tasks)
    return run_in_groups(
        lambda ident: _verify_and_store(stores, by_id[ident], stored, heartbeat),
        by_id,
        lambda computed: _publish_files(stores, by_id, computed, claimed),
        step=flow.Step.VERIFY,
        replica=replica,
        parallel=stores.copy_parallel,
    )


def _publish_files(
    stores: Stores,
    rows: Mapping[str, IngestTaskRow],
    computed: Mapping[str, ComputedChecksums],
    claimed: Mapping[str, JobClaim],
) -> CompletedJobs:
    """Reserve files whose bytes are stored, put their records and publish them."""
    versions = _reserve_files(stores, [rows[ident] for ident in computed], computed)
    # Those with other content fail by themselves, with their error.
    reserved = {
        ident: file for ident, file in versions.items() if file.digest == rows[ident].digest
    }
    stored = run_each(
        lambda ident: files.put_origin_record(stores, reserved[ident]),
        reserved,
        step=flow.Step.VERIFY,
        replica=next(iter(rows.values())).replica,
        parallel=stores.copy_parallel,
    )
    if not stored:
        return {}
    return _publish_reserved(stores, {ident: reserved[ident] for ident in stored}, claimed)


def _reserve_files(
    stores: Stores, rows: Sequence[IngestTaskRow], computed: Mapping[str, ComputedChecksums]
) -> dict[str, FileVersion]:
    """Reserve versions that are not purged, or return their existing rows, by task id."""
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, files.KIND, [row.fqid.uuid for row in rows])
        purged = purges.filter_purged(tx, files.KIND, [row.fqid for row in rows])
        open_tasks = {row.fqid: row for row in rows if row.fqid not in purged}
        new = [_make_new_file(row, computed[row.id]) for row in open_tasks.values()]
        reserved = file_rows.reserve_all(tx, new) if new else []
    return {open_tasks[row.fqid].id: row for row in reserved}


def _publish_reserved(
    stores: Stores, reserved: Mapping[str, FileVersion], claimed: Mapping[str, JobClaim]
) -> CompletedJobs:
    """Publish files whose records are stored, and complete their tasks and jobs."""
    with stores.catalog.write() as tx:
        published = files.publish_all(tx, list(reserved.values()))
        ingest.finish_all(tx, list(reserved))
        catalog_jobs.finish_all(tx, [claimed[ident] for ident in reserved])
        follow = {ident: published.get(row.fqid, ()) for ident, row in reserved.items()}
        jobs = [(job, claimed[ident].request_id) for ident in follow for job in follow[ident]]
        catalog_jobs.insert_each(tx, jobs)
    stores.pubsub.publish(
        *map(flow.task_topic, reserved),
        *(flow.file_topic(row.origin, row.fqid) for row in reserved.values()),
    )
    return {claimed[ident].job: jobs for ident, jobs in follow.items()}


def _make_new_file(row: IngestTaskRow, computed: ComputedChecksums) -> file_rows.NewFileVersion:
    return file_rows.NewFileVersion(
        fqid=row.fqid,
        digest=row.digest,
        origin=row.replica,
        creator_uid=row.creator_uid,
        author=row.author,
        content_type=row.content_type,
        size=computed.size,
        checksums=row.declared,
        blob_etag=computed.checksums.s3_etag,
        event_id=row.id,
    )


def _fail_task(
    stores: Stores, row: IngestTaskRow, cause: Mapping[str, Any], claim: JobClaim
) -> None:
    with stores.catalog.write() as tx:
        ingest.finish(tx, row.id, state="FAILED", cause=cause)
        catalog_jobs.finish(tx, claim)
        quotas.count_change(tx, stores, {row.author: Amount(-row.size, -1)})
    # Wake requests that wait for the file to write a bundle.
    topics = (flow.file_topic(replica, row.fqid) for replica in REPLICAS)
    stores.pubsub.publish(flow.task_topic(row.id), *topics)
