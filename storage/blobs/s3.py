"""A bucket of S3, or of a server that speaks like it, as a blob store.

The bucket may keep versions or not: pins are version ids or entity tags. What is deleted is gone in
either, so that a purge means what it says: older versions and delete markers are removed too.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as changed
from functools import cache
from typing import Any, Final

from storage import crc32c, keys
from storage.blobs import s3_objects
from storage.blobs.clients import Limits, PerProcess
from storage.blobs.layout import checked
from storage.blobs.s3_client import Bucket, Connection, Reply, Server
from storage.blobs.s3_copy import AT_ONCE, Habit, Original, copy_parts, copy_whole
from storage.blobs.s3_metadata import MARK, in_headers, with_tags
from storage.blobs.s3_objects import explain_mismatch, make_info
from storage.blobs.s3_upload import S3Upload, abort_if_stale
from storage.blobs.urls import taken_apart
from storage.errors import Forbidden, Invalid, NotFound, SourceChanged, Unavailable
from storage.model import CHECKSUMS
from storage.protocols import DEFAULT_TYPE, BlobInfo, BlobStore, Progress, SignedUpload

AT_ONCE_MAX: Final = 5 * 1024**3
"""Bytes that S3 takes in one PUT."""
_DECLARED: Final = frozenset(f"store-{name}" for name in CHECKSUMS)
"""Metadata by which an object may be a source."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SURE_S: Final = 60.0
"""Seconds for which a bucket that was seen counts as there."""


def open_bucket(url: str, limits: Limits, *, tagged: bool = False) -> "S3Blobs":
    """The bucket of `s3://name?endpoint=&public=&region=&profile=`, not yet touched; all options
    may be absent. SettingsError names what cannot be used. In a `tagged` one others put objects,
    which are described by tags: those of every object count that does not declare its checksums, at
    the price of one more call."""
    name, options = taken_apart(url, "s3", frozenset(Server.__slots__))
    server = Server(**options)
    return S3Blobs(name, server, *_shared(server, limits), tagged=tagged)


@cache
def _shared(server: Server, limits: Limits) -> tuple[PerProcess[Connection], Habit]:
    """All buckets of one server share its connections, and what is known of it."""
    return PerProcess(lambda: Connection(server, limits)), Habit()


class S3Blobs:
    """See BlobStore. Threads may share it, and forked children: each makes its own client."""

    def __init__(
        self,
        name: str,
        server: Server,
        connected: PerProcess[Connection],
        habit: Habit,
        *,
        tagged: bool = False,
    ) -> None:
        self.name = name
        self._tagged = tagged
        self._server, self._connected, self._habit = server, connected, habit
        self._bucket = Bucket(name, lambda: connected().client, small=lambda: connected().small)
        self._seen = -_SURE_S

    def sibling(self, name: str) -> "S3Blobs":
        """Another bucket by the same client; NotFound when there is none, Forbidden when it is not
        ours to write, which only trying tells."""
        other = Bucket(name, self._bucket.client, own=False)
        probe = other.call("create_multipart_upload", ".probe")
        with suppress(NotFound, Forbidden):
            other.call("abort_multipart_upload", ".probe", UploadId=probe["UploadId"])
        return S3Blobs(name, self._server, self._connected, self._habit)

    def head(self, key: str) -> BlobInfo:
        """See BlobStore; one call, two where tags count."""
        checked(key)
        return self._declared(key) or self._head(key)[0]

    def _declared(self, key: str) -> BlobInfo | None:
        """An object of a tagged bucket whose own metadata has all checksums, by one cheap call. Its
        tags would say the same: what is declared otherwise than it is gets none."""
        info = s3_objects.look_cheaply(self._bucket, key) if self._tagged else None
        if info is None or MARK in info.metadata:
            return None
        # What is empty declares nothing.
        return info if all(info.metadata.get(name) for name in _DECLARED) else None

    def _head(self, key: str, pin: str | None = None) -> tuple[BlobInfo, Reply]:
        try:
            info, reply = s3_objects.head(self._bucket, key, pin)
        except NotFound:
            self._expect_bucket()
            raise
        self._seen = time.monotonic()
        if MARK not in info.metadata and not self._tagged:
            return info, reply
        tags = s3_objects.get_tags(self._bucket, key, info.pin)
        return changed(info, metadata=with_tags(info, tags)), reply

    def _expect_bucket(self) -> None:
        """Unavailable when there is no such bucket: a HEAD's 404 has no words to say which."""
        if time.monotonic() - self._seen < _SURE_S:
            return
        try:
            self._bucket.call("head_bucket")
        except NotFound as error:
            raise Unavailable(f"there is no S3 bucket {self.name}") from error
        self._seen = time.monotonic()

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        checked(key)
        yield from s3_objects.stream(self._bucket, key, pin=pin, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore; what arrives is checked by the server."""
        headers = in_headers(key, content_type, metadata)
        reply = self._put_small(key, data, headers, replace) or self._put(
            key, data, headers, replace
        )
        return make_info(key, len(data), reply, content_type=content_type, metadata=metadata)

    def _put_small(
        self, key: str, data: bytes, headers: Mapping[str, Any], replace: bool
    ) -> Reply | None:
        """By obstore, which cannot store a CRC-32C: that of a blob is compared by each HEAD."""
        if key.startswith(keys.BLOBS):
            return None
        return self._connected().small.put(
            self.name,
            key,
            data,
            content_type=headers["ContentType"],
            metadata=headers["Metadata"],
            replace=replace,
        )

    def _put(self, key: str, data: bytes, headers: Mapping[str, Any], replace: bool) -> Reply:
        return self._bucket.call(
            "put_object",
            key,
            Body=data,
            ChecksumAlgorithm="CRC32C",
            ChecksumCRC32C=crc32c.encode(crc32c.extend(0, data)),
            **headers,
            **({} if replace else {"IfNoneMatch": "*"}),
        )

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> S3Upload:
        """See BlobStore."""
        checked(key)
        if token is not None:
            return S3Upload.resume(self._bucket, key, token, part_size)
        return S3Upload.begin(
            self._bucket, key, part_size=part_size, content_type=content_type, metadata=metadata
        )

    def copy(
        self,
        source: BlobStore,
        key: str,
        target_key: str,
        *,
        pin: str | None,
        part_size: int,
        size: int | None = None,
        resume: str | None = None,
        progress: Progress | None = None,
    ) -> BlobInfo | None:
        """See BlobStore; one call where `size` tells that one part will do."""
        if not isinstance(source, S3Blobs) or not self._reaches(source):
            return None
        checked(key)
        checked(target_key)
        found = None
        if size is None or size > min(part_size, AT_ONCE):
            found = source._found(key, pin)
            pin, size = found.pin, found.size
        original = Original(source._bucket, key, pin)
        if found is None or size <= min(part_size, AT_ONCE):
            return copy_whole(
                original,
                self._bucket,
                target_key,
                size=size,
                habit=self._habit,
                progress=progress,
            )
        return copy_parts(
            original,
            self._bucket,
            found,
            key=target_key,
            part_size=part_size,
            resume=resume,
            progress=progress,
        )

    def matches(self, key: str, *, size: int, etag: str) -> bool:
        """See EtagStore."""
        checked(key)
        return self._connected().small.matches(self.name, key, size=size, etag=etag)

    def copy_unread(
        self, source: BlobStore, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        """See BulkTarget."""
        if not isinstance(source, S3Blobs) or not self._reaches(source):
            return False
        if not self._habit.digests.get(self.name):
            return False
        checked(target_key)
        if not (is_free or self._habit.heeds) and s3_objects.exists(self._bucket, target_key):
            return False
        return self._connected().small.copy_unread(source.name, key, self.name, target_key)

    def list_below(self, prefix: str) -> Mapping[str, BlobInfo]:
        """See BulkTarget."""
        found = self._connected().small.list_below(self.name, prefix)
        if found is None:
            return {info.key: info for info in self.list(prefix)}
        return {key: make_info(key, size, reply) for key, (size, reply) in found.items()}

    def _reaches(self, other: "S3Blobs") -> bool:
        """True when one server would copy from there with the credentials that we have."""
        mine, theirs = self._server, other._server
        return (mine.endpoint, mine.profile) == (theirs.endpoint, theirs.profile)

    def _found(self, key: str, pin: str | None) -> BlobInfo:
        try:
            return self._head(key, pin)[0]
        except (NotFound, SourceChanged) as error:
            raise (error if pin is None else explain_mismatch(self._bucket, key)) from error

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; pins are entity tags, in versioned buckets too."""
        wanted: dict[str, Any] = {"Prefix": prefix, "StartAfter": after}
        while True:
            page = self._bucket.call("list_objects_v2", **wanted)
            for entry in page.get("Contents", ()):
                info = make_info(entry["Key"], int(entry["Size"]), {"ETag": entry["ETag"]})
                at = entry.get("LastModified")
                yield changed(info, modified_us=at and int(at.timestamp() * 1_000_000))
            if not page.get("IsTruncated"):
                return
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore; nothing of it is left behind, older versions neither."""
        checked(key)
        if pin is None:
            s3_objects.delete(self._bucket, key)
            return
        with suppress(NotFound):
            info, reply = self._head(key)
            if pin not in (info.pin, f"e:{reply['ETag']}"):
                raise SourceChanged(f"{key} is no longer what it was")
            s3_objects.delete_pinned(self._bucket, key, info.pin)

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """See BlobStore; by tags, which say of which bytes they are. Only a `tagged` bucket sees
        them at objects that were not ours."""
        checked(key)
        return s3_objects.describe(self._bucket, key, metadata, pin)

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """See BlobStore."""
        checked(key)
        headers = {"ResponseContentType": content_type, "ResponseContentDisposition": disposition}
        params = {name: value for name, value in headers.items() if value}
        if any(_CONTROL.search(value) for value in params.values()):
            raise Invalid("response headers hold no control characters")
        where = {"Bucket": self.name, "Key": key}
        return self._connected().sign_url("get_object", expires_s, **where, **params)

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """See BlobStore; of sizes a signature says nothing, so the limit is S3's."""
        checked(key)
        # No header of S3's own is signed: servers then refuse each that comes with the URL.
        url = self._connected().sign_url("put_object", expires_s, Bucket=self.name, Key=key)
        return SignedUpload(url, {}, min(max_bytes, AT_ONCE_MAX))

    def direct_url(self, key: str) -> str:
        """See BlobStore."""
        return f"s3://{self.name}/{key}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        before = now - older_than_s
        return sum(abort_if_stale(self._bucket, upload, before) for upload in self._uploads())

    def _uploads(self) -> Sequence[Reply]:
        """All unfinished uploads."""
        found: list[Reply] = []
        params: dict[str, Any] = {}
        while True:
            page = self._bucket.call("list_multipart_uploads", **params)
            found.extend(page.get("Uploads", ()))
            if not page.get("IsTruncated"):
                return found
            params["KeyMarker"] = page["NextKeyMarker"]
            params["UploadIdMarker"] = page["NextUploadIdMarker"]
