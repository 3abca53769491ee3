"""An upload into GCS: components under a hidden prefix that are composed into the object.

GCS's own multipart uploads take no precondition, a compose does. Beside the components
(`.uploads/<token>/00001`) lies what the upload was started with (`words`), so that any process can
continue it. Without that the upload is gone: every step looks for it first.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar

from google.cloud.storage import Blob

from storage.blobs.envelope import checked_head
from storage.blobs.gcs_client import Bucket
from storage.blobs.gcs_objects import (
    describe_blob,
    insert,
    insert_stream,
    listed,
    make_info,
    read,
    remove,
)
from storage.errors import AlreadyExists, Invalid, NotFound, StoreError, Unavailable
from storage.protocols import BlobInfo

T = TypeVar("T")
R = TypeVar("R")

HIDDEN: Final = ".uploads/"
"""Prefix of everything unfinished."""
MAX_PARTS: Final = 10_000
_COMPOSED: Final = 32
"""Objects that one compose joins."""
_PARALLEL: Final = 8
_TOKEN: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{5}", re.ASCII)
_START: Final = "words"


@dataclass(frozen=True, slots=True)
class UploadStart:
    """What an upload was started with; stored as JSON, a format that outlives a release."""

    key: str
    part_size: int
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class GcsUpload:
    """One unfinished object; any number of parts may be sent at once."""

    def __init__(self, bucket: Bucket, token: str, start: UploadStart) -> None:
        self._bucket, self._token, self._start = bucket, token, start

    @classmethod
    def begin(cls, bucket: Bucket, start: UploadStart) -> "GcsUpload":
        """A new upload."""
        checked_head(start.key, start.content_type, start.metadata)
        if start.part_size < 1:
            raise Invalid("a part has at least one byte")
        token = secrets.token_hex(16)
        text = {name: getattr(start, name) for name in UploadStart.__slots__}
        insert(bucket, bucket.blob(_path(token, _START)), json.dumps(text).encode())
        return cls(bucket, token, start)

    @classmethod
    def resume(cls, bucket: Bucket, key: str, token: str) -> "GcsUpload":
        """The upload that a token names; NotFound when it is gone, done or of another key."""
        if not _TOKEN.fullmatch(token):
            raise NotFound("no such upload")
        blocks = read(bucket, _path(token, _START), pin=None, start=0, length=None)
        start = UploadStart(**json.loads(b"".join(blocks)))
        if start.key != key:
            raise NotFound("no such upload")
        return cls(bucket, token, start)

    @property
    def token(self) -> str:
        """See Upload."""
        return self._token

    @property
    def part_size(self) -> int:
        """Bytes of every part but the last."""
        return self._start.part_size

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """See Upload."""
        if not 1 <= number <= MAX_PARTS:
            raise Invalid(f"part numbers are 1 to {MAX_PARTS}")
        self._bucket.call(self._bucket.blob(_path(self._token, _START)).reload)
        blob = self._bucket.blob(_path(self._token, f"{number:05}"))
        insert_stream(self._bucket, blob, blocks, most=self.part_size, replace=True)

    def parts(self) -> Mapping[int, int]:
        """See Upload."""
        return {number: part.size for number, part in self._components().items()}

    def _components(self) -> dict[int, Blob]:
        fields = "items(name,size,generation),nextPageToken"
        found = listed(self._bucket, _path(self._token), fields=fields)
        names = {blob.name.rpartition("/")[2]: blob for blob in found}
        if _START not in names:
            raise NotFound("no such upload")
        return {int(name): blob for name, blob in names.items() if _NUMBER.fullmatch(name)}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See Upload."""
        start = self._start
        kept = {**start.metadata, **(metadata or {})}
        checked_head(start.key, start.content_type, kept)
        parts = _whole(self._components(), start.part_size)
        blob = self._bucket.blob(start.key)
        describe_blob(blob, start.content_type, kept)
        try:
            self._join(parts, blob, replace=replace)
        except AlreadyExists:
            self.abort()
            raise
        # The object is there: what cannot be deleted now is left to the sweep.
        with suppress(StoreError):
            self.abort()
        return make_info(blob)

    def _join(self, parts: Sequence[Blob], blob: Blob, *, replace: bool) -> None:
        if not parts:
            insert(self._bucket, blob, b"", replace=replace)
            return
        try:
            _compose(self._bucket, self._reduced(parts), blob, replace=replace)
        except NotFound as error:
            self._components()
            raise Unavailable("a part was stored again meanwhile") from error

    def _reduced(self, parts: Sequence[Blob], level: int = 1) -> Sequence[Blob]:
        """As many objects as one compose takes, made of the parts in as many rounds as needed."""
        if len(parts) <= _COMPOSED:
            return parts
        groups = [parts[n : n + _COMPOSED] for n in range(0, len(parts), _COMPOSED)]

        def join(number: int) -> Blob:
            blob = self._bucket.blob(_path(self._token, f"joined-{level}-{number:05}"))
            _compose(self._bucket, groups[number], blob, replace=True)
            return blob

        return self._reduced(_in_parallel(join, range(len(groups))), level + 1)

    def abort(self) -> None:
        """See Upload."""
        _forget(self._bucket, self._token)


def _compose(bucket: Bucket, parts: Sequence[Blob], blob: Blob, *, replace: bool) -> None:
    """Join up to 32 objects, exactly these generations of them."""
    condition: dict[str, Any] = {} if replace else {"if_generation_match": 0}
    bucket.call(blob.compose, parts, **condition)


def sweep(bucket: Bucket, *, before: float) -> int:
    """Abort uploads of which nothing was stored since a POSIX time; return how many."""
    aborted = 0
    blobs = listed(bucket, HIDDEN, fields="items(name,updated),nextPageToken")
    for token, group in groupby(blobs, lambda blob: blob.name.split("/")[1]):
        if max(blob.updated.timestamp() for blob in group) < before:
            _forget(bucket, token)
            aborted += 1
    return aborted


def _forget(bucket: Bucket, token: str) -> None:
    """Delete all objects of an upload; its start goes first, so that nobody continues it."""
    remove(bucket, _path(token, _START))
    left = listed(bucket, _path(token), fields="items(name),nextPageToken")
    _in_parallel(lambda name: remove(bucket, name), [blob.name for blob in left])


def _path(token: str, name: str = "") -> str:
    return f"{HIDDEN}{token}/{name}"


def _whole(parts: Mapping[int, Blob], part_size: int) -> list[Blob]:
    """All parts in order; Invalid unless they join without a gap."""
    if sorted(parts) != list(range(1, len(parts) + 1)):
        raise Invalid("a part is missing")
    ordered = [parts[number] for number in sorted(parts)]
    if any(part.size != part_size for part in ordered[:-1]):
        raise Invalid("a part that is not the last is short")
    return ordered


def _in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(function, items))
