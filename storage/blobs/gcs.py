"""A GCS bucket as a blob store, and depositors' objects in GCS.

Pins are generations. The bucket needs no versioning. Unfinished uploads are stored under a prefix
that listings skip.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud.storage import Blob
from requests import ConnectionError as RequestsConnectionError
from requests import ConnectTimeout
from urllib3.exceptions import NewConnectionError

from storage import errors
from storage.blobs import gcs_objects, gcs_upload
from storage.blobs.clients import (
    CloudLimits,
    PerProcess,
    parse_bucket_url,
    translate_source_errors,
)
from storage.blobs.gcs_client import GcsBucketClient, GcsClient, GcsServer
from storage.blobs.gcs_objects import explain_mismatch, make_info, set_blob_metadata
from storage.blobs.gcs_upload import HIDDEN_PREFIX, PART_HEADERS, GcsUpload, UploadStart
from storage.crc32c import encode_base64
from storage.keys import check_key, check_metadata, check_response_headers
from storage.protocols import (
    BLOCK,
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    DirectUploads,
    PresignedUpload,
    ProgressCallback,
)

_MAX_SINGLE_COPY: Final = 8 * BLOCK
"""Objects up to this size are copied by one call, larger ones by rewrites with tokens."""
_AFTER_HIDDEN: Final = HIDDEN_PREFIX[:-1] + chr(ord("/") + 1)
"""The first key after all hidden ones."""
_LIST_FIELDS: Final = "items(name,size,generation,updated),nextPageToken"


def open_gcs_blobs(url: str, limits: CloudLimits) -> "GcsBlobs":
    """Open the bucket of `gs://name?endpoint=&public=&project=`; nothing is requested yet.

    Raises SettingsError for options that cannot be used.
    """
    name, server = parse_bucket_url(url, "gs", GcsServer)
    return GcsBlobs(name, server, _share_client(server, limits))


@cache
def _share_client(server: GcsServer, limits: CloudLimits) -> PerProcess[GcsClient]:
    """All buckets of one server share its connections."""
    return PerProcess(lambda: GcsClient(server, limits))


class GcsBlobs:
    """See BlobStore. Threads and forked children may share it; each process has its own client."""

    def __init__(self, name: str, server: GcsServer, client: PerProcess[GcsClient]) -> None:
        self.name = name
        self._server, self._client = server, client
        self._bucket = GcsBucketClient(name, client)

    def open_sibling(self, name: str) -> "GcsBlobs":
        """Open another bucket with the same client.

        Raise NotFoundError if it is absent, Forbidden if it is not writable.

        The upload session that probes it holds no bytes, and GCS ends it after a week.
        """
        bucket = GcsBucketClient(name, self._client, own=False)
        bucket.call(bucket.blob(HIDDEN_PREFIX + "probe").create_resumable_upload_session)
        return GcsBlobs(name, self._server, self._client)

    def head(self, key: str) -> BlobInfo:
        _check_gcs_key(key)
        return gcs_objects.head_object(self._bucket, key)

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        _check_gcs_key(key)
        yield from gcs_objects.read_object(self._bucket, key, pin=pin, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        _check_gcs_key(key)
        check_metadata(content_type, metadata)
        blob = self._bucket.blob(key)
        set_blob_metadata(blob, content_type, metadata)
        gcs_objects.insert_object(self._bucket, blob, data, replace=replace)
        return make_info(blob)

    def put_stream(self, key: str, blocks: Iterable[bytes], *, size: int, crc32c: str) -> BlobInfo:
        """See StreamTarget; one upload session."""
        _check_gcs_key(key)
        blob = self._bucket.blob(key)
        blob.crc32c = encode_base64(int(crc32c, 16))
        gcs_objects.insert_object_stream(self._bucket, blob, blocks, most=size, size=size)
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
        _check_gcs_key(key)
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
        progress: ProgressCallback | None = None,
    ) -> BlobInfo | None:
        """See BlobStore; GCS needs no parts."""
        if not isinstance(source, GcsBlobs) or source._server.endpoint != self._server.endpoint:
            return None
        _check_gcs_key(key)
        _check_gcs_key(target_key)
        if progress:
            progress(resume or "", 0)
        try:
            if size is not None and size <= _MAX_SINGLE_COPY:
                target = self._copy_at_once(source, key, target_key, pin)
            else:
                target = self._rewrite(source, key, target_key, pin, resume, progress)
        except errors.NotFoundError as error:
            raise self._explain_copy_failure(source, key, pin, error) from error
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
        progress: ProgressCallback | None,
    ) -> Blob:
        """Copy an object of any size, by rewrites with tokens."""
        # The library always sends metadata of the target, and GCS then ignores the source's.
        origin, target = source._bucket.blob(key, pin), self._bucket.blob(target_key)
        source._bucket.call(origin.reload)
        target.metadata, target.content_type = origin.metadata, origin.content_type

        def step(token: str | None) -> Any:
            return self._bucket.call(target.rewrite, origin, token=token, if_generation_match=0)

        try:
            token, copied_bytes, _ = step(token or None)
        except (errors.NotFoundError, errors.Invalid, errors.SourceChanged):
            if not token:
                raise
            # The token expired or belongs to other bytes: start again.
            token, copied_bytes, _ = step(None)
        while token:
            if progress:
                progress(token, copied_bytes)
            token, copied_bytes, _ = step(token)
        return target

    def _explain_copy_failure(
        self, source: "GcsBlobs", key: str, pin: str | None, error: errors.DomainError
    ) -> errors.DomainError:
        """Explain a 404: the source is gone or changed, or a bucket does not exist."""
        mismatch = explain_mismatch(source._bucket, key)
        if not isinstance(mismatch, errors.SourceChanged):
            return mismatch
        try:
            self._bucket.check_exists()
        except errors.DomainError:
            return errors.Unavailable(f"GCS bucket {self.name} does not exist")
        return mismatch if pin is not None else error

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; skips unfinished uploads, of which there may be thousands."""
        for start in (after, max(after, _AFTER_HIDDEN, key=str.encode)):
            for blob in gcs_objects.list_objects(
                self._bucket, prefix, start=start, fields=_LIST_FIELDS
            ):
                if blob.name.startswith(HIDDEN_PREFIX):
                    break
                if blob.name != after:
                    yield _make_listed_info(blob)
            else:
                return

    def delete(self, key: str, *, pin: str | None = None) -> None:
        _check_gcs_key(key)
        gcs_objects.delete_object(self._bucket, key, pin)

    def write_metadata(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: ProgressCallback | None = None,
    ) -> BlobInfo:
        """See BlobStore; the generation stays the same."""
        _check_gcs_key(key)
        try:
            blob = self._bucket.blob(key, pin)
            self._bucket.call(blob.reload, if_generation_match=blob.generation)
            info = make_info(blob)
            check_metadata(info.content_type or "", {**info.metadata, **metadata})
            blob.metadata = dict(metadata)
            self._bucket.call(blob.patch, if_generation_match=blob.generation)
        except (errors.NotFoundError, errors.SourceChanged) as error:
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
        """See BlobStore; without a private key each URL costs a request to IAM."""
        check_response_headers(content_type, disposition)
        _check_gcs_key(key)
        return self._bucket.sign_url(
            key,
            "GET",
            expires_s,
            response_type=content_type or None,
            response_disposition=disposition or None,
        )

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> PresignedUpload:
        """See BlobStore; GCS limits the body to the range in the header."""
        _check_gcs_key(key)
        headers = {"x-goog-content-length-range": f"0,{max_bytes}"}
        url = self._bucket.sign_url(key, "PUT", expires_s, headers=dict(headers))
        return PresignedUpload(url, headers, max_bytes)

    def find_direct_uploads(self) -> DirectUploads:
        public = self._bucket.translate_errors(lambda: self._client().public)
        return DirectUploads(f"{public}/{self.name}/", PART_HEADERS)

    def direct_url(self, key: str) -> str:
        return f"gs://{self.name}/{key}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        return gcs_upload.sweep_uploads(self._bucket, before=now - older_than_s)


def _check_gcs_key(key: str) -> None:
    """Raise Invalid for keys that GCS or this module reserves."""
    check_key(key)
    if key in (".", "..") or key.startswith(HIDDEN_PREFIX):
        raise errors.Invalid(f"object key: {key!r} is reserved in GCS buckets")


def list_gcs_sources(
    bucket: str, prefix: str, client: Callable[[], GcsClient]
) -> Iterator[BlobInfo]:
    """List objects of a source bucket; see Sources."""
    with translate_source_errors(_is_unreadable_at_start):
        source = GcsBucketClient(bucket, client, own=False)
        for blob in gcs_objects.list_objects(source, prefix, start="", fields=_LIST_FIELDS):
            yield _make_listed_info(blob)


def _make_listed_info(blob: Blob) -> BlobInfo:
    stored_us = int(blob.updated.timestamp() * 1_000_000)
    return BlobInfo(blob.name, blob.size, str(blob.generation), modified_us=stored_us)


class GcsSource:
    """A depositor's object; see SourceObject. Credentials are ambient, or requests unsigned."""

    def __init__(self, bucket: str, key: str, client: Callable[[], GcsClient]) -> None:
        self._bucket, self._key = GcsBucketClient(bucket, client, own=False), key

    def head(self) -> BlobInfo:
        with translate_source_errors(_is_unreadable_at_start):
            return gcs_objects.head_object(self._bucket, self._key)

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with translate_source_errors(_is_credential_error):
            yield from gcs_objects.read_object(
                self._bucket, self._key, pin=pin, start=start, length=length
            )


def _is_credential_error(cause: BaseException | None) -> bool:
    is_lasting = not isinstance(cause, TransportError)
    return isinstance(cause, GoogleAuthError) and is_lasting and not cause.retryable


def _is_unreadable_at_start(cause: BaseException | None) -> bool:
    """Return whether a deposit cannot begin: also if the server cannot be reached.

    Later such a fault may pass.
    """
    if isinstance(cause, RequestsConnectionError) and cause.args:
        refused = isinstance(getattr(cause.args[0], "reason", None), NewConnectionError)
        return refused or isinstance(cause, ConnectTimeout)
    return _is_credential_error(cause)
