"""Read, list, insert and delete GCS objects."""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any, Final

from google.cloud.storage import Blob

from storage import crc32c, errors
from storage.blobs.gcs_client import GcsBucketClient
from storage.protocols import BLOCK, DEFAULT_CONTENT_TYPE, BlobInfo

CONTENT_TYPE_KEY: Final = "store-content-type"
"""Metadata key for the content type: GCS ignores the content type of a signed URL for objects that
have one."""
READ_BYTES: Final = 8 * BLOCK
"""Bytes of one request; larger reads take several, of one generation."""
MAX_REQUEST_BYTES: Final = 8 * BLOCK
"""Up to this size the library sends an object in one request."""
UPLOAD_CHUNK_BYTES: Final = 65 * BLOCK
"""Bytes of each request of a larger object, held in memory while they are sent. GCS advises large
chunks; a part of 64 MiB takes one."""
_SEND_SEMAPHORE: Final = BoundedSemaphore(4)
"""Bounds the memory for chunks: larger objects that a process sends at a time."""


def set_blob_metadata(blob: Blob, content_type: str, metadata: Mapping[str, str] | None) -> None:
    """Set metadata and content type of a new object."""
    own = {} if content_type == DEFAULT_CONTENT_TYPE else {CONTENT_TYPE_KEY: content_type}
    if metadata or own:
        blob.metadata = {**(metadata or {}), **own}


def make_info(blob: Blob) -> BlobInfo:
    """Return the info of a loaded blob."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    content_type = metadata.pop(CONTENT_TYPE_KEY, None) or blob.content_type or DEFAULT_CONTENT_TYPE
    return BlobInfo(
        key=blob.name,
        size=int(blob.size),
        pin=str(blob.generation),
        content_type=content_type,
        metadata=metadata,
        etag=blob.etag,
        crc32c=crc32c.decode_base64(blob.crc32c).hex() if blob.crc32c else None,
    )


class _BlockReader:
    """Blocks as a file that is read forward; Invalid beyond `most` bytes.

    Returns the last bytes only after the blocks have ended without an error.
    """

    def __init__(self, blocks: Iterable[bytes], most: int, *, summed: bool) -> None:
        self._blocks, self._left, self._summed = iter(blocks), most, summed
        self._pending = b""
        self._offset = self.crc = 0

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end only."""
        data = self.peek(count)
        self._pending = data[count:]
        self._offset += min(len(data), count)
        return data[:count] if self._pending else data

    def peek(self, count: int) -> bytes:
        """Return at least `count` of the next bytes, fewer at the end only."""
        # BytesIO returns its value without a copy; joining a list of blocks takes twice the memory.
        buffer = io.BytesIO()
        size = buffer.write(self._pending)
        self._pending = b""
        while size < count and (block := next(self._blocks, None)) is not None:
            self._left -= len(block)
            if self._summed:
                self.crc = crc32c.extend(self.crc, block)
            size += buffer.write(block)
            if self._left < 0 or (self._left == 0 and next(self._blocks, None)):
                raise errors.Invalid("the body has more bytes than announced")
        self._pending = buffer.getvalue()
        return self._pending

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._offset


def insert_object(
    bucket: GcsBucketClient, blob: Blob, data: bytes, *, replace: bool = False
) -> None:
    """Store an object with its CRC-32C, unless one was set: GCS rejects bytes that differ."""
    blob.crc32c = blob.crc32c or crc32c.encode_base64(crc32c.extend(0, data))
    _send_object(bucket, blob, io.BytesIO(data), len(data), replace=replace)


def insert_object_stream(
    bucket: GcsBucketClient,
    blob: Blob,
    blocks: Iterable[bytes],
    *,
    most: int,
    size: int | None = None,
    replace: bool = False,
) -> None:
    """Store an object of at most `most` bytes; nothing if `blocks` raises.

    GCS checks the CRC-32C of small objects, and of objects whose CRC-32C was set. Otherwise it is
    compared at the end, and an object that differs is deleted by its generation.
    """
    announced = blob.crc32c
    stream = _BlockReader(blocks, most, summed=announced is None)
    head = stream.peek(MAX_REQUEST_BYTES + 1)
    if len(head) <= MAX_REQUEST_BYTES:
        insert_object(bucket, blob, head, replace=replace)
        return
    with _SEND_SEMAPHORE:
        _send_object(bucket, blob, stream, size, replace=replace)
    if blob.crc32c != (announced or crc32c.encode_base64(stream.crc)):
        delete_object(bucket, blob.name, str(blob.generation))
        raise errors.Unavailable(f"{blob.name} arrived at GCS with a wrong checksum")


def _send_object(
    bucket: GcsBucketClient, blob: Blob, file: Any, size: int | None, *, replace: bool
) -> None:
    condition = {} if replace else {"if_generation_match": 0}
    blob.chunk_size = UPLOAD_CHUNK_BYTES
    try:
        # By default the library sends application/octet-stream; an empty type is none.
        bucket.call(
            blob.upload_from_file, file, size=size, content_type="", checksum=None, **condition
        )
    except errors.NotFoundError as error:
        raise errors.Unavailable(f"GCS bucket {bucket.name} accepts no objects: {error}") from error
    except ValueError as error:
        # The library does not resume a chunk that was stored in part.
        raise errors.Unavailable(f"GCS interrupted an upload: {error}") from error


def list_objects(
    bucket: GcsBucketClient, prefix: str, *, start: str = "", fields: str
) -> Iterator[Blob]:
    """List objects under a prefix from key `start` on, in byte order, with these fields only."""
    found = bucket.list_blobs(prefix=prefix, start_offset=start, fields=fields)
    while (blob := bucket.translate_errors(lambda: next(found, None))) is not None:
        yield blob


def delete_object(bucket: GcsBucketClient, key: str, pin: str | None = None) -> None:
    """Delete an object; succeed if it is absent."""
    with suppress(errors.NotFoundError):
        condition = {} if pin is None else {"if_generation_match": bucket.blob(key, pin).generation}
        bucket.call(bucket.blob(key).delete, **condition)


def head_object(bucket: GcsBucketClient, key: str) -> BlobInfo:
    """Return an object's info."""
    blob = bucket.blob(key)
    bucket.call(blob.reload)
    return make_info(blob)


def explain_mismatch(bucket: GcsBucketClient, key: str) -> errors.DomainError:
    """Return the error for a pin that does not match: NotFoundError or SourceChanged."""
    try:
        head_object(bucket, key)
    except errors.DomainError as error:
        return error
    return errors.SourceChanged(f"{key} has changed")


def read_object(
    bucket: GcsBucketClient, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Yield blocks of a range, all of one generation.

    A response that ends early must be at the object's end: its size or checksum proves that nothing
    was cut off.
    """
    blob = bucket.blob(key, pin)
    at, end, crc = start, None if length is None else start + length, 0
    while end is None or at < end:
        wanted = READ_BYTES if end is None else min(READ_BYTES, end - at)
        try:
            data = _download(bucket, blob, at, wanted)
        except errors.RangeNotSatisfiable:
            if at == start and start > 0:
                raise
            data = b""
        except (errors.NotFoundError, errors.SourceChanged) as error:
            raise (
                error if pin is None and at == start else explain_mismatch(bucket, key)
            ) from error
        for offset in range(0, len(data), BLOCK):
            yield data[offset : offset + BLOCK]
        at, crc = at + len(data), crc32c.extend(crc, data)
        if len(data) < wanted:
            if at and (start > 0 or crc32c.encode_base64(crc) != blob.crc32c):
                _check_end(bucket, blob, at)
            return


def _download(bucket: GcsBucketClient, blob: Blob, start: int, count: int) -> bytes:
    pinned = {} if blob.generation is None else {"if_generation_match": blob.generation}
    data: bytes = bucket.call(
        blob.download_as_bytes,
        start=start,
        end=start + count - 1,
        raw_download=True,
        single_shot_download=True,
        checksum=None,
        **pinned,
    )
    if len(data) > count or blob.generation is None:
        raise errors.Unavailable(f"GCS bucket {bucket.name} sent a wrong range of {blob.name}")
    return data


def _check_end(bucket: GcsBucketClient, blob: Blob, at: int) -> None:
    with suppress(errors.NotFoundError):
        bucket.call(blob.reload, if_generation_match=blob.generation)
        if blob.size == at:
            return
    raise errors.Unavailable(f"GCS bucket {bucket.name} cut off {blob.name} after {at} bytes")
