"""A folder as a bucket: one file per object, published atomically.

A crash leaves no object or a whole one: bytes go into a temporary file, which is synced, then
linked to its name (which fails if the name exists), and then the folder is synced.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from storage import errors
from storage.blobs import folder_tree, objects
from storage.blobs.folder_tree import TEMPORARY_FOLDER, FolderTree
from storage.blobs.folder_upload import FolderUpload
from storage.blobs.objects import ObjectHeader, check_header
from storage.blobs.signed_urls import UrlSigner
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    PresignedUpload,
    ProgressCallback,
)


class FolderBlobs:
    """See BlobStore; a folder, created if it is absent."""

    def __init__(self, root: str | os.PathLike[str], signer: UrlSigner) -> None:
        self.signer = signer
        self._tree = FolderTree(root)

    @property
    def root(self) -> Path:
        """Return the folder."""
        return Path(self._tree.root)

    @property
    def temporary_folder(self) -> Path:
        """Return the folder for files that have no name yet."""
        return self.root / TEMPORARY_FOLDER

    def head(self, key: str) -> BlobInfo:
        """See BlobStore."""
        with self._open(key) as (_, info, _):
            return info

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        with self._open(key, pin) as (descriptor, info, offset):
            if start < 0 or (start and start >= info.size):
                raise errors.RangeNotSatisfiable(f"{key} has {info.size} bytes")
            rest = info.size - start
            count = rest if length is None else max(0, min(length, rest))
            yield from folder_tree.read_blocks(descriptor, offset + start, count)

    def open_payload(self, key: str) -> tuple[BinaryIO, int, BlobInfo]:
        """Open the object's file at its first payload byte, for sendfile; the caller closes it."""
        with self._tree.translate_errors(key):
            file = open(self._tree.open(key), "rb", buffering=0)  # noqa: SIM115
            try:
                info, offset = objects.inspect_object(file.fileno(), key)
                file.seek(offset)
            except BaseException:
                file.close()
                raise
            return file, info.size, info

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore."""
        head = check_header(key, content_type, metadata)
        with self._create(key, replace=replace) as (path, descriptor):
            front = objects.pack_header(head, len(data))
            folder_tree.write_all(descriptor, front, 0)
            folder_tree.write_all(descriptor, data, len(front))
            return self._publish(path, descriptor, key, replace=replace)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> FolderUpload:
        """See BlobStore."""
        with self._tree.translate_errors(key):
            if token is not None:
                return FolderUpload.resume(self._tree, key, token)
            head = check_header(key, content_type, metadata)
            return FolderUpload.begin(self._tree, head, part_size)

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
        """See BlobStore; copies what fits into one part at once, with nothing to resume."""
        if not isinstance(source, FolderBlobs):
            return None
        with source._open(key, pin) as (original, info, offset):
            head = ObjectHeader(target_key, info.content_type or "", info.metadata)
            if info.size > part_size:
                upload = self._open_upload(head, part_size, resume)
                return _copy_parts(original, upload, info.size, start=offset, progress=progress)
            return self._copy_whole(original, head, info.size, start=offset, progress=progress)

    def _open_upload(self, head: ObjectHeader, part_size: int, token: str | None) -> FolderUpload:
        with self._tree.translate_errors(head.key):
            if token:
                with suppress(errors.NotFoundError):
                    return FolderUpload.resume(self._tree, head.key, token)
            return FolderUpload.begin(self._tree, head, part_size)

    def _copy_whole(
        self,
        original: int,
        head: ObjectHeader,
        size: int,
        *,
        start: int,
        progress: ProgressCallback | None,
    ) -> BlobInfo:
        with self._create(head.key) as (path, descriptor):
            _write_copy(original, descriptor, head, size, start=start, progress=progress)
            return self._publish(path, descriptor, head.key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; metadata included, except for damaged objects."""
        self._tree.check_root()
        for key, path in self._tree.walk(prefix.encode(), after.encode()):
            with suppress(errors.NotFoundError):
                yield self._describe_entry(key, path)
        self._tree.check_root()

    def _describe_entry(self, key: str, path: str) -> BlobInfo:
        """Return one entry of a listing; a damaged object is marked."""
        try:
            with self._open(key) as (_, info, _):
                return info
        except errors.DamagedObjectError:
            with self._tree.translate_errors(key):
                status = os.lstat(path)
            pin, modified_us = objects.file_pin(status), status.st_mtime_ns // 1000
            return BlobInfo(key, status.st_size, pin, damaged=True, modified_us=modified_us)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore."""
        with suppress(errors.NotFoundError), self._tree.translate_errors(key):
            self._tree.remove(key, None if pin is None else partial(_matches_pin, pin))

    def write_metadata(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: ProgressCallback | None = None,
    ) -> BlobInfo:
        """See BlobStore; replaces the file by a new one, since files never change."""
        with self._open(key, pin) as (original, info, start):
            head = check_header(key, info.content_type or "", {**info.metadata, **metadata})
            if head.metadata == info.metadata:
                return info
            with (
                self._tree.translate_errors(key),
                self._tree.create_temporary() as (path, descriptor),
            ):
                _write_copy(original, descriptor, head, info.size, start=start, progress=progress)
                os.fsync(descriptor)
                self._tree.exchange(path, key, partial(_matches_pin, pin))
                return objects.inspect_object(descriptor)[0]

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """See BlobStore; the API serves these URLs."""
        return self.signer.sign(
            key, expires_s=expires_s, content_type=content_type, disposition=disposition
        )

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> PresignedUpload:
        """See BlobStore; the API accepts uploads to these URLs."""
        objects.check_key(key)
        url = self.signer.sign_upload(key, expires_s=expires_s, max_bytes=max_bytes)
        return PresignedUpload(url, {}, max_bytes)

    def direct_url(self, key: str) -> str:
        """See BlobStore; the URL names the object, the file's real path is escaped."""
        return f"{self.root.as_uri()}/{quote(key, safe='/')}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        return self._tree.sweep(now - older_than_s)

    @contextmanager
    def _open(self, key: str, pin: str | None = None) -> Iterator[tuple[int, BlobInfo, int]]:
        """Return descriptor, info and payload offset of an object that matches the pin."""
        with self._tree.translate_errors(key):
            descriptor = self._tree.open(key)
            try:
                info, offset = objects.inspect_object(descriptor, key)
                if pin is not None and pin != info.pin:
                    raise errors.SourceChanged(f"{key} has changed")
                yield descriptor, info, offset
            finally:
                os.close(descriptor)

    @contextmanager
    def _create(self, key: str, *, replace: bool = False) -> Iterator[tuple[str, int]]:
        """Open a temporary file for a free key; the link decides later, this check saves work."""
        with self._tree.translate_errors(key):
            if not replace and os.path.exists(self._tree.path(key)):
                raise errors.AlreadyExists(f"{key} exists already")
            with self._tree.create_temporary() as temporary:
                yield temporary

    def _publish(self, path: str, descriptor: int, key: str, *, replace: bool = False) -> BlobInfo:
        os.fsync(descriptor)
        self._tree.publish(path, key, replace=replace)
        return objects.inspect_object(descriptor)[0]


def _matches_pin(pin: str, status: os.stat_result) -> bool:
    return objects.file_pin(status) == pin


def _write_copy(
    original: int,
    descriptor: int,
    head: ObjectHeader,
    size: int,
    *,
    start: int,
    progress: ProgressCallback | None,
) -> None:
    """Copy a payload from another file into a whole object."""
    front = objects.pack_header(head, size)
    folder_tree.write_all(descriptor, front, 0)
    for done in folder_tree.copy_range(original, descriptor, size, start=start, at=len(front)):
        if progress:
            progress("", done)


def _copy_parts(
    original: int, upload: FolderUpload, size: int, *, start: int, progress: ProgressCallback | None
) -> BlobInfo:
    """Copy the missing parts; the upload stays for a resume if `progress` raises."""
    there, step = upload.parts(), upload.part_size
    for number, at in enumerate(range(0, size, step), start=1):
        length = min(step, size - at)
        if progress:
            progress(upload.token, at)
        if there.get(number) != length:
            upload.copy_part(number, original, start=start + at, length=length)
    return upload.complete()
