"""An S3 bucket as a blob store, and depositors' objects in S3.

Pins are version ids in a versioned bucket, else ETags. Deletion removes older versions and delete
markers too, so that a purge leaves nothing.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Final

from botocore.exceptions import (
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
)

from storage import crc32c, errors, keys
from storage.blobs import s3_objects
from storage.blobs.clients import (
    CloudLimits,
    PerProcess,
    parse_bucket_url,
    translate_source_errors,
)
from storage.blobs.s3_client import S3BucketClient, S3Connection, S3Reply, S3Server
from storage.blobs.s3_objects import (
    TAGS_FOLLOW,
    explain_mismatch,
    make_header_params,
    make_info,
    merge_tags,
)
from storage.blobs.s3_upload import (
    MAX_COPY_BYTES,
    PART_CHECKSUM_HEADER,
    CopySource,
    S3Upload,
    ServerFeatures,
    abort_if_stale,
    copy_parts,
    copy_whole,
)
from storage.keys import check_key, check_response_headers
from storage.model import CHECKSUM_NAMES
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    DirectUploads,
    PresignedUpload,
    ProgressCallback,
)

MAX_PUT_BYTES: Final = 5 * 1024**3
"""Bytes that S3 takes in one PUT."""
_DECLARED_CHECKSUMS: Final = frozenset(f"store-{name}" for name in CHECKSUM_NAMES)
"""Metadata that declares the checksums of a source."""
_BUCKET_CHECK_S: Final = 60.0
"""Seconds for which a bucket that was seen counts as existing."""


def open_s3_blobs(url: str, limits: CloudLimits, *, tagged: bool = False) -> "S3Blobs":
    """Open the bucket of `s3://name?endpoint=&public=&region=&profile=`; nothing is requested yet.

    All options are optional; SettingsError names the ones that cannot be used. In a `tagged` bucket
    depositors put objects and describe them by tags: an object that does not declare its checksums
    as metadata costs one more call, for its tags.
    """
    name, server = parse_bucket_url(url, "s3", S3Server)
    return S3Blobs(name, server, *_share_connection(server, limits), tagged=tagged)


@cache
def _share_connection(
    server: S3Server, limits: CloudLimits
) -> tuple[PerProcess[S3Connection], ServerFeatures]:
    """All buckets of one server share its connections and its detected features."""
    return PerProcess(lambda: S3Connection(server, limits)), ServerFeatures()


class S3Blobs:
    """See BlobStore. Threads and forked children may share it; each process has its own client."""

    def __init__(
        self,
        name: str,
        server: S3Server,
        connected: PerProcess[S3Connection],
        features: ServerFeatures,
        *,
        tagged: bool = False,
    ) -> None:
        self.name = name
        self._tagged = tagged
        self._server, self._connected, self._features = server, connected, features
        self._bucket = S3BucketClient(name, connected)
        self._bucket_seen_at = -_BUCKET_CHECK_S

    def open_sibling(self, name: str) -> "S3Blobs":
        """Open another bucket with the same client; NotFoundError, or Forbidden to write."""
        sibling = S3BucketClient(name, self._connected, own=False)
        probe = sibling.call("create_multipart_upload", ".probe")
        with suppress(errors.NotFoundError, errors.Forbidden):
            sibling.call("abort_multipart_upload", ".probe", UploadId=probe["UploadId"])
        return S3Blobs(name, self._server, self._connected, self._features)

    def head(self, key: str) -> BlobInfo:
        """See BlobStore; one call, two where tags count."""
        check_key(key)
        return self._head_if_declared(key) or self._head(key)[0]

    def _head_if_declared(self, key: str) -> BlobInfo | None:
        """Return an object of a tagged bucket whose metadata declares all checksums, by one call.

        Its tags need not be read: they never contradict declared checksums.
        """
        info = s3_objects.look_up_fast(self._bucket, key) if self._tagged else None
        if info is None or TAGS_FOLLOW in info.metadata:
            return None
        # Empty values declare nothing.
        return info if all(info.metadata.get(name) for name in _DECLARED_CHECKSUMS) else None

    def _head(self, key: str, pin: str | None = None) -> tuple[BlobInfo, S3Reply]:
        try:
            info, reply = s3_objects.head_object(self._bucket, key, pin)
        except errors.NotFoundError:
            self._check_bucket()
            raise
        self._bucket_seen_at = time.monotonic()
        if TAGS_FOLLOW not in info.metadata and not self._tagged:
            return info, reply
        tags = s3_objects.get_tags(self._bucket, key, info.pin)
        return dataclasses.replace(info, metadata=merge_tags(info, tags)), reply

    def _check_bucket(self) -> None:
        """Raise Unavailable if the bucket is absent: a HEAD's 404 does not say what is missing."""
        if time.monotonic() - self._bucket_seen_at < _BUCKET_CHECK_S:
            return
        try:
            self._bucket.call("head_bucket")
        except errors.NotFoundError as error:
            raise errors.Unavailable(f"S3 bucket {self.name} does not exist") from error
        self._bucket_seen_at = time.monotonic()

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        check_key(key)
        yield from s3_objects.stream_object(self._bucket, key, pin=pin, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore; the server checks the bytes that arrive."""
        headers = make_header_params(key, content_type, metadata)
        reply: S3Reply | None = None
        # obstore cannot store the CRC-32C of blobs.
        if not key.startswith(keys.BLOBS):
            reply = self._bucket.small.put(
                self.name,
                key,
                data,
                content_type=content_type,
                metadata=headers["Metadata"],
                replace=replace,
            )
        reply = reply or self._bucket.call(
            "put_object",
            key,
            Body=data,
            ChecksumAlgorithm="CRC32C",
            ChecksumCRC32C=crc32c.encode_base64(crc32c.extend(0, data)),
            **headers,
            **({} if replace else {"IfNoneMatch": "*"}),
        )
        return make_info(key, len(data), reply, content_type=content_type, metadata=metadata)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> S3Upload:
        check_key(key)
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
        progress: ProgressCallback | None = None,
    ) -> BlobInfo | None:
        """See BlobStore; one call if `size` fits into one part."""
        if not isinstance(source, S3Blobs) or not self._shares_server(source):
            return None
        check_key(key)
        check_key(target_key)
        info = None
        if size is None or size > min(part_size, MAX_COPY_BYTES):
            info = source._find_source(key, pin)
            pin, size = info.pin, info.size
        copy_source = CopySource(source._bucket, key, pin)
        if info is None or size <= min(part_size, MAX_COPY_BYTES):
            return copy_whole(
                copy_source,
                self._bucket,
                target_key,
                size=size,
                features=self._features,
                progress=progress,
            )
        return copy_parts(
            copy_source,
            self._bucket,
            info,
            key=target_key,
            part_size=part_size,
            resume=resume,
            progress=progress,
        )

    def matches(self, key: str, *, size: int, etag: str) -> bool:
        check_key(key)
        return self._bucket.small.matches(self.name, key, size=size, etag=etag)

    def copy_unverified(
        self, source: BlobStore, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        if not isinstance(source, S3Blobs) or not self._shares_server(source):
            return False
        if not self._features.etags_are_md5.get(self.name):
            return False
        check_key(target_key)
        if not (is_free or self._features.conditional_copy) and s3_objects.object_exists(
            self._bucket, target_key
        ):
            return False
        return self._bucket.small.copy_unverified(source.name, key, self.name, target_key)

    def list_prefix(self, prefix: str) -> Mapping[str, BlobInfo]:
        entries = self._bucket.small.list_prefix(self.name, prefix)
        if entries is None:
            return {info.key: info for info in self.list(prefix)}
        return {key: make_info(key, size, reply) for key, (size, reply) in entries.items()}

    def _shares_server(self, other: "S3Blobs") -> bool:
        """Return whether one server can copy between both buckets with our credentials."""
        mine, theirs = self._server, other._server
        return (mine.endpoint, mine.profile) == (theirs.endpoint, theirs.profile)

    def _find_source(self, key: str, pin: str | None) -> BlobInfo:
        try:
            return self._head(key, pin)[0]
        except (errors.NotFoundError, errors.SourceChanged) as error:
            raise (error if pin is None else explain_mismatch(self._bucket, key)) from error

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; pins are ETags, in versioned buckets too."""
        return _list_objects(self._bucket, prefix, after)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore; deletes older versions, too."""
        check_key(key)
        if pin is None:
            s3_objects.delete_object(self._bucket, key)
            return
        with suppress(errors.NotFoundError):
            info, reply = self._head(key)
            if pin not in (info.pin, f"e:{reply['ETag']}"):
                raise errors.SourceChanged(f"{key} has changed")
            s3_objects.delete_pinned_object(self._bucket, key, info.pin)

    def write_metadata(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: ProgressCallback | None = None,
    ) -> BlobInfo:
        """See BlobStore; writes tags that name the ETag they describe.

        Only a `tagged` bucket reads the tags of objects that depositors put.
        """
        check_key(key)
        return s3_objects.write_metadata(self._bucket, key, metadata, pin)

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        check_key(key)
        headers = {"ResponseContentType": content_type, "ResponseContentDisposition": disposition}
        params = {name: value for name, value in headers.items() if value}
        check_response_headers(*params.values())
        location = {"Bucket": self.name, "Key": key}
        return self._connected().sign_url("get_object", expires_s, **location, **params)

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> PresignedUpload:
        """See BlobStore; a signature cannot limit the size, so the limit is that of S3."""
        check_key(key)
        # No x-amz header is signed, so servers reject all that are sent with the URL.
        url = self._connected().sign_url("put_object", expires_s, Bucket=self.name, Key=key)
        return PresignedUpload(url, {}, min(max_bytes, MAX_PUT_BYTES))

    def find_direct_uploads(self) -> DirectUploads:
        """See BlobStore; by the address of a signed URL, whose style depends on the server."""
        location = {"Bucket": self.name, "Key": "-"}
        url, _, _ = self._connected().sign_url("put_object", 1, **location).partition("-?")
        return DirectUploads(url, (PART_CHECKSUM_HEADER,))

    def direct_url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        pages = self._bucket.pages("list_multipart_uploads")
        uploads = [upload for page in pages for upload in page.get("Uploads", ())]
        return sum(abort_if_stale(self._bucket, upload, now - older_than_s) for upload in uploads)


def _list_objects(bucket: S3BucketClient, prefix: str, after: str = "") -> Iterator[BlobInfo]:
    for page in bucket.pages("list_objects_v2", Prefix=prefix, StartAfter=after):
        for entry in page.get("Contents", ()):
            info = make_info(entry["Key"], int(entry["Size"]), {"ETag": entry["ETag"]})
            at = entry.get("LastModified")
            yield dataclasses.replace(info, modified_us=at and int(at.timestamp() * 1_000_000))


def list_s3_sources(
    bucket: str, prefix: str, connect: Callable[[], S3Connection]
) -> Iterator[BlobInfo]:
    """List objects of a source bucket; see Sources."""
    with translate_source_errors(_is_unreadable_at_start):
        yield from _list_objects(S3BucketClient(bucket, connect, own=False), prefix)


class S3Source:
    """A depositor's object; see SourceObject. Credentials are ambient, or requests unsigned."""

    def __init__(self, bucket: str, key: str, connect: Callable[[], S3Connection]) -> None:
        self._bucket, self._key = S3BucketClient(bucket, connect, own=False), key

    def head(self) -> BlobInfo:
        """See SourceObject; reads tags only if metadata does not declare every checksum."""
        with translate_source_errors(_is_unreadable_at_start):
            info = s3_objects.look_up(self._bucket, self._key)
            if all(any(name.endswith(field) for name in info.metadata) for field in CHECKSUM_NAMES):
                return info
            return dataclasses.replace(
                info, metadata={**self._read_tags(info.pin), **info.metadata}
            )

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See SourceObject; a stream that breaks is resumed under the pin."""
        with translate_source_errors(_is_credential_error):
            yield from s3_objects.stream_object(
                self._bucket, self._key, pin=pin, start=start, length=length
            )

    def _read_tags(self, pin: str) -> dict[str, str]:
        """Return the object's tags; none without the permission to read them."""
        try:
            tags = s3_objects.get_tags(self._bucket, self._key, pin)
        except errors.Unavailable:
            raise
        except errors.DomainError:
            return {}
        return {name.lower(): value for name, value in tags.items()}


def _is_credential_error(cause: BaseException | None) -> bool:
    return isinstance(
        cause, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError
    )


def _is_unreadable_at_start(cause: BaseException | None) -> bool:
    """Return whether a deposit cannot begin: also if no server or bucket region is found.

    Later such a fault may pass, like every 5xx.
    """
    status = getattr(cause, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    is_unreachable = isinstance(cause, EndpointConnectionError | ConnectTimeoutError)
    # A redirect names a region that the client did not find.
    return is_unreachable or status in (301, 307) or _is_credential_error(cause)
