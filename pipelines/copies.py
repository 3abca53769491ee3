"""Store, verify and copy objects, inside the engine or through this process.

Either way the copy is right or absent. A copy inside the engine is compared by checksum afterwards;
bytes that stream through this process are hashed, and the copy is completed only if they are right.

`BulkCopies` compares many copies by one listing. The caller makes those that are absent or wrong
again with `copy_object`, which checks its own copy.
"""

import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from pipelines.checksums import (
    ChecksumHasher,
    find_mismatches,
    hash_in_thread,
    part_size,
    split_parts,
)
from pipelines.flow import Heartbeat, ignore_progress
from storage.catalog import ingest
from storage.errors import (
    AlreadyExists,
    DamagedObjectError,
    NotFoundError,
    SourceChanged,
    Unavailable,
)
from storage.model import Checksums, Replica
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    BulkCopyTarget,
    MultipartUpload,
    StreamTarget,
)
from storage.stores import Stores

log = logging.getLogger(__name__)

BlobCondition = Literal["absent", "intact", "damaged"]


def hash_blob(blobs: BlobStore, key: str, heartbeat: Heartbeat) -> str:
    """Read an object again and return its SHA-256."""
    digest = hashlib.sha256()
    for block in blobs.read(key):
        digest.update(block)
        heartbeat(len(block))
    return digest.hexdigest()


def inspect_blob(blobs: BlobStore, key: str, sha256: str, heartbeat: Heartbeat) -> BlobCondition:
    """Read an object again and compare its SHA-256, which for a blob is part of its key."""
    try:
        return "intact" if hash_blob(blobs, key, heartbeat) == sha256 else "damaged"
    except NotFoundError:
        return "absent"
    except DamagedObjectError:
        return "damaged"


def store_bytes(
    blobs: BlobStore, key: str, data: bytes, *, sha256: str, heartbeat: Heartbeat
) -> BlobInfo:
    """Store a small object whose `data` were verified to have this SHA-256.

    An object that is there already stays if it is intact, and is replaced if it is damaged.
    """
    try:
        return blobs.put(key, data)
    except AlreadyExists:
        if inspect_blob(blobs, key, sha256, heartbeat) == "intact":
            return blobs.head(key)
    log.error("%s is damaged and is replaced by verified bytes", blobs.direct_url(key))
    return blobs.put(key, data, replace=True)


def complete_upload(
    blobs: BlobStore,
    key: str,
    upload: MultipartUpload,
    *,
    sha256: str,
    found: BlobCondition,
    heartbeat: Heartbeat,
) -> BlobInfo:
    """Complete an object whose parts were verified; replace what `inspect_blob` found damaged.

    Unavailable if a damaged object came to the key meanwhile: the upload has to be made again.
    """
    if found == "damaged":
        log.error("%s is damaged and is replaced by verified bytes", blobs.direct_url(key))
    try:
        return upload.complete(replace=found == "damaged")
    except AlreadyExists as error:
        return _head_if_intact(blobs, key, sha256, heartbeat, error)


def store_stream(
    blobs: StreamTarget,
    key: str,
    blocks: Iterable[bytes],
    *,
    size: int,
    checksums: Checksums,
    heartbeat: Heartbeat,
) -> BlobInfo:
    """Store an object while it is read; `blocks` raises at its end unless the bytes are right.

    Unavailable if a damaged object came to the key meanwhile: the copy has to be made again.
    """
    try:
        return blobs.put_stream(key, blocks, size=size, crc32c=checksums.crc32c)
    except AlreadyExists as error:
        return _head_if_intact(blobs, key, checksums.sha256, heartbeat, error)


def _head_if_intact(
    blobs: BlobStore, key: str, sha256: str, heartbeat: Heartbeat, error: AlreadyExists
) -> BlobInfo:
    if inspect_blob(blobs, key, sha256, heartbeat) != "intact":
        raise Unavailable(f"A damaged object came to {key} during the upload.") from error
    return blobs.head(key)


def undo_copy(blobs: BlobStore, copy: BlobInfo) -> None:
    """Delete an object that the caller has just made under a free key and found to be wrong.

    Nothing refers to it yet. The pin spares an object that another process stored meanwhile.
    """
    blobs.delete(copy.key, pin=copy.pin)


INLINE_BYTES = 8 * 1024 * 1024
"""Bytes up to which an object is held in memory."""

UPLOAD_TOUCH_S = 60.0
"""How often a resumable copy shows that it is active; stale uploads are aborted much later."""


class UploadLedger:
    """The catalog's row of an unfinished copy, so that another worker can resume it."""

    def __init__(self, stores: Stores, replica: Replica, key: str) -> None:
        self._catalog, self._place = stores.catalog, (replica, key)
        self._noted: str | None = None
        self._touched = -UPLOAD_TOUCH_S

    def token(self) -> str | None:
        """Return the token of an unfinished copy of the same bytes to the same key."""
        with self._catalog.read() as tx:
            self._noted = ingest.find_latest_upload(tx, *self._place)
        return self._noted

    def note(self, token: str) -> None:
        """Remember the token by which the copy can be resumed; write rarely if it is known."""
        is_known, now = token == self._noted, time.monotonic()
        if is_known and now < self._touched + UPLOAD_TOUCH_S:
            return
        with self._catalog.write() as tx:
            (ingest.touch_upload if is_known else ingest.insert_upload)(tx, *self._place, token)
        self._noted, self._touched = token, now

    def close(self) -> None:
        """Forget the token: the copy is complete."""
        if self._noted is not None:
            with self._catalog.write() as tx:
                ingest.delete_upload(tx, *self._place, self._noted)


@dataclass(frozen=True, slots=True)
class _Copy:
    """The copy of one object: from where, to where, and what it must be."""

    source: BlobStore
    key: str
    target: BlobStore
    target_key: str
    size: int
    checksums: Checksums
    heartbeat: Heartbeat
    ledger: UploadLedger | None

    def read_source(self) -> Iterator[bytes]:
        """Yield the source's bytes; raise SourceChanged at the end if they are damaged."""
        return read_verified(self.source, self.key, size=self.size, sha256=self.checksums.sha256)

    def report_progress(self, token: str, _bytes: int) -> None:
        """Remember the token by which the copy can be resumed, and renew the claim."""
        if self.ledger and token:
            self.ledger.note(token)
        self.heartbeat(0)


def has_object_of_size(blobs: BlobStore, key: str, size: int) -> bool:
    """Return whether an object of this size exists."""
    try:
        return blobs.head(key).size == size
    except (NotFoundError, DamagedObjectError):
        return False


def copy_object(
    source: BlobStore,
    target: BlobStore,
    key: str,
    target_key: str,
    *,
    size: int,
    checksums: Checksums,
    heartbeat: Heartbeat = ignore_progress,
    ledger: UploadLedger | None = None,
) -> None:
    """Copy the bytes of `key` to `target_key`.

    An existing object stays if it is right, and is replaced by verified bytes if it is damaged.
    Raise SourceChanged if the source's bytes are not the expected ones.
    """
    copy = _Copy(source, key, target, target_key, size, checksums, heartbeat, ledger)
    try:
        info = _copy_in_engine(copy)
    except AlreadyExists:
        if not _is_intact(copy):
            sha256 = checksums.sha256
            replace_damaged(
                source, target, key, target_key, size=size, sha256=sha256, heartbeat=heartbeat
            )
    else:
        info = info or _copy_through_process(copy)
        _check_copy(target, info, size, checksums, heartbeat)
    if ledger:
        ledger.close()


def replace_damaged(
    source: BlobStore,
    target: BlobStore,
    key: str,
    target_key: str,
    *,
    size: int,
    sha256: str,
    heartbeat: Heartbeat = ignore_progress,
) -> None:
    """Replace an object that was read again and found damaged by the verified bytes of `key`.

    Raise SourceChanged, and replace nothing, if the source's bytes are damaged too.
    """
    blocks = read_verified(source, key, size=size, sha256=sha256)
    if size <= INLINE_BYTES:
        store_bytes(target, target_key, b"".join(blocks), sha256=sha256, heartbeat=heartbeat)
        return
    step = part_size(size)
    upload = target.upload(target_key, part_size=step, content_type=DEFAULT_CONTENT_TYPE)
    try:
        upload_parts(upload, blocks, step, stored=lambda _number: heartbeat(step))
        complete_upload(
            target, target_key, upload, sha256=sha256, found="damaged", heartbeat=heartbeat
        )
    except BaseException:
        upload.abort()
        raise


def read_verified(source: BlobStore, key: str, *, size: int, sha256: str) -> Iterator[bytes]:
    """Yield an object's blocks, and raise SourceChanged at the end if the SHA-256 differs."""
    # The other checksums are of the same bytes and prove nothing more.
    digest = hashlib.sha256()
    blocks = source.read(key)
    if size > INLINE_BYTES:
        yield from hash_in_thread(blocks, digest.update)
    else:
        for block in blocks:
            digest.update(block)
            yield block
    if digest.hexdigest() != sha256:
        raise SourceChanged(f"The bytes of {key} are damaged.")


def _copy_in_engine(copy: _Copy) -> BlobInfo | None:
    """Copy inside the engine, or return None; raise AlreadyExists if the key is taken."""
    # A small copy is just tried; a large one takes too long to find out at its end.
    if copy.size > INLINE_BYTES:
        with suppress(NotFoundError):
            with suppress(DamagedObjectError):
                copy.target.head(copy.target_key)
            raise AlreadyExists(f"{copy.target_key} exists already.")
    return copy.target.copy(
        copy.source,
        copy.key,
        copy.target_key,
        pin=None,
        part_size=part_size(copy.size),
        size=copy.size,
        resume=copy.ledger.token() if copy.ledger else None,
        progress=copy.report_progress,
    )


def _is_intact(copy: _Copy) -> bool:
    """Return whether the existing object is right, by the engine's checksum or by its bytes."""
    target, heartbeat = copy.target, copy.heartbeat
    try:
        info = target.head(copy.target_key)
        if info.size == copy.size and matches_checksums(target, info, copy.checksums, heartbeat):
            return True
    except (NotFoundError, DamagedObjectError):
        return False
    sha256 = copy.checksums.sha256
    return inspect_blob(target, copy.target_key, sha256, heartbeat) == "intact"


def _check_copy(
    target: BlobStore, info: BlobInfo, size: int, checksums: Checksums, heartbeat: Heartbeat
) -> None:
    """Remove a new copy and raise Damaged if it has the wrong bytes."""
    if info.size == size and matches_checksums(target, info, checksums, heartbeat):
        return
    undo_copy(target, info)
    raise DamagedObjectError(f"The copy at {info.key} has wrong bytes.")


def remove_wrong_copy(
    target: BlobStore,
    key: str,
    *,
    size: int,
    checksums: Checksums,
    heartbeat: Heartbeat = ignore_progress,
) -> None:
    """Remove a copy that the caller has just made under a free key, if its bytes are wrong."""
    with suppress(NotFoundError, DamagedObjectError):
        _check_copy(target, target.head(key), size, checksums, heartbeat)


def matches_checksums(
    target: BlobStore, info: BlobInfo, checksums: Checksums, heartbeat: Heartbeat
) -> bool:
    """Compare the checksum that the engine computed on storing, or else read the bytes again."""
    # Copies use the parts of the specification; with some encryptions an ETag is no digest.
    if info.etag == checksums.s3_etag:
        return True
    if info.crc32c is not None:
        return info.crc32c == checksums.crc32c
    hasher = ChecksumHasher(info.size)
    for block in hasher.hash_blocks(target.read(info.key, pin=info.pin)):
        heartbeat(len(block))
    return not find_mismatches(checksums, hasher.result())


def _copy_through_process(copy: _Copy) -> BlobInfo:
    """Copy small objects at once, others in parts; stream a single part if the target can."""
    sha256 = copy.checksums.sha256
    if copy.size <= INLINE_BYTES:
        data = b"".join(copy.read_source())
        return store_bytes(
            copy.target, copy.target_key, data, sha256=sha256, heartbeat=copy.heartbeat
        )
    has_one_part = copy.size <= part_size(copy.size)
    is_begun = copy.ledger is not None and copy.ledger.token() is not None
    if not isinstance(copy.target, StreamTarget) or not has_one_part or is_begun:
        return _copy_in_parts(copy)

    def read_blocks() -> Iterator[bytes]:
        for block in copy.read_source():
            copy.heartbeat(len(block))
            yield block

    return store_stream(
        copy.target,
        copy.target_key,
        read_blocks(),
        size=copy.size,
        checksums=copy.checksums,
        heartbeat=copy.heartbeat,
    )


def _copy_in_parts(copy: _Copy) -> BlobInfo:
    """Copy in parts, and keep those that a dead worker stored."""
    step = part_size(copy.size)
    upload = _resume_upload(copy, step)
    stored = upload.parts()
    done = next(n for n in itertools.count() if stored.get(n + 1) != step)

    def read_rest() -> Iterator[bytes]:
        if done == 0:
            yield from copy.read_source()
        elif done * step < copy.size:
            # Parts of a dead worker are not hashed: the engine's checksum covers the whole object.
            yield from copy.source.read(copy.key, start=done * step)

    try:
        upload_parts(
            upload,
            read_rest(),
            step,
            first=done + 1,
            stored=partial(copy.report_progress, upload.token),
        )
        return complete_upload(
            copy.target,
            copy.target_key,
            upload,
            sha256=copy.checksums.sha256,
            found="absent",
            heartbeat=copy.heartbeat,
        )
    except BaseException as error:
        if copy.ledger is None or isinstance(error, SourceChanged):
            upload.abort()
        raise


def _resume_upload(copy: _Copy, step: int) -> MultipartUpload:
    start = partial(
        copy.target.upload, copy.target_key, part_size=step, content_type=DEFAULT_CONTENT_TYPE
    )
    token = copy.ledger.token() if copy.ledger else None
    if token:
        with suppress(NotFoundError):
            return start(token=token)
    upload = start()
    if copy.ledger:
        copy.ledger.note(upload.token)
    return upload


def upload_parts(
    upload: MultipartUpload,
    blocks: Iterable[bytes],
    step: int,
    *,
    first: int = 1,
    stored: Callable[[int], None],
) -> None:
    """Store blocks as the parts of an upload from `first` on; call `stored` with each number."""
    for number, part in enumerate(split_parts(blocks, step), start=first):
        upload.part(number, part)
        stored(number)


class BulkCopies:
    """Copies of small objects from one bucket to a prefix of another.

    Make all copies first, then compare them. Threads may share an instance.
    """

    def __init__(self, source: BlobStore, target: BulkCopyTarget, prefix: str) -> None:
        self._source, self._target, self._prefix = source, target, prefix
        self._unread = set[str]()

    @property
    def has_copied(self) -> bool:
        """Return whether there is anything to compare."""
        return bool(self._unread)

    def copy(self, key: str, target_key: str, *, size: int, is_free: bool = False) -> bool:
        """Copy a small object; on False the caller has to use `copy_object`.

        `is_free` says that the target key was absent. The first `copy_object` shows whether the
        others can be compared by a listing.
        """
        if size > INLINE_BYTES:
            return False
        if not self._target.copy_unverified(self._source, key, target_key, is_free=is_free):
            return False
        self._unread.add(target_key)
        return True

    def is_intact(self, target_key: str, size: int, checksums: Checksums) -> bool:
        """Return whether the listing shows the right bytes; True for objects not copied here."""
        if target_key not in self._unread:
            return True
        info = self._listing.get(target_key)
        return info is not None and (info.size, info.etag) == (size, checksums.s3_etag)

    @cached_property
    def _listing(self) -> Mapping[str, BlobInfo]:
        return self._target.list_prefix(self._prefix)
