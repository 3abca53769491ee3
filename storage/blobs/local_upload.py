"""A multipart upload into a folder bucket: parts land at their offsets in one file, which becomes
the object by its head's last word and a link, without a second copy of the bytes.

Beside the file lies a journal, one JSON line for each part that is safely stored.
"""

import fcntl
import json
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from storage.blobs import envelope, layout, transfer
from storage.blobs.envelope import UPLOAD_FRONT, Head, checked_head
from storage.blobs.tree import JOURNAL, UPLOADS, Tree
from storage.errors import AlreadyExists, Invalid, NotFound
from storage.protocols import BlobInfo

MAX_PARTS = 10_000
_TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)


class LocalUpload:
    """One unfinished object. Parts lock its file shared, completion alone: a writer that was
    forgotten can then never reach into an object that has become visible."""

    def __init__(self, tree: Tree, token: str, head: Head, part_size: int) -> None:
        self._tree, self._token, self._head, self._part_size = tree, token, head, part_size
        self._path, self._journal = _paths(tree, token)

    @classmethod
    def begin(cls, tree: Tree, head: Head, part_size: int) -> "LocalUpload":
        """A new upload."""
        layout.checked(head.key)
        if part_size < 1:
            raise Invalid("a part has at least one byte")
        upload = cls(tree, secrets.token_hex(16), head, part_size)
        with open(upload._path, "xb") as file:
            file.write(envelope.pack(head, envelope.UNFINISHED, offset=UPLOAD_FRONT))
        upload._note({"part_size": part_size})
        return upload

    @classmethod
    def resume(cls, tree: Tree, key: str, token: str) -> "LocalUpload":
        """The upload that a token names; NotFound when it is gone, done or of another key."""
        if not _TOKEN.fullmatch(token):
            raise NotFound("no such upload")
        path, journal = _paths(tree, token)
        with open(path, "rb") as file:
            head = envelope.unpack(file.fileno()).head
            # A second link: somebody died between making it visible and forgetting it.
            if head.key != key or os.fstat(file.fileno()).st_nlink != 1:
                raise NotFound("no such upload")
        sizes = [line["part_size"] for line in _lines(journal) if "part_size" in line]
        if not sizes:
            raise NotFound("no such upload")
        return cls(tree, token, head, sizes[0])

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
        self._store(number, lambda descriptor, start: self._write(descriptor, start, blocks))

    def copy_part(self, number: int, original: int, *, start: int, length: int) -> None:
        """Store part `number` from an open file's range, inside the kernel where it can."""

        def write(descriptor: int, at: int) -> int:
            moving = transfer.copy_range(original, descriptor, length, start=start, at=at)
            return deque(moving, maxlen=1).pop()

        self._store(number, write)

    def _store(self, number: int, write: Callable[[int, int], int]) -> None:
        if not 1 <= number <= MAX_PARTS:
            raise Invalid(f"part numbers are 1 to {MAX_PARTS}")
        with self._locked(fcntl.LOCK_SH) as descriptor:
            if number in self.parts():
                self._note({"part": number, "size": None})
            size = write(descriptor, UPLOAD_FRONT + (number - 1) * self._part_size)
            with self._tree.speaking_of(self._head.key):
                transfer.sync_data(descriptor)
                self._note({"part": number, "size": size})

    def parts(self) -> Mapping[int, int]:
        """See Upload."""
        with self._tree.speaking_of(self._head.key):
            lines = [line for line in _lines(self._journal) if "part" in line]
        noted = {line["part"]: line["size"] for line in lines}
        return {number: size for number, size in sorted(noted.items()) if size is not None}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See Upload."""
        all_metadata = {**self._head.metadata, **(metadata or {})}
        head = checked_head(self._head.key, self._head.content_type, all_metadata)
        with self._locked(fcntl.LOCK_EX) as descriptor:
            size = self._whole_size()
            with self._tree.speaking_of(self._head.key):
                os.ftruncate(descriptor, UPLOAD_FRONT + size)
                front = envelope.pack(head, size, offset=UPLOAD_FRONT)
                transfer.write_all(descriptor, front, 0)
                os.fsync(descriptor)
                self._publish(replace)
                return envelope.inspect(descriptor)[0]

    def abort(self) -> None:
        """See Upload."""
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
    def _locked(self, how: int) -> Iterator[int]:
        """The upload's file, locked and surely still private."""
        with self._tree.speaking_of(self._head.key):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._tree.speaking_of(self._head.key):
                fcntl.flock(descriptor, how)
                held, named = os.fstat(descriptor), os.stat(self._path)
            if held.st_nlink != 1 or held.st_ino != named.st_ino:
                raise NotFound("no such upload")
            yield descriptor
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, start: int, blocks: Iterable[bytes]) -> int:
        size = 0
        for block in blocks:
            if size + len(block) > self._part_size:
                raise Invalid(f"a part has more than {self._part_size} bytes")
            with self._tree.speaking_of(self._head.key):
                transfer.write_all(descriptor, block, start + size)
            size += len(block)
        return size

    def _whole_size(self) -> int:
        """Length of the object; Invalid unless parts 1 to the last are there and full."""
        parts = self.parts()
        if list(parts) != list(range(1, len(parts) + 1)):
            raise Invalid("a part is missing")
        if any(size != self._part_size for size in list(parts.values())[:-1]):
            raise Invalid("a part that is not the last is short")
        return sum(parts.values())

    def _note(self, line: Mapping[str, int | None]) -> None:
        """Append to the journal in one write; losing it only means storing a part again."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._journal, flags, 0o666)
        try:
            os.write(descriptor, b"\n" + json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def _paths(tree: Tree, token: str) -> tuple[str, str]:
    path = os.path.join(tree.root, UPLOADS, token)
    return path, path + JOURNAL


def _lines(journal: str) -> Iterator[dict[str, int]]:
    """The journal's lines but those that a crash tore."""
    with open(journal, "rb") as file:
        for line in file:
            with suppress(ValueError):
                yield json.loads(line)
