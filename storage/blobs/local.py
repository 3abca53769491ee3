"""A folder as a bucket: one file an object, with its head in front, named once and for good.

A crash at any instant leaves no object or a whole one: bytes go into a temporary file, are synced,
linked to their name (which fails if it is taken), and the folder is synced.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from storage.blobs import envelope, layout, transfer
from storage.blobs.envelope import Head, checked_head
from storage.blobs.local_upload import LocalUpload
from storage.blobs.signing import UrlSigner
from storage.blobs.tree import TEMPORARY, Tree
from storage.errors import AlreadyExists, Damaged, NotFound, RangeNotSatisfiable, SourceChanged
from storage.protocols import DEFAULT_TYPE, BlobInfo, BlobStore, Progress, SignedUpload


class LocalBlobs:
    """A BlobStore in a folder, which it makes when it is absent."""

    def __init__(self, root: str | os.PathLike[str], signer: UrlSigner) -> None:
        self.signer = signer
        self._tree = Tree(root)

    @property
    def root(self) -> Path:
        """The folder."""
        return Path(self._tree.root)

    @property
    def temporaries(self) -> Path:
        """Where objects are written before they get their name."""
        return self.root / TEMPORARY

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
                raise RangeNotSatisfiable(f"{key} has {info.size} bytes")
            rest = info.size - start
            count = rest if length is None else max(0, min(length, rest))
            yield from transfer.blocks(descriptor, offset + start, count)

    def open_payload(self, key: str) -> tuple[BinaryIO, int, BlobInfo]:
        """The object's file at its first payload byte, for sendfile; the caller closes it."""
        with self._tree.speaking_of(key):
            file = open(self._tree.open(key), "rb", buffering=0)  # noqa: SIM115
            try:
                info, offset = envelope.inspect(file.fileno(), key)
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
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore."""
        head = checked_head(key, content_type, metadata)
        with self._creating(key, replace=replace) as (path, descriptor):
            front = envelope.pack(head, len(data))
            transfer.write_all(descriptor, front, 0)
            transfer.write_all(descriptor, data, len(front))
            return self._publish(path, descriptor, key, replace=replace)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> LocalUpload:
        """See BlobStore."""
        with self._tree.speaking_of(key):
            if token is not None:
                return LocalUpload.resume(self._tree, key, token)
            head = checked_head(key, content_type, metadata)
            return LocalUpload.begin(self._tree, head, part_size)

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
        """See BlobStore; what fits into one part is copied at once, with nothing to resume."""
        if not isinstance(source, LocalBlobs):
            return None
        with source._open(key, pin) as (original, info, offset):
            head = Head(target_key, info.content_type or "", info.metadata)
            if info.size > part_size:
                upload = self._taken_up(head, part_size, resume)
                return _copy_parts(original, upload, info.size, start=offset, progress=progress)
            return self._copy_whole(original, head, info.size, start=offset, progress=progress)

    def _taken_up(self, head: Head, part_size: int, token: str | None) -> LocalUpload:
        with self._tree.speaking_of(head.key):
            if token:
                with suppress(NotFound):
                    return LocalUpload.resume(self._tree, head.key, token)
            return LocalUpload.begin(self._tree, head, part_size)

    def _copy_whole(
        self, original: int, head: Head, size: int, *, start: int, progress: Progress | None
    ) -> BlobInfo:
        with self._creating(head.key) as (path, descriptor):
            _write_copy(original, descriptor, head, size, start=start, progress=progress)
            return self._publish(path, descriptor, head.key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; metadata included, but for that of damaged objects."""
        self._tree.expect_root()
        for key, path in self._tree.walk(prefix.encode(), after.encode()):
            with suppress(NotFound):
                yield self._listed(key, path)
        self._tree.expect_root()

    def _listed(self, key: str, path: str) -> BlobInfo:
        """One entry of a listing; a damaged object is marked."""
        try:
            with self._open(key) as (_, info, _):
                return info
        except Damaged:
            with self._tree.speaking_of(key):
                status = os.lstat(path)
            pin, modified_us = envelope.pin_of(status), status.st_mtime_ns // 1000
            return BlobInfo(key, status.st_size, pin, damaged=True, modified_us=modified_us)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore."""
        with suppress(NotFound), self._tree.speaking_of(key):
            self._tree.remove(key, None if pin is None else partial(_fits, pin))

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """See BlobStore; another file takes the object's place, for a file never changes."""
        with self._open(key, pin) as (original, info, start):
            head = checked_head(key, info.content_type or "", {**info.metadata, **metadata})
            if head.metadata == info.metadata:
                return info
            with self._tree.speaking_of(key), self._tree.temporary() as (path, descriptor):
                _write_copy(original, descriptor, head, info.size, start=start, progress=progress)
                os.fsync(descriptor)
                self._tree.exchange(path, key, partial(_fits, pin))
                return envelope.inspect(descriptor)[0]

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """See BlobStore; the API serves what the signer has signed."""
        return self.signer.sign(
            key, expires_s=expires_s, content_type=content_type, disposition=disposition
        )

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """See BlobStore; the API takes what the signer has signed."""
        layout.checked(key)
        url = self.signer.sign_upload(key, expires_s=expires_s, max_bytes=max_bytes)
        return SignedUpload(url, {}, max_bytes)

    def direct_url(self, key: str) -> str:
        """See BlobStore; names the object, but the file of that path is spelled otherwise."""
        return f"{self.root.as_uri()}/{quote(key, safe='/')}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        return self._tree.sweep(now - older_than_s)

    @contextmanager
    def _open(self, key: str, pin: str | None = None) -> Iterator[tuple[int, BlobInfo, int]]:
        """Descriptor, information and payload offset of an object that fits the pin."""
        with self._tree.speaking_of(key):
            descriptor = self._tree.open(key)
            try:
                info, offset = envelope.inspect(descriptor, key)
                if pin is not None and pin != info.pin:
                    raise SourceChanged(f"{key} is no longer what it was")
                yield descriptor, info, offset
            finally:
                os.close(descriptor)

    @contextmanager
    def _creating(self, key: str, *, replace: bool = False) -> Iterator[tuple[str, int]]:
        """A temporary file for a key that is still free; the link decides, this saves the work."""
        with self._tree.speaking_of(key):
            if not replace and os.path.exists(self._tree.path(key)):
                raise AlreadyExists(f"{key} exists already")
            with self._tree.temporary() as temporary:
                yield temporary

    def _publish(self, path: str, descriptor: int, key: str, *, replace: bool = False) -> BlobInfo:
        os.fsync(descriptor)
        self._tree.publish(path, key, replace=replace)
        return envelope.inspect(descriptor)[0]


def _fits(pin: str, status: os.stat_result) -> bool:
    return envelope.pin_of(status) == pin


def _write_copy(
    original: int, descriptor: int, head: Head, size: int, *, start: int, progress: Progress | None
) -> None:
    """A whole object into a file, its payload out of another one."""
    front = envelope.pack(head, size)
    transfer.write_all(descriptor, front, 0)
    for done in transfer.copy_range(original, descriptor, size, start=start, at=len(front)):
        if progress:
            progress("", done)


def _copy_parts(
    original: int, upload: LocalUpload, size: int, *, start: int, progress: Progress | None
) -> BlobInfo:
    """Every part that the upload does not have yet; it stays behind when `progress` raises."""
    there, step = upload.parts(), upload.part_size
    for number, at in enumerate(range(0, size, step), start=1):
        length = min(step, size - at)
        if progress:
            progress(upload.token, at)
        if there.get(number) != length:
            upload.copy_part(number, original, start=start + at, length=length)
    return upload.complete()
