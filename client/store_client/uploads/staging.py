"""Where files are staged until the store has copied them: upload areas, and own buckets."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from store_client.areas.upload import AreaTransfer, send_file
from store_client.checksums import ETAG_CHUNK, MB, FileChecksums, hash_bytes
from store_client.client import Client
from store_client.errors import Conflict, Damaged, Refused, StoreError, name_answer_errors
from store_client.local_files import LocalFile, OutgoingFile
from store_client.transfer import api, gcs, s3
from store_client.transfer.engine import TransferContext
from store_client.transfer.journal import UnfinishedFile, UploadJournal
from store_client.transfer.parts import hash_file, read_whole
from store_client.uploads.options import StagingBucket, UploadOptions

log = logging.getLogger(__name__)

LONGEST_NAME = 850
"""Bytes that a name in an area has at most."""
GCS_SMALL = 8 * MB
"""Larger files go through a resumable session."""


@dataclass(frozen=True, slots=True)
class StagingItem:
    """A file that is to become this file version."""

    file: LocalFile
    content_type: str
    uuid: str
    version: str


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that waits; `url` is what put_file takes."""

    url: str
    checksums: FileChecksums


class Staging:
    """A place where files wait; threads share it."""

    takes_groups = False
    """Whether several small files can come at once."""

    def __init__(self, context: TransferContext, journal: UploadJournal) -> None:
        self._context, self._journal = context, journal

    def stage(self, item: StagingItem) -> StagedFile:
        """Bring a file there whole, with its content type and checksums; what had arrived of it
        before is not sent again. Damaged when it changes meanwhile."""
        raise NotImplementedError

    def stage_together(self, items: Sequence[StagingItem]) -> list[StagedFile] | None:
        """Bring small files there at once; None if each has to come alone."""
        return None

    def rewrite_checksums(self, item: StagingItem, staged: StagedFile) -> bool:
        """The store did not see the checksums: give them in another way; False if there is none."""
        return False

    def abandon(self, unfinished: UnfinishedFile) -> None:
        """A file that was under way will not come."""

    def clear(self) -> None:
        """The store took in everything."""

    def _find_unfinished(self, item: StagingItem, url: str) -> UnfinishedFile | None:
        """The staging of this very file that an earlier run began."""
        before = self._journal.unfinished.get(item.file.name)
        same = before and before.url == url and before.stamp == item.file.stamp
        return before if same else None

    def _record_unfinished(self, item: StagingItem, url: str, token: str) -> None:
        unfinished = UnfinishedFile(item.file.stamp, item.uuid, item.version, url, token)
        self._journal.record_unfinished(item.file.name, unfinished)


def object_key(prefix: str, item: StagingItem, *, longest: int = 1024) -> str:
    """The key of a file in a bucket: of its version alone, so that nothing is ever replaced."""
    key = f"{prefix}{item.uuid}.{item.version}/{item.file.name}"
    return key if len(key.encode()) <= longest else f"{prefix}{item.uuid}.{item.version}"


def open_staging(
    options: UploadOptions,
    area: str,
    client: Client,
    *,
    context: TransferContext,
    journal: UploadJournal,
) -> Staging:
    """The staging of one upload; Misused when the library that it needs is not installed."""
    bucket = options.bucket
    if bucket is None:
        return AreaStaging(area, client, context, journal)
    if bucket.scheme == "s3":
        # Files and parts of files are sent by threads of their own.
        return S3Staging(bucket, s3.connect(2 * options.jobs), context, journal)
    return GcsStaging(bucket, gcs.connect(), context, journal)


class AreaStaging(Staging):
    """Stage files in an upload area of the store, opened when the first file comes."""

    def __init__(
        self, area: str, client: Client, context: TransferContext, journal: UploadJournal
    ) -> None:
        super().__init__(context, journal)
        self._area, self._client = area, client
        self._opening = Lock()
        self._opened = False
        self.takes_groups = True

    def stage(self, item: StagingItem) -> StagedFile:
        """See Staging; the store's checksums have to be those of what was read."""
        self._require_area()
        file = item.file
        # A small file has a new name for each version: bytes of an interrupted run may still be
        # arriving, and would replace the file that is deposited now.
        small = file.size < ETAG_CHUNK
        name = object_key("", item, longest=LONGEST_NAME) if small else file.name
        upload = AreaTransfer(self._client, self._area, self._context)
        outgoing = OutgoingFile(Path(file.path), name, item.content_type, file.size, file.stamp)
        sent = send_file(upload, outgoing)
        return StagedFile(sent.url, sent.checksums)

    def stage_together(self, items: Sequence[StagingItem]) -> list[StagedFile] | None:
        """See Staging; the store's checksums have to be those of what was read."""
        self._require_area()
        with self._context.memory.hold(sum(item.file.size for item in items)):
            contents = [read_whole(item.file) for item in items]
            checksums = [hash_bytes(data) for data in contents]
            # Names of versions alone: in a form not every name of a file can be said.
            form = [
                (f"{item.uuid}.{item.version}", data, item.content_type)
                for item, data in zip(items, contents, strict=True)
            ]
            try:
                stored = api.put_files(self._client, self._area, form)
            except Refused as error:
                if error.status not in (404, 405):
                    raise
                # A store of an earlier release.
                self.takes_groups = False
                return None
        if [one.get("checksums") for one in stored] != [asdict(ours) for ours in checksums]:
            return None
        with name_answer_errors(f"PUT {api.area_path(self._area)}/files"):
            staged = [
                StagedFile(str(one["url"]), ours)
                for one, ours in zip(stored, checksums, strict=True)
            ]
        self._context.tell.bytes(sum(map(len, contents)))
        return staged

    def _require_area(self) -> None:
        with self._opening:
            if not self._opened:
                self._open_area()
                self._opened = True

    def clear(self) -> None:
        """Delete the area, which was opened for this upload alone; a failure is only logged."""
        try:
            self._client.session.request("DELETE", api.area_path(self._area))
        except StoreError as error:
            log.debug("the upload area %s stays: %s", self._area, error)

    def _open_area(self) -> None:
        try:
            api.open_area(self._client, self._area)
        except Conflict as error:
            if error.code != "already_exists":
                raise
            # It was deleted since an earlier run, or belongs to another user.
            log.info("%s; the files that are missing go into another one", error)
            self._area = str(uuid4())
            self._journal.change_area(self._area)
            api.open_area(self._client, self._area)


class S3Staging(Staging):
    """Stage files in a bucket on S3; `client` is boto3's.

    Files below 64 MB are one object with their checksums as metadata. Larger ones go in the parts
    of their entity tag; their checksums are known last, and follow as tags, or, where tags cannot
    be set or seen, as metadata of a copy in place.
    """

    def __init__(
        self, bucket: StagingBucket, client: Any, context: TransferContext, journal: UploadJournal
    ) -> None:
        super().__init__(context, journal)
        self._bucket, self._client = bucket, client

    def stage(self, item: StagingItem) -> StagedFile:
        target = self._object(object_key(self._bucket.prefix, item))
        send = self._stage_small if item.file.size < ETAG_CHUNK else self._stage_large
        return StagedFile(target.url, send(item, target))

    def rewrite_checksums(self, item: StagingItem, staged: StagedFile) -> bool:
        """See Staging: small objects have metadata already."""
        if item.file.size < ETAG_CHUNK:
            return False
        target = self._object_at(staged.url)
        target.copy_in_place(item.file, item.content_type, staged.checksums, self._context)
        return True

    def abandon(self, unfinished: UnfinishedFile) -> None:
        if unfinished.url.startswith(f"s3://{self._bucket.name}/"):
            self._object_at(unfinished.url).abort(unfinished.token)

    def _object(self, key: str) -> s3.S3Object:
        return s3.S3Object(lambda: self._client, self._bucket.name, key)

    def _object_at(self, url: str) -> s3.S3Object:
        return self._object(url.removeprefix(f"s3://{self._bucket.name}/"))

    def _stage_small(self, item: StagingItem, target: s3.S3Object) -> FileChecksums:
        with self._context.memory.hold(item.file.size):
            data = read_whole(item.file)
            checksums = hash_bytes(data)
            target.put(data, checksums, item.content_type, self._context)
        return checksums

    def _stage_large(self, item: StagingItem, target: s3.S3Object) -> FileChecksums:
        token, etags = "", dict[int, str]()
        if before := self._find_unfinished(item, target.url):
            found = target.list_parts(before.token)
            if found is None and (complete := self._find_complete(item, target)):
                target.write_checksums(item.file, item.content_type, complete, self._context)
                return complete
            token, etags = (before.token, found) if found is not None else ("", {})
        if not token:
            token = target.begin(item.content_type)
            self._record_unfinished(item, target.url, token)
        try:
            checksums = target.send_parts(token, item.file, self._context, etags)
        except Damaged:
            self._journal.forget_file(item.file.name)
            target.abort(token)
            raise
        target.write_checksums(item.file, item.content_type, checksums, self._context)
        return checksums

    def _find_complete(self, item: StagingItem, target: s3.S3Object) -> FileChecksums | None:
        """Checksums of the complete object that a run left which died before it wrote them."""
        head = target.head()
        if head is None or head["ContentLength"] != item.file.size:
            return None
        checksums = hash_file(item.file, self._context)
        return checksums if head["ETag"].strip('"') == checksums.s3_etag else None


class GcsStaging(Staging):
    """Stage files in a bucket on Google Cloud Storage; `client` is Google's.

    Small files have their checksums as metadata. Larger ones go through a resumable session, which
    a later run can continue; their checksums follow, once Google's are the same.
    """

    def __init__(
        self, bucket: StagingBucket, client: Any, context: TransferContext, journal: UploadJournal
    ) -> None:
        super().__init__(context, journal)
        self._bucket = bucket
        self._objects = client.bucket(bucket.name)

    def stage(self, item: StagingItem) -> StagedFile:
        key = object_key(self._bucket.prefix, item)
        url = f"gs://{self._bucket.name}/{key}"
        send = self._stage_small if item.file.size <= GCS_SMALL else self._stage_large
        with gcs.translate_errors(url):
            return StagedFile(url, send(item, self._objects.blob(key), url))

    def _stage_small(self, item: StagingItem, blob: Any, url: str) -> FileChecksums:
        with self._context.memory.hold(item.file.size):
            data = read_whole(item.file)
            checksums = hash_bytes(data)
            blob.metadata = checksums.metadata()
            blob.crc32c = gcs.encode_crc32c(checksums.crc32c)
            blob.upload_from_string(data, content_type=item.content_type)
        self._context.tell.bytes(len(data))
        return checksums

    def _stage_large(self, item: StagingItem, blob: Any, url: str) -> FileChecksums:
        before = self._find_unfinished(item, url)
        try:
            checksums = gcs.send_file(
                blob,
                item.file,
                item.content_type,
                self._context,
                session=before.token if before else "",
                record=lambda session: self._record_unfinished(item, url, session),
            )
        except Damaged:
            self._journal.forget_file(item.file.name)
            raise
        blob.reload()
        if blob.crc32c != gcs.encode_crc32c(checksums.crc32c):
            self._journal.forget_file(item.file.name)
            raise Damaged(f"{item.file.name} arrived as another file at {url}")
        blob.metadata = checksums.metadata()
        blob.patch()
        return checksums
