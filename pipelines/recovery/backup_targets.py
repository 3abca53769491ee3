"""Where backups are kept: a folder, or a bucket of S3 or Google Cloud Storage."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from storage.errors import AlreadyExists, NotFoundError
from storage.protocols import DEFAULT_CONTENT_TYPE, BlobStore

PREFIX = "backups/"
PART_BYTES = 16 * 1024 * 1024
_NAME_REGEX = re.compile(r"store-[0-9]{8}T[0-9]{12}Z\.backup")


def make_backup_name(at_us: int) -> str:
    """Return the name of a backup of this time; names sort by time."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    return f"store-{at:%Y%m%dT%H%M%S%f}Z.backup"


class BackupTarget(Protocol):
    """Keeps backups by name; a name appears once its backup is complete, and never changes."""

    @property
    def staging(self) -> Path:
        """The folder of a file that will be stored."""

    def store(self, draft: Path, name: str) -> None:
        """Store a file; AlreadyExists if the name is taken."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a backup, which can be read again from its beginning; NotFoundError."""

    def list_names(self) -> list[str]:
        """Return the names of backups, the oldest first."""

    def delete(self, name: str) -> None:
        """Delete a backup."""


class FolderTarget:
    """A folder; its backups are readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        self.staging = folder

    def store(self, draft: Path, name: str) -> None:
        """See BackupTarget; the draft is on the disk already."""
        try:
            os.link(draft, self.staging / name)
        except FileExistsError as error:
            raise AlreadyExists(f"{self.staging / name} exists.") from error
        handle = os.open(self.staging, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """See BackupTarget."""
        try:
            file = (self.staging / name).open("rb")
        except FileNotFoundError as error:
            raise NotFoundError(f"There is no backup {self.staging / name}.") from error
        with file:
            yield file

    def list_names(self) -> list[str]:
        """See BackupTarget."""
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self.staging) if _NAME_REGEX.fullmatch(name))
        return []

    def delete(self, name: str) -> None:
        """See BackupTarget."""
        (self.staging / name).unlink(missing_ok=True)


class BucketTarget:
    """A bucket; its backups are below `backups/`."""

    def __init__(self, bucket: BlobStore, *, part_bytes: int = PART_BYTES) -> None:
        self._bucket, self._part_bytes = bucket, part_bytes
        self.staging = Path(tempfile.gettempdir())

    def store(self, draft: Path, name: str) -> None:
        """See BackupTarget."""
        with draft.open("rb") as file:
            block = file.read(self._part_bytes)
            if len(block) < self._part_bytes:
                self._bucket.put(PREFIX + name, block)
                return
            upload = self._bucket.upload(
                PREFIX + name, part_size=self._part_bytes, content_type=DEFAULT_CONTENT_TYPE
            )
            try:
                number = 1
                while block:
                    upload.part(number, [block])
                    number, block = number + 1, file.read(self._part_bytes)
                upload.complete()
            except BaseException:
                upload.abort()
                raise

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """See BackupTarget; reads the whole object into a temporary file."""
        with tempfile.TemporaryFile() as file:
            for block in self._bucket.read(PREFIX + name):
                file.write(block)
            file.seek(0)
            yield file

    def list_names(self) -> list[str]:
        """See BackupTarget."""
        names = (info.key.removeprefix(PREFIX) for info in self._bucket.list(PREFIX))
        return sorted(name for name in names if _NAME_REGEX.fullmatch(name))

    def delete(self, name: str) -> None:
        """See BackupTarget."""
        self._bucket.delete(PREFIX + name)


def remove_old_backups(target: BackupTarget, *, keep: int) -> list[str]:
    """Delete all backups but the latest `keep`; return their names."""
    old = target.list_names()[:-keep]
    for name in old:
        target.delete(name)
    return old
