"""A bucket of Google Cloud Storage as a blob store.

Pins are generations. The bucket needs no versioning and no metadata of its own. Unfinished uploads
lie under a prefix that listings leave out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from google.auth.exceptions import GoogleAuthError
from google.cloud.storage import Blob

from storage.blobs import gcs_objects, gcs_upload
from storage.blobs.clients import Limits, PerProcess
from storage.blobs.envelope import checked_head
from storage.blobs.gcs_client import Bucket, GcsClient, Server
from storage.blobs.gcs_objects import describe_blob, explain_mismatch, make_info
from storage.blobs.gcs_upload import HIDDEN, GcsUpload, UploadStart
from storage.blobs.layout import checked
from storage.blobs.urls import taken_apart
from storage.crc32c import encode
from storage.errors import Invalid, NotFound, SourceChanged, StoreError, Unavailable
from storage.protocols import BLOCK, DEFAULT_TYPE, BlobInfo, BlobStore, Progress, SignedUpload

LONGEST_S: Final = 7 * 24 * 3600
"""GCS accepts no signed URL that is valid for longer."""
_ONE_COPY: Final = 8 * BLOCK
"""Objects up to this size are copied by one call, larger ones by rewrites with tokens."""
_BEYOND_HIDDEN: Final = HIDDEN[:-1] + chr(ord("/") + 1)
"""The first key after all hidden ones."""
_LISTED: Final = "items(name,size,generation,updated),nextPageToken"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def open_bucket(url: str, limits: Limits) -> "GcsBlobs":
    """Open the bucket of `gs://name?endpoint=&public=&project=`; nothing is requested yet.

    Raises SettingsError for options that cannot be used.
    """
    name, options = taken_apart(url, "gs", frozenset(Server.__slots__))
    server = Server(**options)
    return GcsBlobs(name, server, _shared(server, limits))


@cache
def _shared(server: Server, limits: Limits) -> PerProcess[GcsClient]:
    """All buckets of one server share its connections."""
    return PerProcess(lambda: GcsClient(server, limits))


class GcsBlobs:
    """See BlobStore. Threads and forked children may share it; each process has its own client."""

    def __init__(self, name: str, server: Server, client: PerProcess[GcsClient]) -> None:
        self.name = name
        self._server, self._client = server, client
        self._bucket = Bucket(name, client)

    def sibling(self, name: str) -> "GcsBlobs":
        """Another bucket by the same client; NotFound if there is none, Forbidden if it is not ours
        to write. The upload session that tries it holds no bytes, and GCS ends it after a week."""
        bucket = Bucket(name, self._client, own=False)
        bucket.call(bucket.blob(HIDDEN + "probe").create_resumable_upload_session)
        return GcsBlobs(name, self._server, self._client)

    def head(self, key: str) -> BlobInfo:
        """See BlobStore."""
        _checked(key)
        return gcs_objects.head(self._bucket, key)

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        _checked(key)
        yield from gcs_objects.read(self._bucket, key, pin=pin, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore."""
        _checked(key)
        checked_head(key, content_type, metadata)
        blob = self._bucket.blob(key)
        describe_blob(blob, content_type, metadata)
        gcs_objects.insert(self._bucket, blob, data, replace=replace)
        return make_info(blob)

    def put_stream(self, key: str, blocks: Iterable[bytes], *, size: int, crc32c: str) -> BlobInfo:
        """See StreamTarget: one upload session, which ends when all bytes are there."""
        _checked(key)
        blob = self._bucket.blob(key)
        blob.crc32c = encode(int(crc32c, 16))
        gcs_objects.insert_stream(self._bucket, blob, blocks, most=size, size=size)
        return make_info(blob)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> GcsUpload:
        """See BlobStore."""
        _checked(key)
        if token is not None:
            return GcsUpload.resume(self._bucket, key, token)
        start = UploadStart(key, part_size, content_type, dict(metadata or {}))
        return GcsUpload.begin(self._bucket, start)

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
        """See BlobStore; GCS needs no parts."""
        if not isinstance(source, GcsBlobs) or source._server.endpoint != self._server.endpoint:
            return None
        _checked(key)
        _checked(target_key)
        if progress:
            progress(resume or "", 0)
        try:
            if size is not None and size <= _ONE_COPY:
                target = self._copy_at_once(source, key, target_key, pin)
            else:
                target = self._rewrite(source, key, target_key, pin, resume, progress)
        except NotFound as error:
            raise self._copy_failure(source, key, pin, error) from error
        info = make_info(target)
        if progress:
            progress("", info.size)
        return info

    def _copy_at_once(self, source: "GcsBlobs", key: str, target_key: str, pin: str | None) -> Blob:
        origin = source._bucket.blob(key)
        return self._bucket.call(
            origin.bucket.copy_blob,
            origin,
            self._bucket.blob(target_key).bucket,
            target_key,
            source_generation=pin,
            if_generation_match=0,
        )

    def _rewrite(
        self,
        source: "GcsBlobs",
        key: str,
        target_key: str,
        pin: str | None,
        token: str | None,
        progress: Progress | None,
    ) -> Blob:
        """Copy an object of any size. The library always sends a description of the target, and
        GCS then takes nothing from the source's: it has to be repeated."""
        origin, target = source._bucket.blob(key, pin), self._bucket.blob(target_key)
        source._bucket.call(origin.reload)
        target.metadata, target.content_type = origin.metadata, origin.content_type

        def step(token: str | None) -> Any:
            return self._bucket.call(target.rewrite, origin, token=token, if_generation_match=0)

        try:
            token, done, _ = step(token or None)
        except (NotFound, Invalid, SourceChanged):
            if not token:
                raise
            # A token that expired, or that belongs to other bytes: from the beginning.
            token, done, _ = step(None)
        while token:
            if progress:
                progress(token, done)
            token, done, _ = step(token)
        return target

    def _copy_failure(
        self, source: "GcsBlobs", key: str, pin: str | None, error: StoreError
    ) -> StoreError:
        """What a 404 means: the source is gone or changed, or a bucket does not exist."""
        why = explain_mismatch(source._bucket, key)
        if not isinstance(why, SourceChanged):
            return why
        try:
            self._bucket.expect()
        except StoreError:
            return Unavailable(f"GCS bucket {self.name} is absent")
        return why if pin is not None else error

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; unfinished uploads, of which there may be thousands, are skipped."""
        for start in (after, max(after, _BEYOND_HIDDEN, key=str.encode)):
            for blob in gcs_objects.listed(self._bucket, prefix, start=start, fields=_LISTED):
                if blob.name.startswith(HIDDEN):
                    break
                if blob.name != after:
                    stored_us = int(blob.updated.timestamp() * 1_000_000)
                    pin = str(blob.generation)
                    yield BlobInfo(blob.name, blob.size, pin, modified_us=stored_us)
            else:
                return

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore."""
        _checked(key)
        gcs_objects.remove(self._bucket, key, pin)

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """See BlobStore; the generation stays the same."""
        _checked(key)
        try:
            blob = self._bucket.blob(key, pin)
            self._bucket.call(blob.reload, if_generation_match=blob.generation)
            info = make_info(blob)
            checked_head(key, info.content_type or "", {**info.metadata, **metadata})
            blob.metadata = dict(metadata)
            self._bucket.call(blob.patch, if_generation_match=blob.generation)
        except (NotFound, SourceChanged) as error:
            raise explain_mismatch(self._bucket, key) from error
        return make_info(blob)

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """See BlobStore; without a key of our own each URL is a request to IAM."""
        if any(_CONTROL.search(value or "") for value in (content_type, disposition)):
            raise Invalid("response headers hold no control characters")
        return self._signed(
            key,
            "GET",
            expires_s,
            response_type=content_type or None,
            response_disposition=disposition or None,
        )

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """See BlobStore; GCS limits the body to the range in the header."""
        headers = {"x-goog-content-length-range": f"0,{max_bytes}"}
        url = self._signed(key, "PUT", expires_s, headers=dict(headers))
        return SignedUpload(url, headers, max_bytes)

    def _signed(self, key: str, method: str, expires_s: int, **options: object) -> str:
        _checked(key)
        blob = self._bucket.blob(key)
        try:
            client = self._client()
            return str(
                blob.generate_signed_url(
                    version="v4",
                    method=method,
                    expiration=min(expires_s, LONGEST_S),
                    api_access_endpoint=client.public,
                    credentials=client.signing_credentials(),
                    **options,
                )
            )
        except GoogleAuthError as error:
            raise Unavailable(f"GCS signs no URL for us: {error}") from error

    def direct_url(self, key: str) -> str:
        """See BlobStore."""
        return f"gs://{self.name}/{key}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        return gcs_upload.sweep(self._bucket, before=now - older_than_s)


def _checked(key: str) -> None:
    """Invalid if it cannot be a key here."""
    checked(key)
    if key in (".", "..") or key.startswith(HIDDEN):
        raise Invalid("GCS takes no such key")
