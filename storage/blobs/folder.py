"""A folder as a bucket: one file per object, published atomically.

A crash leaves no object or a whole one: bytes go into a temporary file, which is synced, then
linked to its name (which fails if the name exists), and then the folder is synced. A multipart
upload is a file, too, with a journal beside it: one JSON line for each stored part.
"""

import fcntl
import json
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from storage import errors
from storage.blobs import folder_files
from storage.blobs.folder_files import (
    JOURNAL_SUFFIX,
    TEMPORARY_FOLDER,
    UPLOAD_HEADER_BYTES,
    UPLOADS_FOLDER,
    FolderTree,
    ObjectHeader,
)
from storage.blobs.signed_urls import UrlSigner
from storage.keys import check_key, check_metadata
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    PresignedUpload,
    ProgressCallback,
    check_part_number,
    check_part_size,
    check_parts,
)

_UPLOAD_TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)


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
        with self._open(key) as (_, info, _):
            return info

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        with self._open(key, pin) as (descriptor, info, offset):
            yield from folder_files.read_range(
                descriptor, info.size, start=start, length=length, offset=offset
            )

    def open_payload(self, key: str) -> tuple[BinaryIO, int, BlobInfo]:
        """Open the object's file at its first payload byte, for sendfile; the caller closes it."""
        with self._tree.translate_errors(key):
            file = open(self._tree.open(key), "rb", buffering=0)  # noqa: SIM115
            try:
                info, offset = folder_files.inspect_object(file.fileno(), key)
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
        head = ObjectHeader(key, content_type, check_metadata(content_type, metadata))
        with self._create(key, replace=replace) as (path, descriptor):
            front = folder_files.pack_header(head, len(data))
            folder_files.write_all(descriptor, front, 0)
            folder_files.write_all(descriptor, data, len(front))
            self._tree.publish(path, descriptor, key, replace=replace)
            return head.describe_file(len(data), os.fstat(descriptor))

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> "FolderUpload":
        with self._tree.translate_errors(key):
            if token is not None:
                return FolderUpload.resume(self._tree, key, token)
            head = ObjectHeader(key, content_type, check_metadata(content_type, metadata))
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
            with self._create(target_key) as (path, descriptor):
                _write_copy(original, descriptor, head, info.size, start=offset, progress=progress)
                self._tree.publish(path, descriptor, target_key)
                return head.describe_file(info.size, os.fstat(descriptor))

    def _open_upload(self, head: ObjectHeader, part_size: int, token: str | None) -> "FolderUpload":
        with self._tree.translate_errors(head.key):
            if token:
                with suppress(errors.NotFoundError):
                    return FolderUpload.resume(self._tree, head.key, token)
            return FolderUpload.begin(self._tree, head, part_size)

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
            pin, modified_us = folder_files.file_pin(status), status.st_mtime_ns // 1000
            return BlobInfo(key, status.st_size, pin, damaged=True, modified_us=modified_us)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        with suppress(errors.NotFoundError), self._tree.translate_errors(key):
            self._tree.remove(key, pin)

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
            content_type = info.content_type or ""
            merged = check_metadata(content_type, {**info.metadata, **metadata})
            if merged == info.metadata:
                return info
            head = ObjectHeader(key, content_type, merged)
            with (
                self._tree.translate_errors(key),
                self._tree.create_temporary() as (path, descriptor),
            ):
                _write_copy(original, descriptor, head, info.size, start=start, progress=progress)
                self._tree.exchange(path, descriptor, key, pin)
                return head.describe_file(info.size, os.fstat(descriptor))

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
        check_key(key)
        url = self.signer.sign_upload(key, expires_s=expires_s, max_bytes=max_bytes)
        return PresignedUpload(url, {}, max_bytes)

    def find_direct_uploads(self) -> None:
        """See BlobStore."""

    def direct_url(self, key: str) -> str:
        """See BlobStore; the URL names the object, the file's real path is escaped."""
        return f"{self.root.as_uri()}/{quote(key, safe='/')}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        return self._tree.sweep(now - older_than_s)

    @contextmanager
    def _open(self, key: str, pin: str | None = None) -> Iterator[tuple[int, BlobInfo, int]]:
        """Return descriptor, info and payload offset of an object that matches the pin."""
        with self._tree.translate_errors(key):
            descriptor = self._tree.open(key)
            try:
                info, offset = folder_files.inspect_object(descriptor, key)
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
    front = folder_files.pack_header(head, size)
    folder_files.write_all(descriptor, front, 0)
    for done in folder_files.copy_range(original, descriptor, size, start=start, at=len(front)):
        if progress:
            progress("", done)


def _copy_parts(
    original: int,
    upload: "FolderUpload",
    size: int,
    *,
    start: int,
    progress: ProgressCallback | None,
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


class FolderUpload:
    """See MultipartUpload.

    Parts lock the file shared, completion exclusively, so a late writer never writes into a
    published object.
    """

    def __init__(self, tree: FolderTree, token: str, head: ObjectHeader, part_size: int) -> None:
        self._tree, self.token, self._head, self.part_size = tree, token, head, part_size
        self._path, self._journal = _upload_paths(tree, token)

    @classmethod
    def begin(cls, tree: FolderTree, head: ObjectHeader, part_size: int) -> "FolderUpload":
        """Begin a new upload."""
        check_key(head.key)
        check_part_size(part_size)
        upload = cls(tree, secrets.token_hex(16), head, part_size)
        unfinished = folder_files.UNFINISHED_SIZE
        with open(upload._path, "xb") as file:
            file.write(folder_files.pack_header(head, unfinished, offset=UPLOAD_HEADER_BYTES))
        upload._append_journal({"part_size": part_size})
        return upload

    @classmethod
    def resume(cls, tree: FolderTree, key: str, token: str) -> "FolderUpload":
        """Resume the upload of a token; NotFoundError if it is gone, complete or of another key."""
        if not _UPLOAD_TOKEN.fullmatch(token):
            raise errors.NotFoundError("the upload does not exist")
        path, journal = _upload_paths(tree, token)
        with open(path, "rb") as file:
            head, _, _ = folder_files.read_header(file.fileno())
            # A second link: its writer crashed between publishing and cleaning up.
            if head.key != key or os.fstat(file.fileno()).st_nlink != 1:
                raise errors.NotFoundError("the upload does not exist")
        sizes = [line["part_size"] for line in _read_journal(journal) if "part_size" in line]
        if not sizes:
            raise errors.NotFoundError("the upload does not exist")
        return cls(tree, token, head, sizes[0])

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        self._store(number, lambda descriptor, start: self._write(descriptor, start, blocks))

    def copy_part(self, number: int, original: int, *, start: int, length: int) -> None:
        """Store part `number` from a range of an open file, inside the kernel if possible."""

        def write(descriptor: int, at: int) -> int:
            moving = folder_files.copy_range(original, descriptor, length, start=start, at=at)
            return deque(moving, maxlen=1).pop()

        self._store(number, write)

    def _store(self, number: int, write: Callable[[int, int], int]) -> None:
        check_part_number(number)
        with self._lock(fcntl.LOCK_SH) as descriptor:
            if number in self.parts():
                self._append_journal({"part": number, "size": None})
            size = write(descriptor, UPLOAD_HEADER_BYTES + (number - 1) * self.part_size)
            with self._tree.translate_errors(self._head.key):
                folder_files.sync_data(descriptor)
                self._append_journal({"part": number, "size": size})

    def parts(self) -> Mapping[int, int]:
        with self._tree.translate_errors(self._head.key):
            lines = [line for line in _read_journal(self._journal) if "part" in line]
        noted = {line["part"]: line["size"] for line in lines}
        return {number: size for number, size in sorted(noted.items()) if size is not None}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        key, content_type = self._head.key, self._head.content_type
        merged = check_metadata(content_type, {**self._head.metadata, **(metadata or {})})
        head = ObjectHeader(key, content_type, merged)
        with self._lock(fcntl.LOCK_EX) as descriptor:
            size = check_parts(self.parts(), self.part_size)
            with self._tree.translate_errors(key):
                os.ftruncate(descriptor, UPLOAD_HEADER_BYTES + size)
                front = folder_files.pack_header(head, size, offset=UPLOAD_HEADER_BYTES)
                folder_files.write_all(descriptor, front, 0)
                try:
                    self._tree.publish(self._path, descriptor, key, replace=replace)
                except errors.AlreadyExists:
                    self.abort()
                    raise
                self.abort()
                return head.describe_file(size, os.fstat(descriptor))

    def sign_part(self, number: int, *, length: int, crc32c: int, expires_s: int) -> None:
        """See MultipartUpload."""

    def abort(self) -> None:
        for path in (self._path, self._journal):
            with suppress(FileNotFoundError):
                os.unlink(path)

    @contextmanager
    def _lock(self, how: int) -> Iterator[int]:
        """Lock the upload's file; NotFoundError if it was published meanwhile."""
        with self._tree.translate_errors(self._head.key):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._tree.translate_errors(self._head.key):
                fcntl.flock(descriptor, how)
                held, named = os.fstat(descriptor), os.stat(self._path)
            if held.st_nlink != 1 or held.st_ino != named.st_ino:
                raise errors.NotFoundError("the upload does not exist")
            yield descriptor
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, start: int, blocks: Iterable[bytes]) -> int:
        size = 0
        for block in blocks:
            if size + len(block) > self.part_size:
                raise errors.Invalid(f"a part must not exceed {self.part_size} bytes")
            with self._tree.translate_errors(self._head.key):
                folder_files.write_all(descriptor, block, start + size)
            size += len(block)
        return size

    def _append_journal(self, line: Mapping[str, int | None]) -> None:
        """Append to the journal in one write; a lost line only means storing a part again."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._journal, flags, 0o666)
        try:
            os.write(descriptor, b"\n" + json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def _upload_paths(tree: FolderTree, token: str) -> tuple[str, str]:
    path = os.path.join(tree.root, UPLOADS_FOLDER, token)
    return path, path + JOURNAL_SUFFIX


def _read_journal(journal: str) -> Iterator[dict[str, int]]:
    """Read the journal's lines, except those that a crash tore."""
    with open(journal, "rb") as file:
        for line in file:
            with suppress(ValueError):
                yield json.loads(line)
