"""Objects of GCS as they are described, read, listed, sent and removed."""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any, Final

from google.cloud.storage import Blob

from storage import crc32c
from storage.blobs.gcs_client import Bucket
from storage.errors import (
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
)
from storage.protocols import BLOCK, DEFAULT_TYPE, BlobInfo

TYPE: Final = "store-content-type"
"""Metadata that holds the content type of our objects. GCS applies the content type of a signed URL
only to objects that have none of their own."""
READ_BYTES: Final = 8 * BLOCK
"""Bytes of one request; larger reads take several, of one generation."""
ONE_REQUEST: Final = 8 * BLOCK
"""Up to this size the library sends an object in one request."""
CHUNK: Final = 65 * BLOCK
"""Bytes of each request of a larger object, which are held in memory while they are sent. GCS
advises large chunks; a part of 64 MiB takes one, and its end is known."""
_SENDERS: Final = BoundedSemaphore(4)
"""Larger objects that a process sends at a time, so that their chunks take a bounded memory."""


def describe_blob(blob: Blob, content_type: str, metadata: Mapping[str, str] | None) -> None:
    """Set the metadata of an object of ours."""
    own = {} if content_type == DEFAULT_TYPE else {TYPE: content_type}
    if metadata or own:
        blob.metadata = {**(metadata or {}), **own}


def make_info(blob: Blob) -> BlobInfo:
    """What the description of an object says."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    content_type = metadata.pop(TYPE, None) or blob.content_type or DEFAULT_TYPE
    return BlobInfo(
        key=blob.name,
        size=int(blob.size),
        pin=str(blob.generation),
        content_type=content_type,
        metadata=metadata,
        etag=blob.etag,
        crc32c=crc32c.decode(blob.crc32c).hex() if blob.crc32c else None,
    )


class _Stream:
    """Blocks as a file that is read forward; Invalid beyond `most` bytes.

    The last of `most` bytes are given once the blocks have ended without an error."""

    def __init__(self, blocks: Iterable[bytes], most: int, *, summed: bool) -> None:
        self._blocks, self._left, self._summed = iter(blocks), most, summed
        self._pending = b""
        self._given = self.crc = 0

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end only."""
        data = self.peek(count)
        self._pending = data[count:]
        self._given += min(len(data), count)
        return data[:count] if self._pending else data

    def peek(self, count: int) -> bytes:
        """At least `count` bytes, fewer at the end only, which will be read next."""
        # A buffer gives its value without copying it; a list of blocks to join is twice as large.
        buffer = io.BytesIO()
        size = buffer.write(self._pending)
        self._pending = b""
        while size < count and (block := next(self._blocks, None)) is not None:
            self._left -= len(block)
            if self._summed:
                self.crc = crc32c.extend(self.crc, block)
            size += buffer.write(block)
            if self._left < 0 or (self._left == 0 and next(self._blocks, None)):
                raise Invalid("there are more bytes than were announced")
        self._pending = buffer.getvalue()
        return self._pending

    def tell(self) -> int:
        """Bytes given so far."""
        return self._given


def insert(bucket: Bucket, blob: Blob, data: bytes, *, replace: bool = False) -> None:
    """Store an object under its CRC-32C, unless another was set: GCS refuses bytes that differ."""
    blob.crc32c = blob.crc32c or crc32c.encode(crc32c.extend(0, data))
    _send(bucket, blob, io.BytesIO(data), len(data), replace=replace)


def insert_stream(
    bucket: Bucket,
    blob: Blob,
    blocks: Iterable[bytes],
    *,
    most: int,
    size: int | None = None,
    replace: bool = False,
) -> None:
    """Store an object of at most `most` bytes; nothing if `blocks` raises.

    What takes one request is stored under its CRC-32C, and so is an object whose CRC-32C was set.
    Otherwise it is known only in the end: an object that GCS finds to have another one is removed
    again, by its generation.
    """
    announced = blob.crc32c
    stream = _Stream(blocks, most, summed=announced is None)
    head = stream.peek(ONE_REQUEST + 1)
    if len(head) <= ONE_REQUEST:
        insert(bucket, blob, head, replace=replace)
        return
    with _SENDERS:
        _send(bucket, blob, stream, size, replace=replace)
    if blob.crc32c != (announced or crc32c.encode(stream.crc)):
        remove(bucket, blob.name, str(blob.generation))
        raise Unavailable(f"{blob.name} arrived at GCS with another checksum")


def _send(bucket: Bucket, blob: Blob, file: Any, size: int | None, *, replace: bool) -> None:
    condition = {} if replace else {"if_generation_match": 0}
    blob.chunk_size = CHUNK
    try:
        # An empty type is none; without one the library sends application/octet-stream.
        bucket.call(
            blob.upload_from_file, file, size=size, content_type="", checksum=None, **condition
        )
    except NotFound as error:
        raise Unavailable(f"GCS bucket {bucket.name} takes nothing in: {error}") from error
    except ValueError as error:
        # The library does not continue a chunk of which only a part was stored.
        raise Unavailable(f"GCS broke off an upload: {error}") from error


def listed(bucket: Bucket, prefix: str, *, start: str = "", fields: str) -> Iterator[Blob]:
    """Objects under a prefix from a key on, in byte order, with these fields only."""
    found = bucket.list_blobs(prefix=prefix, start_offset=start, fields=fields)
    while (blob := bucket.guarded(lambda: next(found, None))) is not None:
        yield blob


def remove(bucket: Bucket, key: str, pin: str | None = None) -> None:
    """Delete an object; not an error when it is absent."""
    with suppress(NotFound):
        condition = {} if pin is None else {"if_generation_match": bucket.blob(key, pin).generation}
        bucket.call(bucket.blob(key).delete, **condition)


def head(bucket: Bucket, key: str) -> BlobInfo:
    """An object's description."""
    blob = bucket.blob(key)
    bucket.call(blob.reload)
    return make_info(blob)


def explain_mismatch(bucket: Bucket, key: str) -> StoreError:
    """Why a pin does not fit: there is nothing any more, or something else."""
    try:
        head(bucket, key)
    except StoreError as error:
        return error
    return SourceChanged(f"{key} is no longer what it was")


def read(
    bucket: Bucket, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Blocks of a range, as they are stored, all of one generation.

    What ends before the end that was asked for must be the object's own end: its size or its
    checksum shows that nothing was cut off.
    """
    blob = bucket.blob(key, pin)
    at, end, crc = start, None if length is None else start + length, 0
    while end is None or at < end:
        wanted = READ_BYTES if end is None else min(READ_BYTES, end - at)
        try:
            data = _download(bucket, blob, at, wanted)
        except RangeNotSatisfiable:
            if at == start and start > 0:
                raise
            data = b""
        except (NotFound, SourceChanged) as error:
            raise (
                error if pin is None and at == start else explain_mismatch(bucket, key)
            ) from error
        for offset in range(0, len(data), BLOCK):
            yield data[offset : offset + BLOCK]
        at, crc = at + len(data), crc32c.extend(crc, data)
        if len(data) < wanted:
            if at and (start > 0 or crc32c.encode(crc) != blob.crc32c):
                _expect_end(bucket, blob, at)
            return


def _download(bucket: Bucket, blob: Blob, start: int, count: int) -> bytes:
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
        raise Unavailable(f"GCS bucket {bucket.name} does not answer ranges of {blob.name}")
    return data


def _expect_end(bucket: Bucket, blob: Blob, at: int) -> None:
    with suppress(NotFound):
        bucket.call(blob.reload, if_generation_match=blob.generation)
        if blob.size == at:
            return
    raise Unavailable(f"GCS bucket {bucket.name} broke off {blob.name} after {at} bytes")
