"""Taking a staged file in: validate and record a task; then verify its bytes and keep them.

Verification reads the source once, keeps the very buffers that it hashed, and lets nothing of a
file be seen, or left behind, whose checksums are not all as declared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from pipelines import flow, formats, topics
from pipelines.batches import Completed, run_apart, run_each, run_in_groups
from pipelines.depositing import areas, files
from pipelines.keeping import blob_life, checksums, records, repair
from pipelines.keeping.checksums import PREFIX, Hashed, Hashing
from pipelines.keeping.copying import INLINE, Beat, fill
from pipelines.limits import PENDING_RETRY_S
from storage import keys
from storage.catalog import Tx, heads, purges, tasks, todo
from storage.catalog import files as file_rows
from storage.catalog import uploads as upload_rows
from storage.catalog.tasks import TaskRow
from storage.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    SourceChanged,
    StoreError,
    Unavailable,
    Unprocessable,
)
from storage.model import FQID, REPLICAS, Claim, Replica, Todo
from storage.protocols import DEFAULT_TYPE, BlobInfo, BlobStore, Source, Upload
from storage.stores import Stores

MAX_TYPE = 1024
_EXISTS = "file_already_exists"
SMALL = 1024 * 1024
"""Bytes that cost less to send in vain than a request that asks whether they are stored."""
LOOKS = 8
"""Sources that one request looks at side by side."""
SOURCE_ATTEMPTS = 4
"""Verifications that may find the source away; with the step's pauses that is ten minutes."""


@dataclass(frozen=True, slots=True)
class Deposit:
    """A file as its depositor describes it."""

    fqid: FQID
    replica: Replica
    source_url: str
    creator_uid: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The task that takes it in, ours or one that was open; none when it is stored already."""

    fqid: FQID
    task_id: str | None
    todo: tuple[Todo, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether this deposit began it, and did not join another's."""
        return bool(self.todo)


@dataclass(frozen=True, slots=True)
class Task:
    """How far a task is: PENDING, RUNNING, SUCCEEDED or FAILED with its cause."""

    id: str
    fqid: FQID
    replica: Replica
    state: str
    size: int
    bytes_done: int
    cause: Mapping[str, Any] | None


class SourceAway(StoreError):
    """The source cannot be reached; tried again a few times, then told to its depositor."""

    code = "source_not_readable"


class Mismatch(Exception):
    """The bytes are not what was declared."""

    def __init__(self, cause: Mapping[str, Any]) -> None:
        super().__init__(str(cause["detail"]))
        self.cause = cause


def deposit(
    stores: Stores,
    new: Deposit,
    author: str,
    *,
    prefixes: tuple[str, ...] = (PREFIX,),
    request_id: str = "",
) -> Accepted:
    """Check what can be checked without reading the bytes, and record a task for the rest.

    Invalid (scheme, content type), Forbidden (the store's own buckets), Unprocessable
    (`source_not_found`, `source_not_readable`, `missing_checksum`, `invalid_checksum`), Conflict
    (other content, or other content pending).
    """
    found = deposit_all(stores, [new], author, prefixes=prefixes, request_id=request_id)[0]
    if isinstance(found, StoreError):
        raise found
    return found


def deposit_all(
    stores: Stores,
    new: Sequence[Deposit],
    author: str,
    *,
    prefixes: tuple[str, ...] = (PREFIX,),
    request_id: str = "",
) -> list[Accepted | StoreError]:
    """The same for several versions, none of them twice: in the place of each that cannot be taken
    in, the error that `deposit` raises."""
    owner_of = cache(partial(_owner_of, stores))

    def look(one: Deposit) -> TaskRow | StoreError:
        try:
            named = replace(one, source_url=_own_spelling(stores, one.source_url, author, owner_of))
            info = stores.sources.open(named.source_url).head()
            return _described(named, info, author, prefixes)
        except StoreError as error:
            return error

    # Threads of its own: sources that answer late hold no other request up.
    looked = run_apart(look, new, threads=LOOKS)
    wanted = {row.fqid: row for row in looked if isinstance(row, TaskRow)}
    recorded = _recorded(stores, wanted, request_id) if wanted else {}
    return [recorded[row.fqid] if isinstance(row, TaskRow) else row for row in looked]


def _own_spelling(stores: Stores, url: str, author: str, owner_of: Callable[[str], str]) -> str:
    """The URL as workers know it, whatever host an area was addressed by. Forbidden: neither the
    store's own buckets nor another owner's area may be read through us."""
    if stores.sources.own(url):
        raise Forbidden("The store's own buckets cannot be a source.")
    key = stores.sources.area_key(url)
    named = None if key is None else keys.parse_area_file(key)
    if named is not None and owner_of(named[0]) != author:
        raise Forbidden("This area is another owner's.")
    return url if key is None else stores.areas.direct_url(key)


def _owner_of(stores: Stores, area: str) -> str:
    try:
        return areas.find(stores, area).owner
    except NotFound as error:
        raise Unprocessable(error.detail, code="source_not_found") from error


def _described(new: Deposit, info: BlobInfo, author: str, prefixes: tuple[str, ...]) -> TaskRow:
    declared = checksums.parse_declared(info.metadata, prefixes)
    content_type = _usable(info.content_type or DEFAULT_TYPE)
    return TaskRow(
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


def _usable(content_type: str) -> str:
    """A content type that can be told in a header: sources of all kinds carry any text at all."""
    fits = content_type.isascii() and content_type.isprintable()
    if not fits or len(content_type) > MAX_TYPE:
        raise Invalid(
            f"The source's content type is not printable ASCII of at most {MAX_TYPE} characters.",
            errors={"/source_url": ["Its content type cannot be used."]},
        )
    return content_type


def _recorded(
    stores: Stores, wanted: Mapping[FQID, TaskRow], request_id: str
) -> dict[FQID, Accepted | StoreError]:
    """Open a task for each version but those that exist, or are being verified."""
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [fqid.uuid for fqid in wanted])
        found = _settled(tx, wanted)
        found |= _joined(tx, {fqid: row for fqid, row in wanted.items() if fqid not in found})
        fresh = [row for fqid, row in wanted.items() if fqid not in found]
        tasks.start_all(tx, fresh)
        follow = {row.fqid: _verification(row) for row in fresh}
        todo.add(tx, follow.values(), request_id=request_id)
    return found | {row.fqid: Accepted(row.fqid, row.id, (follow[row.fqid],)) for row in fresh}


def _settled(tx: Tx, wanted: Mapping[FQID, TaskRow]) -> dict[FQID, Accepted | StoreError]:
    """Versions that exist: with this content that is success, with other a conflict."""
    found: dict[FQID, Accepted | StoreError] = {}
    for row in file_rows.by_fqids(tx, list(wanted)):
        fqid = row.file.fqid
        if row.digest != wanted[fqid].digest:
            found[fqid] = Conflict(f"File {fqid} exists with other content.", code=_EXISTS)
        elif row.published:
            found[fqid] = Accepted(fqid, None)
    for fqid in purges.among(tx, files.KIND, list(wanted)):
        found[fqid] = Conflict(f"File {fqid} was purged.", code=_EXISTS)
    return found


def _joined(tx: Tx, wanted: Mapping[FQID, TaskRow]) -> dict[FQID, Accepted | StoreError]:
    """An open task for this content serves both, tried afresh if it was put aside; one for other
    content forbids this one."""
    found: dict[FQID, Accepted | StoreError] = {}
    for current in tasks.open_among(tx, list(wanted)):
        if current.digest == wanted[current.fqid].digest:
            follow = tuple(row for row in (_verification(current),) if todo.resume(tx, row))
            found[current.fqid] = Accepted(current.fqid, current.id, todo=follow)
        else:
            found[current.fqid] = Conflict(
                f"Other content of file {current.fqid} is being verified.",
                code="file_pending",
                retry_after_s=PENDING_RETRY_S,
            )
    return found


def _verification(task: TaskRow) -> Todo:
    step = flow.Step.VERIFY_LARGE if task.size >= flow.LARGE else flow.Step.VERIFY
    return Todo(step, task.replica, task.id)


def task(stores: Stores, ident: str) -> Task:
    """A task by id; NotFound."""
    with stores.catalog.read() as tx:
        row = tasks.get(tx, ident)
        if row is None:
            raise NotFound(f"There is no task {ident}.")
        is_running = row.state == "PENDING" and todo.claimed(tx, _verification(row))
        state = "RUNNING" if is_running else row.state
    return Task(row.id, row.fqid, row.replica, state, row.size, row.bytes_done, row.cause)


def verify(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Take one task's file in, whole or not at all. Running again finds what is done already."""
    row = stores.catalog.ask(lambda tx: tasks.get(tx, claim.todo.ref))
    if row is None or row.state in ("SUCCEEDED", "FAILED"):
        with stores.catalog.write() as tx:
            todo.finish(tx, claim)
        return ()
    try:
        hashed = _take_in(stores, row, _known_bytes(stores, row.replica, [row]), beat)
        return _make_visible(stores, row, hashed, claim)
    except Mismatch as error:
        _fail(stores, row, error.cause, claim)
        return ()
    except SourceAway as error:
        if claim.attempts < SOURCE_ATTEMPTS:
            raise
        _fail(stores, row, _cause(error), claim)
        return ()


def _known_bytes(stores: Stores, replica: Replica, rows: Sequence[TaskRow]) -> set[str]:
    """Which of these the replica should hold already, by SHA-256; condemned ones live on."""
    sums = [row.declared.sha256 for row in rows]
    blob_life.revive_bytes(stores, replica, sums)
    with stores.catalog.read() as tx:
        return file_rows.bytes_present(tx, replica, sums)


def _take_in(stores: Stores, row: TaskRow, known: Set[str], beat: Beat) -> Hashed:
    """The source's bytes in the replica's bucket, with the checksums that they have."""
    source = stores.sources.open(row.source_url)
    try:
        return _kept(stores, row, source, known, beat)
    except (SourceChanged, Unprocessable, Forbidden) as error:
        raise Mismatch(_cause(error)) from error


def _cause(error: StoreError) -> dict[str, Any]:
    return {"code": error.code, "detail": error.detail}


def _kept(stores: Stores, row: TaskRow, source: Source, known: Set[str], beat: Beat) -> Hashed:
    """Verify the source against its declaration, and store its bytes unless they are there.

    What lies in the bucket is judged by its key alone; a deposit that is refused changes nothing.
    The caller has revived the bytes: they may have been condemned.
    """
    blobs, sha256 = stores.replicas[row.replica], row.declared.sha256
    # Small ones are put without asking first: that asks, too.
    is_new = row.size <= SMALL and sha256 not in known
    found = "absent" if is_new else repair.inspect_blob(blobs, keys.blob(sha256), sha256, beat)
    if found == "intact":
        return _compared(row, checksums.compute(_read(stores, row, source, beat), row.size))
    if row.size <= INLINE:
        return _kept_small(row, _read(stores, row, source, beat), blobs, beat)
    return _kept_large(stores, row, source, found, beat)


def _read(stores: Stores, row: TaskRow, source: Source, beat: Beat) -> Iterator[bytes]:
    """The source's bytes, once. A depositor's bucket that stays away is their failure; an upload
    area that is away is ours, and is waited for like any other engine."""
    try:
        for block in source.read(row.pin):
            beat(len(block))
            yield block
    except Unavailable as error:
        if stores.sources.area_key(row.source_url) is not None:
            raise
        raise SourceAway(error.detail) from error


def _compared(row: TaskRow, hashed: Hashed) -> Hashed:
    wrong = checksums.mismatches(row.declared, hashed)
    if wrong:
        field, declared, computed = wrong[0]
        detail = f"{field} was declared as {declared} but is {computed}."
        said = {"field": field, "declared": declared, "computed": computed}
        raise Mismatch({"code": "checksum_mismatch", "detail": detail, **said})
    return hashed


def _kept_small(row: TaskRow, blocks: Iterator[bytes], blobs: BlobStore, beat: Beat) -> Hashed:
    hashing = Hashing(row.size)
    data = b"".join(hashing.over(blocks))
    hashed = _compared(row, hashing.result())
    sha256 = row.declared.sha256
    repair.store_bytes(blobs, keys.blob(sha256), data, sha256=sha256, heartbeat=beat)
    return hashed


def _kept_large(
    stores: Stores, row: TaskRow, source: Source, found: repair.Condition, beat: Beat
) -> Hashed:
    blobs, sha256 = stores.replicas[row.replica], row.declared.sha256
    key = keys.blob(sha256)
    part_size = checksums.part_size(row.size)
    upload = blobs.upload(key, part_size=part_size, content_type=DEFAULT_TYPE)
    with stores.catalog.write() as tx:
        upload_rows.opened(tx, row.replica, key, upload.token)
    hashing = Hashing(row.size)
    try:
        blocks = hashing.over(_read(stores, row, source, beat))
        fill(upload, blocks, part_size, stored=partial(_note, stores, row, upload, part_size))
        hashed = _compared(row, hashing.result())
        repair.complete_upload(blobs, key, upload, sha256=sha256, found=found, heartbeat=beat)
    except BaseException:
        upload.abort()
        raise
    finally:
        with stores.catalog.write() as tx:
            upload_rows.closed(tx, row.replica, key, upload.token)
    return hashed


def _note(stores: Stores, row: TaskRow, upload: Upload, part_size: int, number: int) -> None:
    """How far it is, and that it goes on."""
    with stores.catalog.write() as tx:
        upload_rows.touched(tx, row.replica, keys.blob(row.declared.sha256), upload.token)
        tasks.progress(tx, row.id, min(number * part_size, row.size))


def _make_visible(stores: Stores, row: TaskRow, hashed: Hashed, claim: Claim) -> tuple[Todo, ...]:
    """Reserve, put the record, publish."""
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [row.fqid.uuid])
        if purges.among(tx, files.KIND, [row.fqid]):
            # By a twin whose claim was lost for as long as a purge takes.
            raise Mismatch(_cause(Conflict(f"File {row.fqid} was purged.", code=_EXISTS)))
        reserved = file_rows.reserve(tx, _new_file(row, hashed))
    if reserved.digest != row.digest:
        other = Conflict(f"File {row.fqid} exists with other content.", code=_EXISTS)
        raise Mismatch(_cause(other))
    files.complete(stores, reserved)
    with stores.catalog.write() as tx:
        follow = files.publish(tx, reserved)
        tasks.finish(tx, row.id, state="SUCCEEDED")
        todo.finish(tx, claim)
        todo.add(tx, follow, request_id=claim.request_id)
    stores.notices.publish(topics.of_task(row.id), topics.of_file(row.replica, row.fqid))
    return follow


def verify_batch(stores: Stores, claims: Sequence[Claim], beat: Beat) -> Completed:
    """Verify several small files; those that go well are reserved, and published, together."""
    claimed = {claim.todo.ref: claim for claim in claims}
    with stores.catalog.read() as tx:
        open_tasks = [
            row for row in tasks.among(tx, list(claimed)) if row.state in ("PENDING", "RUNNING")
        ]
    # A task is open for each version, so no two of them are about the same one.
    by_id = {row.id: row for row in open_tasks}
    if len(by_id) < 2:
        return {}
    replica = open_tasks[0].replica
    known = _known_bytes(stores, replica, open_tasks)
    return run_in_groups(
        lambda ident: _take_in(stores, by_id[ident], known, beat),
        by_id,
        lambda hashed: _make_all_visible(stores, by_id, hashed, claimed),
        step=flow.Step.VERIFY,
        replica=replica,
        parallel=stores.copy_parallel,
    )


def _make_all_visible(
    stores: Stores,
    rows: Mapping[str, TaskRow],
    hashed: Mapping[str, Hashed],
    claimed: Mapping[str, Claim],
) -> Completed:
    """Reserve files whose bytes are stored, put their records, publish; all by task."""
    reserved = _reserve_all(stores, {ident: rows[ident] for ident in hashed}, hashed)
    stored = run_each(
        lambda ident: files.complete(stores, reserved[ident]),
        reserved,
        step=flow.Step.VERIFY,
        replica=next(iter(rows.values())).replica,
        parallel=stores.copy_parallel,
    )
    if not stored:
        return {}
    return _publish_all(stores, {ident: reserved[ident] for ident in stored}, claimed)


def _reserve_all(
    stores: Stores, rows: Mapping[str, TaskRow], hashed: Mapping[str, Hashed]
) -> dict[str, file_rows.Reserved]:
    """Reserve versions by task, but those that are purged or have other content."""
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [row.fqid.uuid for row in rows.values()])
        purged = purges.among(tx, files.KIND, [row.fqid for row in rows.values()])
        wanted = [ident for ident, row in rows.items() if row.fqid not in purged]
        new = [_new_file(rows[ident], hashed[ident]) for ident in wanted]
        found = {row.file.fqid: row for row in file_rows.reserve_all(tx, new)}
    reserved = {ident: found[rows[ident].fqid] for ident in wanted}
    return {ident: row for ident, row in reserved.items() if row.digest == rows[ident].digest}


def _publish_all(
    stores: Stores, reserved: Mapping[str, file_rows.Reserved], claimed: Mapping[str, Claim]
) -> Completed:
    """Publish files whose records are stored, and complete their tasks and jobs."""
    with stores.catalog.write() as tx:
        published = files.publish_all(tx, list(reserved.values()))
        tasks.succeed_all(tx, list(reserved))
        todo.finish_all(tx, [claimed[ident] for ident in reserved])
        follow = {ident: published.get(row.file.fqid, ()) for ident, row in reserved.items()}
        jobs = [(job, claimed[ident].request_id) for ident in follow for job in follow[ident]]
        todo.add_each(tx, jobs)
    stores.notices.publish(
        *map(topics.of_task, reserved),
        *(topics.of_file(row.file.origin, row.file.fqid) for row in reserved.values()),
    )
    return {claimed[ident].todo: jobs for ident, jobs in follow.items()}


def _new_file(row: TaskRow, hashed: Hashed) -> file_rows.NewFile:
    return file_rows.NewFile(
        fqid=row.fqid,
        digest=row.digest,
        origin=row.replica,
        creator_uid=row.creator_uid,
        author=row.author,
        content_type=row.content_type,
        size=hashed.size,
        checksums=row.declared,
        blob_etag=hashed.checksums.s3_etag,
        event_id=row.id,
    )


def _fail(stores: Stores, row: TaskRow, cause: Mapping[str, Any], claim: Claim) -> None:
    with stores.catalog.write() as tx:
        tasks.finish(tx, row.id, state="FAILED", cause=cause)
        todo.finish(tx, claim)
    # A bundle that waits for the file, wherever it does, need not wait any longer.
    waited = (topics.of_file(replica, row.fqid) for replica in REPLICAS)
    stores.notices.publish(topics.of_task(row.id), *waited)
