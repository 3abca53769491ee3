"""Verify a stored blob against its key, and replace a damaged one by verified bytes.

A blob's key is the SHA-256 of its bytes, so the bytes alone tell whether it is intact; what a
request declares never counts. A blob is replaced only after its stored bytes were read again and
found wrong, and only by bytes that were hashed and are right: those of a source, or of another
replica (`copies.replace_damaged`). Only `store_bytes` and `complete_upload` replace blobs, and only
garbage collection deletes them.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Literal

from storage.errors import AlreadyExists, DamagedObjectError, NotFoundError, Unavailable
from storage.model import Checksums
from storage.protocols import BlobInfo, BlobStore, MultipartUpload, StreamTarget

log = logging.getLogger(__name__)

ProgressCallback = Callable[[int], None]
"""Called with the number of bytes moved."""
BlobCondition = Literal["absent", "intact", "damaged"]


def hash_blob(blobs: BlobStore, key: str, heartbeat: ProgressCallback) -> str:
    """Read an object again and return its SHA-256."""
    digest = hashlib.sha256()
    for block in blobs.read(key):
        digest.update(block)
        heartbeat(len(block))
    return digest.hexdigest()


def inspect_blob(
    blobs: BlobStore, key: str, sha256: str, heartbeat: ProgressCallback
) -> BlobCondition:
    """Read an object again and compare its SHA-256, which for a blob is part of its key."""
    try:
        return "intact" if hash_blob(blobs, key, heartbeat) == sha256 else "damaged"
    except NotFoundError:
        return "absent"
    except DamagedObjectError:
        return "damaged"


def store_bytes(
    blobs: BlobStore, key: str, data: bytes, *, sha256: str, heartbeat: ProgressCallback
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
    heartbeat: ProgressCallback,
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
    heartbeat: ProgressCallback,
) -> BlobInfo:
    """Store an object while it is read; `blocks` raises at its end unless the bytes are right.

    Unavailable if a damaged object came to the key meanwhile: the copy has to be made again.
    """
    try:
        return blobs.put_stream(key, blocks, size=size, crc32c=checksums.crc32c)
    except AlreadyExists as error:
        return _head_if_intact(blobs, key, checksums.sha256, heartbeat, error)


def _head_if_intact(
    blobs: BlobStore, key: str, sha256: str, heartbeat: ProgressCallback, error: AlreadyExists
) -> BlobInfo:
    if inspect_blob(blobs, key, sha256, heartbeat) != "intact":
        raise Unavailable(f"A damaged object came to {key} during the upload.") from error
    return blobs.head(key)


def undo_copy(blobs: BlobStore, copy: BlobInfo) -> None:
    """Delete an object that the caller has just made under a free key and found to be wrong.

    Nothing refers to it yet. The pin spares an object that another process stored meanwhile.
    """
    blobs.delete(copy.key, pin=copy.pin)
