"""Multipart uploads into a folder bucket.

A journal beside the file has one JSON line for each stored part.
"""

import fcntl
import json
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from storage.blobs import folder_tree, objects
from storage.blobs.folder_tree import JOURNAL_SUFFIX, UPLOADS_FOLDER, FolderTree
from storage.blobs.objects import UPLOAD_HEADER_BYTES, ObjectHeader, check_header
from storage.errors import AlreadyExists, Invalid, NotFoundError
from storage.protocols import BlobInfo

MAX_PARTS = 10_000
_UPLOAD_TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)


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
        objects.check_key(head.key)
        if part_size < 1:
            raise Invalid("part_size: must be at least 1 byte")
        upload = cls(tree, secrets.token_hex(16), head, part_size)
        with open(upload._path, "xb") as file:
            file.write(
                objects.pack_header(head, objects.UNFINISHED_SIZE, offset=UPLOAD_HEADER_BYTES)
            )
        upload._append_journal({"part_size": part_size})
        return upload

    @classmethod
    def resume(cls, tree: FolderTree, key: str, token: str) -> "FolderUpload":
        """Resume the upload of a token; NotFoundError if it is gone, complete or of another key."""
        if not _UPLOAD_TOKEN.fullmatch(token):
            raise NotFoundError("the upload does not exist")
        path, journal = _upload_paths(tree, token)
        with open(path, "rb") as file:
            head = objects.read_header(file.fileno()).head
            # A second link: its writer crashed between publishing and cleaning up.
            if head.key != key or os.fstat(file.fileno()).st_nlink != 1:
                raise NotFoundError("the upload does not exist")
        sizes = [line["part_size"] for line in _read_journal(journal) if "part_size" in line]
        if not sizes:
            raise NotFoundError("the upload does not exist")
        return cls(tree, token, head, sizes[0])

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """See MultipartUpload."""
        self._store(number, lambda descriptor, start: self._write(descriptor, start, blocks))

    def copy_part(self, number: int, original: int, *, start: int, length: int) -> None:
        """Store part `number` from a range of an open file, inside the kernel if possible."""

        def write(descriptor: int, at: int) -> int:
            moving = folder_tree.copy_range(original, descriptor, length, start=start, at=at)
            return deque(moving, maxlen=1).pop()

        self._store(number, write)

    def _store(self, number: int, write: Callable[[int, int], int]) -> None:
        if not 1 <= number <= MAX_PARTS:
            raise Invalid(f"part number: must be 1 to {MAX_PARTS}")
        with self._lock(fcntl.LOCK_SH) as descriptor:
            if number in self.parts():
                self._append_journal({"part": number, "size": None})
            size = write(descriptor, UPLOAD_HEADER_BYTES + (number - 1) * self.part_size)
            with self._tree.translate_errors(self._head.key):
                folder_tree.sync_data(descriptor)
                self._append_journal({"part": number, "size": size})

    def parts(self) -> Mapping[int, int]:
        """See MultipartUpload."""
        with self._tree.translate_errors(self._head.key):
            lines = [line for line in _read_journal(self._journal) if "part" in line]
        noted = {line["part"]: line["size"] for line in lines}
        return {number: size for number, size in sorted(noted.items()) if size is not None}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See MultipartUpload."""
        all_metadata = {**self._head.metadata, **(metadata or {})}
        head = check_header(self._head.key, self._head.content_type, all_metadata)
        with self._lock(fcntl.LOCK_EX) as descriptor:
            size = self._total_size()
            with self._tree.translate_errors(self._head.key):
                os.ftruncate(descriptor, UPLOAD_HEADER_BYTES + size)
                front = objects.pack_header(head, size, offset=UPLOAD_HEADER_BYTES)
                folder_tree.write_all(descriptor, front, 0)
                os.fsync(descriptor)
                self._publish(replace)
                return objects.inspect_object(descriptor)[0]

    def abort(self) -> None:
        """See MultipartUpload."""
        for path in (self._path, self._journal):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _publish(self, replace: bool) -> None:
        try:
            self._tree.publish(self._path, self._head.key, replace=replace)
        except AlreadyExists:
            self.abort()
            raise
        self.abort()

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
                raise NotFoundError("the upload does not exist")
            yield descriptor
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, start: int, blocks: Iterable[bytes]) -> int:
        size = 0
        for block in blocks:
            if size + len(block) > self.part_size:
                raise Invalid(f"a part must not exceed {self.part_size} bytes")
            with self._tree.translate_errors(self._head.key):
                folder_tree.write_all(descriptor, block, start + size)
            size += len(block)
        return size

    def _total_size(self) -> int:
        """Return the object's size; Invalid unless all parts are present and full."""
        parts = self.parts()
        if list(parts) != list(range(1, len(parts) + 1)):
            raise Invalid("a part is missing: upload it first")
        if any(size != self.part_size for size in list(parts.values())[:-1]):
            raise Invalid("only the last part may be shorter than the part size")
        return sum(parts.values())

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
