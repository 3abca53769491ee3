"""Multipart uploads, signed URLs and temporary credentials for upload areas, and their removal.

A file exists once the bucket completes its upload; the catalog records it afterwards. The object
carries the upload's id, so a completion that is repeated after a crash recognizes its own object.
The response of a completion is stored and replayed.

Credentials cannot be revoked: until they expire, a locked area may still be written to. The API
checks its own signed URLs at each use. A deleted area is checked once more after they expired.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines import area_files, areas, quotas
from pipelines.areas import find_area_name_fault, require_writable
from pipelines.checksums import part_size
from pipelines.flow import Heartbeat
from storage import keys
from storage.catalog import Tx, idempotency, jobs, now_us
from storage.catalog import areas as catalog_areas
from storage.catalog.areas import Area, AreaUploadRow
from storage.catalog.idempotency import StoredResponse
from storage.catalog.quotas import Amount
from storage.errors import Invalid, NotFoundError, NotReady, TooLarge, Unavailable
from storage.model import Job, JobClaim
from storage.protocols import (
    BlobInfo,
    Credentials,
    DirectUploads,
    MultipartUpload,
    PresignedUpload,
)
from storage.stores import Stores

log = logging.getLogger(__name__)
UPLOAD_ID_METADATA = "upload-id"
"""Metadata that names the upload an object was completed from."""


@dataclass(frozen=True, slots=True)
class AreaUploadRef:
    """A reference to an upload."""

    area: str
    name: str
    id: str


@dataclass(frozen=True, slots=True)
class AreaUploadProgress:
    """An upload and the numbers of its stored parts."""

    upload: AreaUploadRow
    stored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IncomingPart:
    """A part that is being uploaded; `length` is its Content-Length."""

    number: int
    length: int | None
    blocks: Iterable[bytes]


def count_parts(upload: AreaUploadRow) -> int:
    """Return the number of parts; an empty file has none."""
    return -(-upload.size // upload.part_size)


def begin(stores: Stores, new: AreaUploadRow, caller: str, *, limit: int) -> AreaUploadProgress:
    """Start a multipart upload, and set its `token` and `part_size`.

    Raise Invalid (name), TooLarge, NotFoundError, Forbidden, ConflictError (`area_locked`),
    QuotaExceeded.
    """
    areas.check_file_name(new.name)
    if new.size > limit:
        raise TooLarge(f"A file has at most {limit} bytes.")
    with stores.catalog.read() as tx:
        areas.require_writable(tx, new.area, caller)
    size = part_size(new.size)
    multipart = stores.areas.upload(
        keys.area_file_key(new.area, new.name),
        part_size=size,
        content_type=new.content_type,
        metadata={UPLOAD_ID_METADATA: new.id},
    )
    upload = replace(new, token=multipart.token, part_size=size)
    try:
        with stores.catalog.write() as tx:
            areas.require_writable(tx, new.area, caller, lock="shared")
            quotas.reserve_room(tx, stores, caller, Amount(new.size, 1))
            catalog_areas.insert_upload(tx, upload)
    except BaseException:
        multipart.abort()
        raise
    return AreaUploadProgress(upload, ())


def find(stores: Stores, upload: AreaUploadRef, caller: str) -> AreaUploadRow:
    """Return an upload into an unlocked area of the caller; raise NotFoundError."""
    with stores.catalog.read() as tx:
        areas.require_writable(tx, upload.area, caller)
        return _get_upload(tx, upload.id)


def _get_upload(tx: Tx, ident: str) -> AreaUploadRow:
    upload = catalog_areas.find_upload(tx, ident)
    if upload is None:
        raise NotFoundError("There is no such upload: it was completed or aborted, or has expired.")
    return upload


def resume(stores: Stores, upload: AreaUploadRef, caller: str) -> AreaUploadProgress:
    """Return an upload into an unlocked area of the caller, with its complete parts."""
    row = find(stores, upload, caller)
    return AreaUploadProgress(row, tuple(sorted(stored_parts(row, open_multipart(stores, row)))))


def open_multipart(stores: Stores, upload: AreaUploadRow) -> MultipartUpload:
    """Return the bucket's multipart upload; raise NotFoundError."""
    key = keys.area_file_key(upload.area, upload.name)
    return stores.areas.upload(
        key, part_size=upload.part_size, content_type=upload.content_type, token=upload.token
    )


def stored_parts(upload: AreaUploadRow, multipart: MultipartUpload) -> set[int]:
    """Return the numbers of the parts that are stored with all their bytes."""
    parts = multipart.parts()
    return {number for number, size in parts.items() if size == _part_length(upload, number)}


def _part_length(upload: AreaUploadRow, number: int) -> int:
    return min(upload.part_size, upload.size - (number - 1) * upload.part_size)


def require_part_length(upload: AreaUploadRow, number: int) -> int:
    """Return the bytes of a part; raise Invalid if there is no part of this number."""
    count = count_parts(upload)
    if not 1 <= number <= count:
        message = f"Parts are 1 to {count}." if count else "An empty file has no parts."
        raise Invalid(message, errors={"part": [message]})
    return _part_length(upload, number)


def receive_part(stores: Stores, upload: AreaUploadRow, part: IncomingPart) -> str:
    """Store or replace one part, and return its MD5 as hex digits.

    Raise Invalid if the number of bytes is not the part's.
    """
    length = require_part_length(upload, part.number)
    if part.length != length:
        actual = "" if part.length is None else f" (got {part.length})"
        message = f"Part {part.number} has {length} bytes: Content-Length must say so{actual}."
        raise Invalid(message, errors={"part": [message]})
    digest = hashlib.md5(usedforsecurity=False)
    with stores.catalog.write() as tx:
        if not catalog_areas.touch_upload(tx, upload.id):
            _get_upload(tx, upload.id)
    multipart = open_multipart(stores, upload)
    multipart.part(part.number, _check_length(part.blocks, length, digest))
    return digest.hexdigest()


PART_URL_S = 900
"""Seconds within which a presigned part must begin to arrive; the client signs it just before."""


@dataclass(frozen=True, slots=True)
class SignedPart:
    """A part of `size` bytes; `upload` is None if the API receives it."""

    size: int
    expires_us: int
    upload: PresignedUpload | None


def sign_part(
    stores: Stores, ref: AreaUploadRef, number: int, crc32c: str, caller: str
) -> SignedPart:
    """Sign a URL to put one part with this CRC-32C (hex digits) straight into the bucket.

    The size of the file was checked when the upload began; the number of the part sets its length.
    Raise NotFoundError, Forbidden, ConflictError (`area_locked`), Invalid (number).
    """
    upload = find(stores, ref, caller)
    length = require_part_length(upload, number)
    multipart = open_multipart(stores, upload)
    with stores.catalog.write() as tx:
        expires_us = now_us(tx) + PART_URL_S * 1_000_000
        if not catalog_areas.touch_upload(tx, upload.id):
            _get_upload(tx, upload.id)
    try:
        signed = multipart.sign_part(
            number, length=length, crc32c=int(crc32c, 16), expires_s=PART_URL_S
        )
    except Unavailable as error:
        log.warning("parts of areas come through the store: %s", error.detail)
        signed = None
    return SignedPart(length, expires_us, signed)


def find_direct_uploads(stores: Stores) -> DirectUploads | None:
    """Return where presigned parts of areas go; None if they come through the store."""
    try:
        return stores.areas.find_direct_uploads()
    except Unavailable:
        return None


def _check_length(blocks: Iterable[bytes], length: int, digest: "hashlib._Hash") -> Iterator[bytes]:
    size = 0
    for block in blocks:
        size += len(block)
        if size > length:
            break
        digest.update(block)
        yield block
    if size != length:
        raise Invalid(f"{size} bytes arrived of a part of {length}.")


def abort(stores: Stores, upload: AreaUploadRef, caller: str) -> None:
    """Delete an upload and its parts, if it exists; a locked area allows it, too."""
    areas.find_owned(stores, upload.area, caller)
    with stores.catalog.read() as tx:
        row = catalog_areas.find_upload(tx, upload.id)
    if row is not None:
        discard(stores, row)


def discard(stores: Stores, upload: AreaUploadRow) -> None:
    """Abort an upload in the bucket and delete its row."""
    with suppress(NotFoundError):
        open_multipart(stores, upload).abort()
    with stores.catalog.write() as tx:
        _delete_upload(tx, stores, upload)


def _delete_upload(tx: Tx, stores: Stores, upload: AreaUploadRow) -> None:
    """Delete the row of an upload, if it exists, and give back what it has of the quota."""
    if not catalog_areas.delete_upload(tx, upload.id) or stores.quotas is None:
        return
    area = catalog_areas.find(tx, upload.area)
    if area is not None:
        quotas.count_change(tx, stores, {area.owner: Amount(-upload.size, -1)})


def abort_stale(stores: Stores, *, older_than_s: float) -> int:
    """Abort uploads without activity for `older_than_s` seconds; return how many."""
    with stores.catalog.read() as tx:
        uploads = catalog_areas.list_stale_uploads(tx, now_us(tx) - int(older_than_s * 1e6))
    for upload in uploads:
        discard(stores, upload)
    return len(uploads)


MAX_REPORTED_PARTS = 20
"""Missing parts that an error names."""


@dataclass(frozen=True, slots=True)
class CompletedAreaUpload:
    """The file of a completed upload, with its checksum status."""

    size: int
    status: str
    jobs: tuple[Job, ...] = ()


def complete(
    stores: Stores,
    upload: AreaUploadRef,
    caller: str,
    declared: Mapping[str, Any] | None = None,
    *,
    request_id: str = "",
) -> CompletedAreaUpload:
    """Complete an upload, which replaces a file of its name, and schedule the check of the file.

    `declared` is what the uploader declares about the file. Repeating it returns the same response.
    Raise Invalid while a part is missing, NotFoundError if the upload is gone.
    """
    response = _find_response(stores, upload, caller)
    if response is not None:
        return response
    try:
        row = find(stores, upload, caller)
    except NotFoundError:
        # Another completion may have ended since the first check.
        response = _find_response(stores, upload, caller)
        if response is None:
            raise
        return response
    _assemble(stores, row)
    file = area_files.register_upload(
        stores,
        row.area,
        row.name,
        {"size": row.size, **(declared or {})},
        # Another upload may have replaced the object; the declaration is not about that one.
        is_declared=lambda info: _is_from_upload(info, row),
        upload_id=row.id,
        request_id=request_id,
    )
    with stores.catalog.write() as tx:
        _delete_upload(tx, stores, row)
        answer = json.dumps({"size": row.size, "status": file.status})
        idempotency.insert(tx, caller, _response_key(row.id), StoredResponse("", answer))
    return _find_response(stores, upload, caller, file.jobs) or CompletedAreaUpload(
        row.size, file.status
    )


def _response_key(ident: str) -> str:
    """Return a key that is no Idempotency-Key, as those have no line feed."""
    return f"area upload\n{ident}"


def _find_response(
    stores: Stores, upload: AreaUploadRef, caller: str, follow: tuple[Job, ...] = ()
) -> CompletedAreaUpload | None:
    """Return the stored response of a completion by this caller, or None."""
    with stores.catalog.read() as tx:
        response = idempotency.find(tx, caller, _response_key(upload.id))
    if response is None:
        return None
    areas.find_owned(stores, upload.area, caller)
    return CompletedAreaUpload(**json.loads(response.answer), jobs=follow)


def _assemble(stores: Stores, upload: AreaUploadRow) -> None:
    """Complete the upload in the bucket, unless it is already completed."""
    try:
        parts = open_multipart(stores, upload)
        _check_parts(upload, parts)
        parts.complete(replace=True)
    except (NotFoundError, Invalid):
        # A concurrent completion may have ended first.
        if not _is_assembled(stores, upload):
            raise


def _is_assembled(stores: Stores, upload: AreaUploadRow) -> bool:
    with suppress(NotFoundError):
        return _is_from_upload(
            stores.areas.head(keys.area_file_key(upload.area, upload.name)), upload
        )
    return False


def _is_from_upload(info: BlobInfo, upload: AreaUploadRow) -> bool:
    return info.metadata.get(UPLOAD_ID_METADATA) == upload.id


def _check_parts(upload: AreaUploadRow, parts: MultipartUpload) -> None:
    stored = stored_parts(upload, parts)
    missing = [number for number in range(1, count_parts(upload) + 1) if number not in stored]
    if missing:
        numbers = ", ".join(map(str, missing[:MAX_REPORTED_PARTS])) + (
            ", …" if len(missing) > MAX_REPORTED_PARTS else ""
        )
        message = f"Parts are missing or incomplete: {numbers}."
        raise Invalid(message, errors={"/parts": [message]})


MAX_REPORTED_NAMES = 20
"""Invalid names that an error names."""
CLOCK_SKEW_S = 60
"""Seconds that an engine's clock may lag behind the catalog's."""


@dataclass(frozen=True, slots=True)
class AreaWriteRequest:
    """A request for write access to files of an area, for `seconds`, up to `max_bytes` each."""

    area: str
    caller: str
    filenames: Sequence[str]
    seconds: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AreaWriteGrant:
    """Either temporary credentials, or a signed URL for each file."""

    expires_us: int
    credentials: Credentials | None = None
    urls: Mapping[str, PresignedUpload] = field(default_factory=dict)


def grant_write_access(stores: Stores, request: AreaWriteRequest) -> AreaWriteGrant:
    """Return credentials or signed URLs that allow direct uploads.

    The area's row records their expiry before they are returned, so a deleted area is checked once
    more afterwards. URLs of the API need no record: each use is checked. Raise NotFoundError,
    Forbidden, ConflictError (`area_locked`), Invalid (names), QuotaExceeded (nothing is left),
    Unavailable.
    """
    _check_filenames(request.filenames)
    with stores.catalog.read() as tx:
        require_writable(tx, request.area, request.caller)
        now = now_us(tx)
    request = replace(request, max_bytes=_limit_size(stores, request))
    grant = _issue_credentials(stores, request) or _sign_urls(stores, request, now)
    if grant.credentials or any(not signed.url.startswith("/") for signed in grant.urls.values()):
        with stores.catalog.write() as tx:
            require_writable(tx, request.area, request.caller, lock="exclusive")
            catalog_areas.record_credentials(tx, request.area, request.seconds + CLOCK_SKEW_S)
    return grant


def _limit_size(stores: Stores, request: AreaWriteRequest) -> int:
    """Return the most bytes of one file: the limit, or less if less is left of the quota."""
    if stores.quotas is None:
        return request.max_bytes
    with stores.catalog.write(durable=False) as tx:
        tightest = quotas.find_tightest(tx, stores, request.caller)
    left = None if tightest is None else quotas.compute_left(tightest).bytes
    return request.max_bytes if left is None else min(request.max_bytes, left)


def _issue_credentials(stores: Stores, request: AreaWriteRequest) -> AreaWriteGrant | None:
    if stores.credential_issuer is None:
        return None
    prefix, name = keys.area_prefix(request.area), f"area-{request.area}"
    credentials = stores.credential_issuer.issue_credentials(
        prefix, name=name, expires_s=request.seconds
    )
    return AreaWriteGrant(int(credentials.expires * 1_000_000), credentials)


def _sign_urls(stores: Stores, request: AreaWriteRequest, now: int) -> AreaWriteGrant:
    def sign(name: str) -> PresignedUpload:
        key = keys.area_file_key(request.area, name)
        return stores.areas.sign_upload(key, expires_s=request.seconds, max_bytes=request.max_bytes)

    urls = {name: sign(name) for name in dict.fromkeys(request.filenames)}
    return AreaWriteGrant(now + request.seconds * 1_000_000, None, urls)


def _check_filenames(filenames: Sequence[str]) -> None:
    faults = {
        f"/filenames/{place}": [fault]
        for place, name in enumerate(filenames)
        if (fault := find_area_name_fault(name)) is not None
    }
    if faults:
        errors = dict(list(faults.items())[:MAX_REPORTED_NAMES])
        raise Invalid(f"{len(faults)} file names are invalid.", errors=errors)


LATE_UPLOAD_S = 86_400
"""Longest duration of an upload that began before its area was deleted."""


def remove_area(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Remove an area's uploads, files and rows, and mark it deleted; running it again is safe.

    Raise NotReady until the time of the last check.
    """
    uuid = claim.job.ref
    with stores.catalog.read() as tx:
        area = catalog_areas.find(tx, uuid)
    if area is not None and area.state in ("DELETING", "DELETED"):
        _empty_area(stores, uuid, heartbeat)
        area = _mark_deleted(stores, uuid)
    with stores.catalog.write() as tx:
        left_s = 0.0
        if area is not None:
            late = (area.deleted_us or 0) / 1e6 + LATE_UPLOAD_S
            granted = (area.granted_us or 0) / 1e6 + LATE_UPLOAD_S / 24
            left_s = max(late, granted) - now_us(tx) / 1e6
        if left_s <= 0:
            jobs.finish(tx, claim)
            return ()
    raise NotReady("Late uploads are removed at the last check.", retry_after_s=int(left_s) + 1)


def _empty_area(stores: Stores, uuid: str, heartbeat: Heartbeat) -> None:
    """Delete uploads and objects until none is left."""
    is_empty = False
    while not is_empty:
        with stores.catalog.read() as tx:
            uploads = catalog_areas.list_uploads(tx, uuid)
        is_empty = not uploads
        for upload in uploads:
            heartbeat(0)
            discard(stores, upload)
        for info in stores.areas.list(keys.area_prefix(uuid)):
            is_empty = False
            heartbeat(0)
            stores.areas.delete(info.key)


def _mark_deleted(stores: Stores, uuid: str) -> Area | None:
    """Mark an empty area deleted; its lock excludes uploads through the API."""
    with stores.catalog.write() as tx:
        area = catalog_areas.find(tx, uuid, lock="exclusive")
        if area is not None and area.state == "DELETING":
            sizes = catalog_areas.delete_files(tx, uuid)
            quotas.count_change(tx, stores, {area.owner: Amount(-sum(sizes), -len(sizes))})
            catalog_areas.set_state(tx, uuid, "DELETED")
        return catalog_areas.find(tx, uuid)
