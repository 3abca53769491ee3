"""Waiting in a bucket of S3.

Files below 64 MB go as one object with their checksums as its metadata. Larger ones go in the parts
of their entity tag, and their checksums are known only when the last has left: they follow as tags,
or, where those cannot be set or seen, by copying the object onto itself.
"""

import base64
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from store_client.checksums import ETAG_CHUNK, Checksums, part_size
from store_client.errors import Damaged, NotFound, Refused, StoreError
from store_client.upload.journal import Journal, Unfinished
from store_client.upload.options import Bucket
from store_client.upload.parts import hashed, in_parts, read_only, whole
from store_client.upload.s3_client import speaking
from store_client.upload.sharing import Body, Shared
from store_client.upload.staging import Item, Staged, object_key

log = logging.getLogger(__name__)


class S3Staging:
    """See Staging; `client` is boto3's."""

    def __init__(self, bucket: Bucket, client: Any, shared: Shared, journal: Journal) -> None:
        self._bucket, self._client = bucket, client
        self._shared, self._journal = shared, journal

    def stage(self, item: Item) -> Staged:
        """See Staging."""
        key = object_key(self._bucket.prefix, item)
        send = self._small if item.file.size < ETAG_CHUNK else self._large
        try:
            with speaking(self._url(key)):
                return Staged(self._url(key), send(item, key))
        except StoreError:
            # The library takes the sign to stop for trouble on the way.
            self._shared.check()
            raise

    def restate(self, item: Item, staged: Staged) -> bool:
        """See Staging: small objects have metadata already."""
        if item.file.size < ETAG_CHUNK:
            return False
        with speaking(staged.url):
            self._copy_in_place(item, self._key(staged.url), staged.checksums)
        return True

    def abandon(self, unfinished: Unfinished) -> None:
        """See Staging."""
        if unfinished.url.startswith(f"s3://{self._bucket.name}/"):
            self._abort(self._key(unfinished.url), unfinished.token)

    def clear(self) -> None:
        """What waits in the depositor's bucket is the depositor's."""

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket.name}/{key}"

    def _key(self, url: str) -> str:
        return url.removeprefix(f"s3://{self._bucket.name}/")

    def _small(self, item: Item, key: str) -> Checksums:
        with self._shared.room(item.file.size):
            data = whole(item.file)
            sums = hashed(data)
            self._client.put_object(
                **self._place(key),
                Body=Body(data, self._shared),
                ContentType=item.content_type,
                ContentMD5=_base64(bytes.fromhex(sums.s3_etag)),
                Metadata=sums.metadata(),
            )
        return sums

    def _large(self, item: Item, key: str) -> Checksums:
        before = self._journal.unfinished.get(item.file.name)
        token, etags = "", dict[int, str]()
        if before and before.url == self._url(key) and before.stamp == item.file.stamp:
            found = self._arrived(key, before.token)
            if found is None and (sums := self._there_already(item, key)):
                self._tell_checksums(item, key, sums)
                return sums
            token, etags = (before.token, found) if found is not None else ("", {})
        if not token:
            token = self._begun(item, key)
        sums = self._sent(item, key, token, etags)
        parts = [{"PartNumber": number, "ETag": etags[number]} for number in sorted(etags)]
        self._client.complete_multipart_upload(
            **self._place(key), UploadId=token, MultipartUpload={"Parts": parts}
        )
        self._tell_checksums(item, key, sums)
        return sums

    def _begun(self, item: Item, key: str) -> str:
        begun = self._client.create_multipart_upload(
            **self._place(key), ContentType=item.content_type
        )
        token = str(begun["UploadId"])
        under_way = Unfinished(item.file.stamp, item.uuid, item.version, self._url(key), token)
        self._journal.under_way(item.file.name, under_way)
        return token

    def _sent(self, item: Item, key: str, token: str, etags: dict[int, str]) -> Checksums:
        """Every part is there; `etags` has them all then."""

        def send(number: int, data: bytes, digest: bytes) -> None:
            with speaking(self._url(key)):
                told = self._client.upload_part(
                    **self._place(key),
                    UploadId=token,
                    PartNumber=number,
                    Body=Body(data, self._shared),
                    ContentMD5=_base64(digest),
                )
            etags[number] = told["ETag"]

        try:
            return in_parts(item.file, self._shared, send, arrived=_md5s(etags))
        except Damaged:
            self._journal.forget(item.file.name)
            self._abort(key, token)
            raise

    def _arrived(self, key: str, token: str) -> dict[int, str] | None:
        """The entity tags of the parts that are there; None when nobody knows of the upload."""
        pages = self._client.get_paginator("list_parts")
        try:
            with speaking(self._url(key)):
                found = pages.paginate(**self._place(key), UploadId=token)
                return {
                    part["PartNumber"]: part["ETag"]
                    for page in found
                    for part in page.get("Parts", ())
                }
        except NotFound:
            return None

    def _there_already(self, item: Item, key: str) -> Checksums | None:
        """A run that died between the last part and the checksums left the object whole."""
        try:
            with speaking(self._url(key)):
                head = self._client.head_object(**self._place(key))
        except Refused:
            return None
        if head["ContentLength"] != item.file.size:
            return None
        sums = read_only(item.file, self._shared)
        return sums if head["ETag"].strip('"') == sums.s3_etag else None

    def _tell_checksums(self, item: Item, key: str, sums: Checksums) -> None:
        tags = [{"Key": name, "Value": value} for name, value in sums.metadata().items()]
        try:
            with speaking(self._url(key)):
                self._client.put_object_tagging(**self._place(key), Tagging={"TagSet": tags})
        except Refused as error:
            log.info("the object cannot be given tags, so it is copied onto itself: %s", error)
            self._copy_in_place(item, key, sums)

    def _copy_in_place(self, item: Item, key: str, sums: Checksums) -> None:
        """The same object with metadata, in the same parts; its bytes stay where they are."""
        begun = self._client.create_multipart_upload(
            **self._place(key), ContentType=item.content_type, Metadata=sums.metadata()
        )
        token, step = str(begun["UploadId"]), part_size(item.file.size)
        try:
            copied = {
                number: self._shared.parts.submit(
                    self._copy_part, key, token, number, (start, min(start + step, item.file.size))
                )
                for number, start in enumerate(range(0, item.file.size, step), 1)
            }
            self._client.complete_multipart_upload(
                **self._place(key), UploadId=token, MultipartUpload={"Parts": _listed(copied)}
            )
        except BaseException:
            self._abort(key, token)
            raise

    def _copy_part(self, key: str, token: str, number: int, span: tuple[int, int]) -> str:
        with speaking(self._url(key)):
            told = self._client.upload_part_copy(
                **self._place(key),
                UploadId=token,
                PartNumber=number,
                CopySource=self._place(key),
                CopySourceRange=f"bytes={span[0]}-{span[1] - 1}",
            )
        return str(told["CopyPartResult"]["ETag"])

    def _abort(self, key: str, token: str) -> None:
        """Best effort: a bucket's own rules clear what is left."""
        try:
            with speaking(self._url(key)):
                self._client.abort_multipart_upload(**self._place(key), UploadId=token)
        except StoreError as error:
            log.warning("an unfinished upload is left at %s: %s", self._url(key), error)

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket.name, "Key": key}


def _listed(copied: Mapping[int, "Future[str]"]) -> list[dict[str, Any]]:
    return [{"PartNumber": number, "ETag": found.result()} for number, found in copied.items()]


def _md5s(etags: Mapping[int, str]) -> dict[int, bytes]:
    """Entity tags that are MD5s; those of parts that are encrypted with other keys are not."""
    plain = {number: tag.strip('"') for number, tag in etags.items()}
    return {number: bytes.fromhex(tag) for number, tag in plain.items() if len(tag) == 32}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
