"""Files of an upload area: register, list, checksum and validate them.

The bucket decides which files exist; the catalog has what was found out about them. Each
registration starts another generation of the file's row. A check writes its result only for the
generation it began with and for the bytes it read, so checks may repeat, stop early or overlap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock
from typing import Any

from pipelines import quotas
from pipelines.checksums import METADATA_PREFIX, ChecksumHasher, ComputedChecksums
from pipelines.documents import MAX_FILE_BYTES, UnreadableMetadata, parse_metadata
from pipelines.flow import LARGE_BYTES, Heartbeat, Step, area_topic
from storage import keys
from storage.catalog import Tx, areas, jobs
from storage.catalog.areas import PENDING_STATUSES, Area, AreaFile
from storage.catalog.quotas import NO_AMOUNT, Amount, delete_reservation
from storage.errors import (
    ConflictError,
    DamagedObjectError,
    Invalid,
    NotFoundError,
    QuotaExceeded,
    SourceChanged,
)
from storage.model import CHECKSUM_NAMES, REPLICAS, Checksums, Job, JobClaim
from storage.protocols import DEFAULT_CONTENT_TYPE, BlobInfo
from storage.stores import Stores

UNSCHEDULED = "UNSCHEDULED"
CHECKSUM_STATUSES = (UNSCHEDULED, "SCHEDULED", "CHECKSUMMING", "CHECKSUMMED", "FAILED")
VALIDATION_STATUSES = (UNSCHEDULED, "VALIDATING", "VALIDATED", "INVALID")


@dataclass(frozen=True, slots=True)
class RegisteredUpload:
    """The checksum status of a registered file, and the jobs to send for it."""

    status: str
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True)
class AreaFileInfo:
    """A file in an area; what is not computed yet is None."""

    name: str
    key: str
    size: int
    content_type: str | None
    status: str
    validation: str
    checksums: Checksums | None = None
    cause: str | None = None


def checksum_metadata(sums: Checksums) -> dict[str, str]:
    """Return the object metadata that declares these checksums."""
    return {METADATA_PREFIX + field: getattr(sums, field) for field in CHECKSUM_NAMES}


def is_json_file(name: str, content_type: str) -> bool:
    """Return whether a file has to be well-formed JSON."""
    kind = content_type.strip().lower()
    return name.lower().endswith(".json") or kind.startswith("application/json")


def checksum_job(file: AreaFile) -> Job:
    """Return the job that computes a file's checksums."""
    step = Step.AREA_CHECKSUM_LARGE if file.size >= LARGE_BYTES else Step.AREA_CHECKSUM
    return Job(step, REPLICAS[0], f"{file.area}/{file.name}")


@dataclass(frozen=True, slots=True)
class UploadedAreaFile:
    """A file that was uploaded through the API, and its generation before the upload."""

    file: AreaFile
    previous: int


def record_uploads(
    stores: Stores,
    uuid: str,
    uploads: Sequence[UploadedAreaFile],
    *,
    reservation: str | None = None,
    request_id: str = "",
) -> list[tuple[Job, ...]]:
    """Record files that were uploaded through the API, and return the jobs that check each.

    The `reservation` of their room is replaced by what they take. If another upload of a
    name came in between, the stored bytes are read again. Raise ConflictError or NotFoundError if
    the area is gone, and QuotaExceeded if there is no room for more than was reserved; then the
    objects are deleted.
    """
    files = [one.file for one in uploads]
    try:
        with stores.catalog.write() as tx:
            area = areas.find(tx, uuid, lock="shared")
            if area is not None and _accepts_uploads(area):
                _count_files(tx, stores, area, files, reservation=reservation)
                # In the order of names, so that two requests with the same names wait for each
                # other.
                follow = {
                    one.file.name: _record_upload(tx, one)
                    for one in sorted(uploads, key=lambda one: one.file.name)
                }
                added = [job for each in follow.values() for job in each]
                jobs.insert(tx, added, request_id=request_id)
                return [follow[one.file.name] for one in uploads]
    except QuotaExceeded:
        for file in files:
            _delete_object(stores, file)
        raise
    raise [_remove_late_upload(stores, area, file) for file in files][-1]


def _record_upload(tx: Tx, upload: UploadedAreaFile) -> tuple[Job, ...]:
    file = upload.file
    generation = areas.upsert_file(tx, file)
    is_next = generation == upload.previous + 1
    if not is_next:
        scheduled = replace(
            file,
            generation=generation,
            status="SCHEDULED",
            validation="VALIDATING",
            checksums=None,
            cause=None,
        )
        areas.update_file(tx, scheduled)
    is_checked = is_next and file.validation == "VALIDATED"
    return () if is_checked else (checksum_job(file),)


def _count_files(
    tx: Tx,
    stores: Stores,
    area: Area,
    files: Sequence[AreaFile],
    *,
    reservation: str | None = None,
    upload_id: str = "",
) -> None:
    """Count what files add to an area, less their reservation, before they are upserted.

    Raise QuotaExceeded if there is no room, unless the row of an upload in parts still reserves it:
    the transaction that deletes that row gives the reservation back.
    """
    if stores.quotas is None:
        return
    reserved = NO_AMOUNT if reservation is None else delete_reservation(tx, reservation)
    # Locks the counters first, so that no other upload changes these sizes meanwhile, and the
    # reservation is not given back.
    quotas.count_change(tx, stores, {area.owner: NO_AMOUNT})
    sizes = areas.find_sizes(tx, area.uuid, [file.name for file in files])
    size = sum(file.size - sizes.get(file.name, 0) for file in files)
    change = Amount(size, len(files) - len(sizes)) - reserved
    if upload_id and areas.find_upload(tx, upload_id):
        quotas.count_change(tx, stores, {area.owner: change})
    else:
        quotas.reserve_room(tx, stores, area.owner, change)


def _accepts_uploads(area: Area) -> bool:
    """Return whether a file may still be recorded: an upload may outlast the lock of an area."""
    return area.state in ("UNLOCKED", "LOCKED")


def _remove_late_upload(
    stores: Stores, area: Area | None, file: AreaFile
) -> ConflictError | NotFoundError:
    """Delete an object that was uploaded to a removed area, and return the error."""
    _delete_object(stores, file)
    if area is not None and area.state == "DELETING":
        return ConflictError(f"Area {file.area} is {area.state}.", code="area_locked")
    return NotFoundError(f"There is no area {file.area}.")


def _delete_object(stores: Stores, file: AreaFile) -> None:
    """Delete the object of a file, unless it was replaced."""
    with suppress(SourceChanged, NotFoundError):
        stores.areas.delete(keys.area_file_key(file.area, file.name), pin=file.pin)


def register_upload(
    stores: Stores,
    uuid: str,
    name: str,
    declared: Mapping[str, Any] | None = None,
    *,
    is_declared: Callable[[BlobInfo], bool] = lambda _: True,
    upload_id: str = "",
    request_id: str = "",
) -> RegisteredUpload:
    """Schedule the check of a file that was uploaded directly to the bucket.

    `declared` has the uploader's `size`, `content_type` and `checksums`; it is ignored unless
    `is_declared` accepts the stored object. Repeating it starts nothing new. The caller checked
    that the area is writable. Raise NotFoundError if there is no such object, and QuotaExceeded
    without room for it, unless the upload in parts `upload_id` still has room reserved for it.
    """
    info = _find_object(stores, uuid, name)
    file = AreaFile(
        area=uuid,
        name=name,
        pin=info.pin,
        size=info.size,
        content_type=info.content_type or DEFAULT_CONTENT_TYPE,
        status="SCHEDULED",
        validation="VALIDATING",
        declared=(declared if is_declared(info) else None) or None,
    )
    try:
        with stores.catalog.write() as tx:
            area = areas.find(tx, uuid, lock="shared")
            if area is not None and _accepts_uploads(area):
                row = areas.find_file(tx, uuid, name)
                is_same = row is not None and (row.pin, row.declared) == (file.pin, file.declared)
                if row is not None and is_same and row.status != "FAILED":
                    job = checksum_job(row)
                    return RegisteredUpload(row.status, (job,) if jobs.revive(tx, job) else ())
                _count_files(tx, stores, area, [file], upload_id=upload_id)
                areas.upsert_file(tx, file)
                jobs.insert(tx, (checksum_job(file),), request_id=request_id)
                return RegisteredUpload(file.status, (checksum_job(file),))
    except QuotaExceeded:
        if upload_id and is_declared(info):
            _delete_object(stores, file)
        raise
    raise _remove_late_upload(stores, area, file)


def _find_object(stores: Stores, uuid: str, name: str) -> BlobInfo:
    try:
        return stores.areas.head(keys.area_file_key(uuid, name))
    except NotFoundError as error:
        raise NotFoundError(f"There is no file {name} in area {uuid}.") from error


def get_file(stores: Stores, uuid: str, name: str) -> AreaFileInfo:
    """Return one file; raise NotFoundError."""
    info = _find_object(stores, uuid, name)
    with stores.catalog.read() as tx:
        row = areas.find_file(tx, uuid, name)
    if row is not None and row.status not in PENDING_STATUSES and row.pin != info.pin:
        row = None
    return _make_info(name, info, row)


def list_files(stores: Stores, uuid: str, after: str, limit: int) -> list[AreaFileInfo]:
    """Return at most `limit` files named after `after`, in byte order of their names."""
    prefix = keys.area_prefix(uuid)
    objects = stores.areas.list(prefix, after=prefix + after if after else "")
    infos = {info.key.removeprefix(prefix): info for info in islice(objects, limit)}
    if not infos:
        return []
    with stores.catalog.read() as tx:
        rows = areas.list_files_between(tx, uuid, after, max(infos, key=str.encode))
    return [_make_info(name, info, rows.get(name)) for name, info in infos.items()]


def _make_info(name: str, info: BlobInfo, row: AreaFile | None) -> AreaFileInfo:
    is_replaced = False
    if row is not None and row.status not in PENDING_STATUSES:
        # The pins of a listing and of a HEAD differ in kind in a versioned bucket; then only the
        # size counts.
        schemes = {pin[: pin.find(":") + 1] for pin in (row.pin, info.pin)}
        is_replaced = row.size != info.size or (len(schemes) == 1 and row.pin != info.pin)
    if row is None or is_replaced:
        kind = info.content_type
        return AreaFileInfo(name, info.key, info.size, kind, UNSCHEDULED, UNSCHEDULED)
    return AreaFileInfo(
        name=name,
        key=info.key,
        size=info.size,
        content_type=row.content_type,
        status=row.status,
        validation=row.validation,
        checksums=row.checksums,
        cause=row.cause,
    )


def count_files(stores: Stores, uuid: str, column: str) -> dict[str, int]:
    """Count registered files by `status` or by `validation`."""
    with stores.catalog.read() as tx:
        return areas.count_files(tx, uuid, column)


def summarize_files(stores: Stores, uuid: str) -> dict[str, tuple[int, int]]:
    """Return count and latest change (us) of registered files by validation state."""
    with stores.catalog.read() as tx:
        return areas.summarize_files(tx, uuid)


MAX_CHANGED_ATTEMPTS = 4
"""Attempts to read a file that is replaced during the read."""
SERIAL_PARSE_BYTES = 1024 * 1024
"""Size from which a process parses one JSON file at a time, to bound its memory."""
PARSE_LOCK = Lock()
"""Held while a large JSON file is parsed."""
PARSE_WAIT_S = 1.0


def check_file(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Read a file, and record its checksums and whether it is valid."""
    row = _start_check(stores, claim)
    if row is None:
        return ()
    result = _check_content(stores, row, claim, heartbeat)
    with stores.catalog.write() as tx:
        # Does nothing if there is a later generation, which has its own job.
        areas.update_file(tx, result)
        jobs.finish(tx, claim)
    stores.pubsub.publish(area_topic(row.area))
    return ()


def _start_check(stores: Stores, claim: JobClaim) -> AreaFile | None:
    area, _, name = claim.job.ref.partition("/")
    with stores.catalog.write() as tx:
        row = areas.find_file(tx, area, name)
        if row is None or row.validation != "VALIDATING":
            jobs.finish(tx, claim)
            return None
        if row.status == "SCHEDULED":
            row = replace(row, status="CHECKSUMMING")
            areas.update_file(tx, row)
    return row


def _check_content(
    stores: Stores, row: AreaFile, claim: JobClaim, heartbeat: Heartbeat
) -> AreaFile:
    try:
        if row.status == "CHECKSUMMED":
            # Its checksums were computed during the upload.
            with suppress(SourceChanged):
                info = replace(_head_file(stores, row), pin=row.pin)
                fault = _check_json(info, _read_blocks(stores, info, heartbeat), heartbeat)
                return _set_validation(row, fault)
        return _hash_and_check(stores, row, heartbeat)
    except SourceChanged as error:
        if claim.attempts < MAX_CHANGED_ATTEMPTS:
            raise
        return _mark_failed(stores, row, error.detail)
    except NotFoundError:
        return _mark_failed(stores, row, "The file was deleted from the area.")
    except (DamagedObjectError, Invalid) as error:
        return _mark_failed(stores, row, error.detail)


def _mark_failed(stores: Stores, row: AreaFile, cause: str) -> AreaFile:
    """Return the failed row, for the bytes that are stored now if they can be read."""
    # A result for other bytes would never be shown.
    with suppress(NotFoundError, DamagedObjectError, Invalid):
        info = _head_file(stores, row)
        row = replace(row, pin=info.pin, size=info.size)
    return replace(row, status="FAILED", validation="INVALID", checksums=None, cause=cause)


def _hash_and_check(stores: Stores, row: AreaFile, heartbeat: Heartbeat) -> AreaFile:
    info = _head_file(stores, row)
    kind = info.content_type or DEFAULT_CONTENT_TYPE
    hasher = ChecksumHasher(info.size)
    is_json = is_json_file(row.name, kind)
    content: list[bytes] = []
    for block in hasher.hash_blocks(_read_blocks(stores, info, heartbeat)):
        if is_json and info.size <= MAX_FILE_BYTES:
            content.append(block)
    hashes = hasher.result()
    sums = hashes.checksums
    declared_etag = info.metadata.get(f"{METADATA_PREFIX}s3_etag", "").lower()
    if declared_etag and declared_etag == hashes.alternate_etag:
        sums = replace(sums, s3_etag=declared_etag)
    fault = _find_mismatch(row.declared or {}, info, kind, hashes)
    if fault is None:
        info = stores.areas.write_metadata(
            info.key,
            checksum_metadata(sums),
            pin=info.pin,
            progress=lambda _token, _done: heartbeat(0),
        )
        if is_json:
            text = b"".join(content)
            # One copy in memory, also while other threads parse theirs.
            content.clear()
            fault = _check_json(info, [text], heartbeat)
    row = replace(row, pin=info.pin, size=info.size, content_type=kind)
    return _set_validation(replace(row, status="CHECKSUMMED", checksums=sums), fault)


def _set_validation(row: AreaFile, fault: str | None) -> AreaFile:
    return replace(row, validation="INVALID" if fault else "VALIDATED", cause=fault)


def _head_file(stores: Stores, row: AreaFile) -> BlobInfo:
    return stores.areas.head(keys.area_file_key(row.area, row.name))


def _read_blocks(stores: Stores, info: BlobInfo, heartbeat: Heartbeat) -> Iterator[bytes]:
    for block in stores.areas.read(info.key, pin=info.pin):
        heartbeat(len(block))
        yield block


def _find_mismatch(
    declared: Mapping[str, Any], info: BlobInfo, kind: str, hashes: ComputedChecksums
) -> str | None:
    """Return how a file differs from its declaration or from its object's metadata, or None."""
    if declared.get("size", info.size) != info.size:
        return f"It has {info.size} bytes and not {declared['size']}."
    if declared.get("content_type", kind) != kind:
        return f"Its content type is {kind} and not {declared['content_type']}."
    metadata = {field: info.metadata.get(METADATA_PREFIX + field) for field in CHECKSUM_NAMES}
    for checksums in (declared.get("checksums") or {}, metadata):
        for field in CHECKSUM_NAMES:
            value, computed = checksums.get(field), getattr(hashes.checksums, field)
            if value and value.lower() not in (computed, hashes.alternate_etag):
                return f"{field} was declared as {value} but is {computed}."
    return None


def _check_json(info: BlobInfo, blocks: Iterable[bytes], heartbeat: Heartbeat) -> str | None:
    """Return why a file is not valid JSON, or None; read its blocks only if it is small enough."""
    if info.size > MAX_FILE_BYTES:
        return f"As JSON it is too large: {info.size} bytes of at most {MAX_FILE_BYTES}."
    content = b"".join(blocks)
    with _hold_parse_lock(heartbeat) if len(content) >= SERIAL_PARSE_BYTES else nullcontext():
        try:
            parse_metadata(content)
        except UnreadableMetadata as error:
            return f"It is not readable JSON: {error}."
    return None


@contextmanager
def _hold_parse_lock(heartbeat: Heartbeat) -> Iterator[None]:
    while not PARSE_LOCK.acquire(timeout=PARSE_WAIT_S):
        heartbeat(0)
    try:
        heartbeat(0)
        yield
    finally:
        PARSE_LOCK.release()
