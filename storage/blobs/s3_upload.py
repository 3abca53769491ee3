"""S3 multipart uploads and copies within S3.

All state is in the server's part listing, so any process with the token can continue.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from storage import crc32c as crc32c_values
from storage.blobs.s3_client import S3BucketClient, S3Reply, is_upload_gone
from storage.blobs.s3_objects import (
    add_tags_mark,
    explain_mismatch,
    make_completion_tags,
    make_header_params,
    make_info,
    object_exists,
    put_tags,
    reply_pin,
)
from storage.errors import (
    AlreadyExists,
    Invalid,
    NotFoundError,
    SourceChanged,
    Unavailable,
)
from storage.protocols import (
    BLOCK,
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    PresignedUpload,
    ProgressCallback,
    check_part_number,
    check_part_size,
    check_parts,
)

MAX_SPOOL_MEMORY: Final = 8 * BLOCK
"""Bytes held in memory; longer parts go to a temporary file."""
PART_CHECKSUM_HEADER: Final = "x-amz-checksum-crc32c"
"""Header of a presigned part."""


class S3Upload:
    """See MultipartUpload. Any number of parts may be sent at once."""

    def __init__(self, bucket: S3BucketClient, key: str, token: str, part_size: int) -> None:
        self._bucket, self._key, self.token, self.part_size = bucket, key, token, part_size
        self._metadata: Mapping[str, str] = {}

    @classmethod
    def begin(
        cls,
        bucket: S3BucketClient,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None,
        summed: bool = True,
    ) -> "S3Upload":
        """Begin a new upload; `summed` requests one checksum over all parts."""
        check_part_size(part_size)
        headers = make_header_params(key, content_type, metadata)
        headers["Metadata"] = add_tags_mark(headers["Metadata"])
        reply = bucket.call(
            "create_multipart_upload",
            key,
            **({"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if summed else {}),
            **headers,
        )
        upload = cls(bucket, key, reply["UploadId"], part_size)
        upload._metadata = dict(metadata or {})
        return upload

    @classmethod
    def resume(cls, bucket: S3BucketClient, key: str, token: str, part_size: int) -> "S3Upload":
        """Resume the upload of a token; NotFoundError if it is gone, complete or of another key."""
        if not token:
            raise NotFoundError("the upload does not exist")
        upload = cls(bucket, key, token, part_size)
        upload.parts()
        return upload

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        check_part_number(number)
        # Spooled, so that it can be sent again.
        with tempfile.SpooledTemporaryFile(max_size=MAX_SPOOL_MEMORY) as file:
            size = checksum = 0
            for block in blocks:
                size += len(block)
                if size > self.part_size:
                    raise Invalid(f"a part must not exceed {self.part_size} bytes")
                checksum = crc32c_values.extend(checksum, block)
                file.write(block)
            file.seek(0)
            self._call(
                "upload_part",
                PartNumber=number,
                Body=file,
                ContentLength=size,
                ChecksumCRC32C=crc32c_values.encode_base64(checksum),
            )

    def copy_part(self, number: int, source: Mapping[str, Any], start: int, length: int) -> None:
        """Copy a range of another object into part `number`, inside S3."""
        check_part_number(number)
        copied = f"bytes={start}-{start + length - 1}"
        self._call("upload_part_copy", PartNumber=number, CopySourceRange=copied, **source)

    def parts(self) -> Mapping[int, int]:
        return {part["PartNumber"]: part["Size"] for part in self._list_parts()}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See MultipartUpload; late metadata become tags a moment after the object is visible."""
        late = dict(metadata or {})
        tags = make_completion_tags(self._metadata, late)
        parts = self._load_complete_parts()
        condition = {} if replace else {"IfNoneMatch": "*"}
        completed = [
            {name: part[name] for name in _COMPLETION_FIELDS if part.get(name)} for part in parts
        ]
        reply = self._complete(replace=replace, MultipartUpload={"Parts": completed}, **condition)
        if tags:
            put_tags(self._bucket, self._key, tags, reply_pin(reply))
        size = sum(part["Size"] for part in parts)
        return make_info(self._key, size, reply, metadata={**self._metadata, **late})

    def abort(self) -> None:
        with suppress(NotFoundError):
            self._call("abort_multipart_upload")

    def sign_part(
        self, number: int, *, length: int, crc32c: int, expires_s: int
    ) -> PresignedUpload:
        """See MultipartUpload; length and checksum are signed headers."""
        check_part_number(number)
        checksum = crc32c_values.encode_base64(crc32c)
        url = self._bucket.connect().sign_url(
            "upload_part",
            expires_s,
            Bucket=self._bucket.name,
            Key=self._key,
            UploadId=self.token,
            PartNumber=number,
            ContentLength=length,
            ChecksumCRC32C=checksum,
        )
        return PresignedUpload(url, {PART_CHECKSUM_HEADER: checksum}, length)

    def _call(self, verb: str, **params: Any) -> S3Reply:
        return self._bucket.call(verb, self._key, UploadId=self.token, **params)

    def _list_parts(self) -> Iterator[S3Reply]:
        for page in self._bucket.pages("list_parts", self._key, UploadId=self.token):
            yield from page.get("Parts", ())

    def _load_complete_parts(self) -> list[S3Reply]:
        """Return all parts, at least one; Invalid if there is a gap."""
        parts = list(self._list_parts())
        if not parts:
            self.part(1, ())
            parts = list(self._list_parts())
        check_parts({part["PartNumber"]: part["Size"] for part in parts}, self.part_size)
        return parts

    def _complete(self, *, replace: bool, **params: Any) -> S3Reply:
        """Complete the upload, or find out what became of it.

        A lost response may have been a success, and a conflict may have ended the upload: if an
        object exists then, the key is in use.
        """
        try:
            return self._call("complete_multipart_upload", **params)
        except AlreadyExists:
            self.abort()
            raise
        except NotFoundError as error:
            if not replace and object_exists(self._bucket, self._key):
                raise AlreadyExists(f"{self._key} exists already") from error
            raise


_COMPLETION_FIELDS: Final = ("PartNumber", "ETag", "ChecksumCRC32C")
"""Fields of each part in a completion."""


def abort_if_stale(bucket: S3BucketClient, upload: S3Reply, before: float) -> bool:
    """Abort an upload that began before a POSIX time and stored no part since; return whether it
    did."""
    if upload["Initiated"].timestamp() >= before:
        return False
    stale = S3Upload(bucket, upload["Key"], upload["UploadId"], part_size=0)
    with suppress(NotFoundError):
        # A large upload may take days.
        if all(part["LastModified"].timestamp() < before for part in stale._list_parts()):
            stale._call("abort_multipart_upload")
            return True
    return False


MAX_COPY_BYTES: Final = 5 * 1024**3
"""S3's limit for a copy in one call."""
_AMAZON_DOMAIN: Final = ".amazonaws."
_PARALLEL_PARTS: Final = 8
"""Parts of one object that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class CopySource:
    """An object to copy, and the pin that it must match, if any."""

    bucket: S3BucketClient
    key: str
    pin: str | None

    def copy_parameters(self) -> dict[str, Any]:
        """Return arguments of a copy call that include the pin."""
        where = {"Bucket": self.bucket.name, "Key": self.key}
        if self.pin is None:
            return {"CopySource": where}
        if self.pin.startswith("v:"):
            return {"CopySource": {**where, "VersionId": self.pin[2:]}}
        return {"CopySource": where, "CopySourceIfMatch": self.pin[2:]}


@dataclass(slots=True)
class ServerFeatures:
    """What the first copies showed of a server.

    `conditional_copy`: whether copies heed If-None-Match, S3's youngest condition; servers that
    ignore it replace objects silently. `etags_are_md5`: by bucket, whether ETags are MD5s, which
    they are not under some encryptions.
    """

    conditional_copy: bool | None = None
    etags_are_md5: dict[str, bool] = field(default_factory=dict)


def copy_whole(
    source: CopySource,
    target: S3BucketClient,
    key: str,
    *,
    size: int,
    features: ServerFeatures,
    progress: ProgressCallback | None,
) -> BlobInfo:
    """Copy in one call, after a HEAD if the server ignores If-None-Match.

    While that is unknown, the first copy is made twice onto its own target.
    """
    if progress:
        progress("", 0)
    if not features.conditional_copy and object_exists(target, key):
        raise AlreadyExists(f"{key} exists already")
    info = None
    # obstore returns only the ETag.
    if source.pin is None and features.etags_are_md5.get(target.name):
        copied = target.small.copy(source.bucket.name, source.key, target.name, key)
        info = None if copied is None else make_info(key, *copied)
    if info is None:
        reply = _copy_object(source, target, key)
        if features.conditional_copy is None:
            try:
                reply, features.conditional_copy = _copy_object(source, target, key), False
            except AlreadyExists:
                features.conditional_copy = True
        features.etags_are_md5[target.name] = not _is_encrypted_by_key(reply)
        info = make_info(key, size, {**reply, **reply["CopyObjectResult"]})
    if progress:
        progress("", info.size)
    return info


def _is_encrypted_by_key(reply: S3Reply) -> bool:
    """Return whether ETags are no MD5s: objects are encrypted by KMS or a customer's key."""
    return "kms" in str(reply.get("ServerSideEncryption")) or "SSECustomerAlgorithm" in reply


def _copy_object(source: CopySource, target: S3BucketClient, key: str) -> S3Reply:
    try:
        return target.call(
            "copy_object",
            key,
            IfNoneMatch="*",
            ChecksumAlgorithm="CRC32C",
            **source.copy_parameters(),
        )
    except AlreadyExists as error:
        # The same response means that the source changed: check whether the target exists.
        is_taken = object_exists(target, key)
        raise (error if is_taken else explain_mismatch(source.bucket, source.key)) from error
    except NotFoundError as error:
        if source.pin is None:
            raise
        raise explain_mismatch(source.bucket, source.key) from error


def copy_parts(
    source: CopySource,
    target: S3BucketClient,
    found: BlobInfo,
    *,
    key: str,
    part_size: int,
    resume: str | None,
    progress: ProgressCallback | None,
) -> BlobInfo:
    """Copy the missing parts; the upload stays for a resume if `progress` raises."""
    upload = _open_upload(target, found, key, part_size=part_size, token=resume)
    stored = upload.parts()
    starts = enumerate(range(0, found.size, part_size), start=1)
    spans = {n: (start, min(part_size, found.size - start)) for n, start in starts}
    missing = {n: span for n, span in spans.items() if stored.get(n) != span[1]}
    done = sum(length for n, (_, length) in spans.items() if n not in missing)
    if progress:
        progress(upload.token, done)
    try:
        _copy_missing(upload, source, missing, done=done, progress=progress)
        return upload.complete()
    except (SourceChanged, NotFoundError) as error:
        upload.abort()
        if is_upload_gone(error):
            raise Unavailable(f"the unfinished copy of {key} was removed") from error
        raise explain_mismatch(source.bucket, source.key) from error


def _open_upload(
    target: S3BucketClient, found: BlobInfo, key: str, *, part_size: int, token: str | None
) -> S3Upload:
    if token:
        with suppress(NotFoundError):
            return S3Upload.resume(target, key, token, part_size)
    return S3Upload.begin(
        target,
        key,
        part_size=part_size,
        content_type=found.content_type or DEFAULT_CONTENT_TYPE,
        metadata=found.metadata,
        # Other servers take the whole source's CRC-32C for that of each part; their copies are
        # verified by ETag.
        summed=_AMAZON_DOMAIN in str(target.connect().client.meta.endpoint_url),
    )


def _copy_missing(
    upload: S3Upload,
    source: CopySource,
    missing: Mapping[int, tuple[int, int]],
    *,
    done: int,
    progress: ProgressCallback | None,
) -> None:
    """Copy a few parts at a time; the first failure cancels those that have not begun."""
    named = source.copy_parameters()
    with ThreadPoolExecutor(_PARALLEL_PARTS) as pool:
        moving: dict[Future[None], int] = {
            pool.submit(upload.copy_part, number, named, start, length): length
            for number, (start, length) in missing.items()
        }
        try:
            for future in as_completed(moving):
                future.result()
                done += moving[future]
                if progress:
                    progress(upload.token, done)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
