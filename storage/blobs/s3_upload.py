"""A multipart upload into S3: parts are spooled, sent with their CRC-32C, and listed by the server.

The server's listing is the only memory: whoever has the token can go on.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from storage.blobs.s3_client import Bucket, Reply
from storage.blobs.s3_metadata import in_headers, last_words, marked
from storage.blobs.s3_objects import exists, make_info, pin_of, put_tags
from storage.blobs.spooling import spooled
from storage.errors import AlreadyExists, Invalid, NotFound
from storage.protocols import BlobInfo

MAX_PARTS: Final = 10_000


class S3Upload:
    """One unfinished object; any number of parts may be on their way at once."""

    def __init__(self, bucket: Bucket, key: str, token: str, part_size: int) -> None:
        self._bucket, self._key, self._token, self._part_size = bucket, key, token, part_size
        self._metadata: Mapping[str, str] = {}

    @classmethod
    def begin(
        cls,
        bucket: Bucket,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None,
        summed: bool = True,
    ) -> "S3Upload":
        """A new upload, whose parts add up to one checksum if they are to be `summed`."""
        if part_size < 1:
            raise Invalid("a part has at least one byte")
        words = in_headers(key, content_type, metadata)
        words["Metadata"] = marked(words["Metadata"])
        reply = bucket.call(
            "create_multipart_upload",
            key,
            **({"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if summed else {}),
            **words,
        )
        upload = cls(bucket, key, reply["UploadId"], part_size)
        upload._metadata = dict(metadata or {})
        return upload

    @classmethod
    def resume(cls, bucket: Bucket, key: str, token: str, part_size: int) -> "S3Upload":
        """The upload that a token names; NotFound when it is gone, done or of another key."""
        upload = cls(bucket, key, token, part_size)
        upload.parts()
        return upload

    @property
    def token(self) -> str:
        """See Upload."""
        return self._token

    @property
    def part_size(self) -> int:
        """Bytes of every part but the last."""
        return self._part_size

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """See Upload."""
        self._check_number(number)
        with spooled(blocks, self._part_size) as part:
            self._call(
                "upload_part",
                PartNumber=number,
                Body=part.file,
                ContentLength=part.size,
                ChecksumCRC32C=base64.b64encode(part.crc32c).decode(),
            )

    def copy_part(self, number: int, original: Mapping[str, Any], start: int, length: int) -> None:
        """Have the engine store a range of another object as part `number`."""
        self._check_number(number)
        reach = f"bytes={start}-{start + length - 1}"
        self._call("upload_part_copy", PartNumber=number, CopySourceRange=reach, **original)

    def parts(self) -> Mapping[int, int]:
        """See Upload."""
        return {part["PartNumber"]: part["Size"] for part in self._listed()}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See Upload; late metadata become tags a moment after the object is visible."""
        late = dict(metadata or {})
        labels = last_words(self._metadata, late)
        parts = self._whole()
        condition = {} if replace else {"IfNoneMatch": "*"}
        spoken = [{name: part[name] for name in _SPOKEN if part.get(name)} for part in parts]
        reply = self._completed(replace=replace, MultipartUpload={"Parts": spoken}, **condition)
        if labels:
            put_tags(self._bucket, self._key, labels, pin_of(reply))
        size = sum(part["Size"] for part in parts)
        return make_info(self._key, size, reply, metadata={**self._metadata, **late})

    def abort(self) -> None:
        """See Upload."""
        with suppress(NotFound):
            self._call("abort_multipart_upload")

    def _call(self, verb: str, **params: Any) -> Reply:
        if not self._token:
            raise NotFound("no such upload")
        return self._bucket.call(verb, self._key, UploadId=self._token, **params)

    def _check_number(self, number: int) -> None:
        if not 1 <= number <= MAX_PARTS:
            raise Invalid(f"part numbers are 1 to {MAX_PARTS}")

    def _listed(self) -> Iterator[Reply]:
        after = 0
        while True:
            page = self._call("list_parts", PartNumberMarker=after)
            yield from page.get("Parts", ())
            if not page.get("IsTruncated"):
                return
            after = page["NextPartNumberMarker"]

    def _whole(self) -> list[Reply]:
        """All parts, one empty one if there is none; Invalid unless they join without a gap."""
        parts = list(self._listed())
        if not parts:
            self.part(1, ())
            parts = list(self._listed())
        if [part["PartNumber"] for part in parts] != list(range(1, len(parts) + 1)):
            raise Invalid("a part is missing")
        if any(part["Size"] != self._part_size for part in parts[:-1]):
            raise Invalid("a part that is not the last is short")
        return parts

    def _completed(self, *, replace: bool, **wanted: Any) -> Reply:
        """The upload's end. An answer that was lost may have been yes, and a conflict may have cost
        the server the upload: if something lies there then, the key is taken."""
        try:
            return self._call("complete_multipart_upload", **wanted)
        except AlreadyExists:
            self.abort()
            raise
        except NotFound as error:
            if not replace and exists(self._bucket, self._key):
                raise AlreadyExists(f"{self._key} exists already") from error
            raise


_SPOKEN: Final = ("PartNumber", "ETag", "ChecksumCRC32C")
"""What completion tells of each part."""


def abort_if_stale(bucket: Bucket, upload: Reply, before: float) -> bool:
    """Abort an upload that began before a time, with no part since; False if it goes on."""
    if upload["Initiated"].timestamp() >= before:
        return False
    key, named = upload["Key"], {"UploadId": upload["UploadId"]}
    with suppress(NotFound):
        if not _has_part_since(bucket, key, named, before):
            bucket.call("abort_multipart_upload", key, **named)
            return True
    return False


def _has_part_since(bucket: Bucket, key: str, named: Mapping[str, str], since: float) -> bool:
    """Whether a part was stored since a time: a large upload may take days."""
    marker = 0
    while True:
        page = bucket.call("list_parts", key, PartNumberMarker=marker, **named)
        if any(part["LastModified"].timestamp() >= since for part in page.get("Parts", ())):
            return True
        if not page.get("IsTruncated"):
            return False
        marker = page["NextPartNumberMarker"]
