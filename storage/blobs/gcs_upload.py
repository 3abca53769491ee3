"""Multipart uploads to GCS, composed from hidden component objects.

GCS's own multipart uploads take no precondition, a compose does. Beside the components
(`.uploads/<token>/00001`) an object `words` holds the arguments of the upload, so that any process
can continue it. Without that object the upload does not exist: every step reads it first.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar

from google.cloud.storage import Blob

from storage.blobs.gcs_client import GcsBucketClient
from storage.blobs.gcs_objects import (
    delete_object,
    insert_object,
    insert_object_stream,
    list_objects,
    make_info,
    read_object,
    set_blob_metadata,
)
from storage.crc32c import encode_base64
from storage.errors import AlreadyExists, DomainError, NotFoundError, Unavailable
from storage.keys import check_metadata
from storage.protocols import (
    BlobInfo,
    PresignedUpload,
    check_part_number,
    check_part_size,
    check_parts,
)

T = TypeVar("T")
R = TypeVar("R")

HIDDEN_PREFIX: Final = ".uploads/"
"""Prefix of everything unfinished."""
PART_HEADERS: Final = ("x-goog-content-length-range", "x-goog-hash")
"""Headers of a presigned part."""
_MAX_COMPOSE: Final = 32
"""Objects that one compose joins."""
_PARALLEL_CALLS: Final = 8
_UPLOAD_TOKEN: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PART_NUMBER: Final = re.compile(r"[0-9]{5}", re.ASCII)
_START_NAME: Final = "words"


@dataclass(frozen=True, slots=True)
class UploadStart:
    """Arguments of an upload; stored as JSON in a frozen format."""

    key: str
    part_size: int
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class GcsUpload:
    """See MultipartUpload. Any number of parts may be sent at once."""

    def __init__(self, bucket: GcsBucketClient, token: str, start: UploadStart) -> None:
        self._bucket, self.token, self._start = bucket, token, start
        self.part_size = start.part_size

    @classmethod
    def begin(cls, bucket: GcsBucketClient, start: UploadStart) -> "GcsUpload":
        """Begin a new upload."""
        check_metadata(start.content_type, start.metadata)
        check_part_size(start.part_size)
        token = secrets.token_hex(16)
        blob = bucket.blob(_component_path(token, _START_NAME))
        insert_object(bucket, blob, json.dumps(asdict(start)).encode())
        return cls(bucket, token, start)

    @classmethod
    def resume(cls, bucket: GcsBucketClient, key: str, token: str) -> "GcsUpload":
        """Resume the upload of a token; NotFoundError if it is gone, complete or of another key."""
        if not _UPLOAD_TOKEN.fullmatch(token):
            raise NotFoundError("the upload does not exist")
        blocks = read_object(
            bucket, _component_path(token, _START_NAME), pin=None, start=0, length=None
        )
        start = UploadStart(**json.loads(b"".join(blocks)))
        if start.key != key:
            raise NotFoundError("the upload does not exist")
        return cls(bucket, token, start)

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        check_part_number(number)
        self._bucket.call(self._bucket.blob(_component_path(self.token, _START_NAME)).reload)
        blob = self._bucket.blob(_component_path(self.token, f"{number:05}"))
        insert_object_stream(self._bucket, blob, blocks, most=self.part_size, replace=True)

    def parts(self) -> Mapping[int, int]:
        return {number: part.size for number, part in self._list_components().items()}

    def _list_components(self) -> dict[int, Blob]:
        fields = "items(name,size,generation),nextPageToken"
        found = list_objects(self._bucket, _component_path(self.token), fields=fields)
        names = {blob.name.rpartition("/")[2]: blob for blob in found}
        if _START_NAME not in names:
            raise NotFoundError("the upload does not exist")
        return {int(name): blob for name, blob in names.items() if _PART_NUMBER.fullmatch(name)}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        start = self._start
        kept = {**start.metadata, **(metadata or {})}
        check_metadata(start.content_type, kept)
        components = self._list_components()
        check_parts({number: part.size for number, part in components.items()}, self.part_size)
        parts = [components[number] for number in sorted(components)]
        blob = self._bucket.blob(start.key)
        set_blob_metadata(blob, start.content_type, kept)
        try:
            self._join(parts, blob, replace=replace)
        except AlreadyExists:
            self.abort()
            raise
        # The object exists: the sweep deletes leftover components.
        with suppress(DomainError):
            self.abort()
        return make_info(blob)

    def _join(self, parts: Sequence[Blob], blob: Blob, *, replace: bool) -> None:
        if not parts:
            insert_object(self._bucket, blob, b"", replace=replace)
            return
        condition: dict[str, Any] = {} if replace else {"if_generation_match": 0}
        try:
            # Exactly these generations.
            self._bucket.call(blob.compose, self._compose_rounds(parts), **condition)
        except NotFoundError as error:
            self._list_components()
            raise Unavailable("a part was stored again meanwhile") from error

    def _compose_rounds(self, parts: Sequence[Blob], level: int = 1) -> Sequence[Blob]:
        """Join parts in rounds, until one compose can take what is left."""
        if len(parts) <= _MAX_COMPOSE:
            return parts
        groups = [parts[n : n + _MAX_COMPOSE] for n in range(0, len(parts), _MAX_COMPOSE)]

        def join(number: int) -> Blob:
            blob = self._bucket.blob(_component_path(self.token, f"joined-{level}-{number:05}"))
            self._bucket.call(blob.compose, groups[number])
            return blob

        return self._compose_rounds(_run_parallel(join, range(len(groups))), level + 1)

    def abort(self) -> None:
        _delete_upload(self._bucket, self.token)

    def sign_part(
        self, number: int, *, length: int, crc32c: int, expires_s: int
    ) -> PresignedUpload:
        """See MultipartUpload.

        A component that comes after the end of its upload is swept: no object is made of it.
        """
        check_part_number(number)
        values = (f"{length},{length}", f"crc32c={encode_base64(crc32c)}")
        headers = dict(zip(PART_HEADERS, values, strict=True))
        path = _component_path(self.token, f"{number:05}")
        url = self._bucket.sign_url(path, "PUT", expires_s, headers=dict(headers))
        return PresignedUpload(url, headers, length)


def sweep_uploads(bucket: GcsBucketClient, *, before: float) -> int:
    """Abort uploads that stored nothing since a POSIX time; return how many."""
    aborted = 0
    blobs = list_objects(bucket, HIDDEN_PREFIX, fields="items(name,updated),nextPageToken")
    for token, group in groupby(blobs, lambda blob: blob.name.split("/")[1]):
        if max(blob.updated.timestamp() for blob in group) < before:
            _delete_upload(bucket, token)
            aborted += 1
    return aborted


def _delete_upload(bucket: GcsBucketClient, token: str) -> None:
    """Delete all objects of an upload; `words` first, so that no process continues it."""
    delete_object(bucket, _component_path(token, _START_NAME))
    left = list_objects(bucket, _component_path(token), fields="items(name),nextPageToken")
    _run_parallel(lambda name: delete_object(bucket, name), [blob.name for blob in left])


def _component_path(token: str, name: str = "") -> str:
    return f"{HIDDEN_PREFIX}{token}/{name}"


def _run_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        return list(pool.map(function, items))
