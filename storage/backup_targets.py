"""Where backups are kept: a folder, or a bucket of S3 or Google Cloud Storage."""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from config import Settings
from config.settings import SettingsError
from storage.blobs.folder_files import sync_folder
from storage.encryption import derive_keys
from storage.engines import open_bucket, parse_folder_url
from storage.errors import AlreadyExists, NotFoundError
from storage.model import REPLICAS
from storage.protocols import DEFAULT_CONTENT_TYPE, BackupTarget, BlobStore

PREFIX = "backups/"
PART_BYTES = 16 * 1024 * 1024
_KEY_PURPOSE, _KEY_BYTES = b"backups", 16
_NAME_REGEX = re.compile(r"store-[0-9]{8}T[0-9]{12}Z\.backup")


class FolderTarget:
    """See BackupTarget; a folder, whose backups are readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        self.staging_folder = folder

    def store(self, draft: Path, name: str) -> None:
        """See BackupTarget; the draft is on the disk already."""
        try:
            os.link(draft, self.staging_folder / name)
        except FileExistsError as error:
            raise AlreadyExists(f"{self.staging_folder / name} exists.") from error
        sync_folder(str(self.staging_folder))

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        try:
            file = (self.staging_folder / name).open("rb")
        except FileNotFoundError as error:
            raise NotFoundError(f"There is no backup {self.staging_folder / name}.") from error
        with file:
            yield file

    def list_names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(
                name for name in os.listdir(self.staging_folder) if _NAME_REGEX.fullmatch(name)
            )
        return []

    def delete(self, name: str) -> None:
        (self.staging_folder / name).unlink(missing_ok=True)


class BucketTarget:
    """See BackupTarget; a bucket, whose backups are below `backups/`."""

    def __init__(self, bucket: BlobStore, *, part_bytes: int = PART_BYTES) -> None:
        self._bucket, self._part_bytes = bucket, part_bytes
        self.staging_folder = Path(tempfile.gettempdir())

    def store(self, draft: Path, name: str) -> None:
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
        names = (info.key.removeprefix(PREFIX) for info in self._bucket.list(PREFIX))
        return sorted(name for name in names if _NAME_REGEX.fullmatch(name))

    def delete(self, name: str) -> None:
        self._bucket.delete(PREFIX + name)


def open_backup_target(settings: Settings, url: str) -> BackupTarget:
    """Open the folder or bucket of a URL; SettingsError for a bucket of the store."""
    own = [settings.areas_url]
    for name in REPLICAS:
        own += [settings.bucket(name), settings.checkout_bucket(name)]
    if any(_is_within(url, one) for one in own if one):
        raise SettingsError(f"{url}: is a bucket of the store; a backup belongs elsewhere")
    if url.startswith("file://"):
        return FolderTarget(Path(parse_folder_url("backups", url)))
    return BucketTarget(open_bucket(settings, "backups", url))


def _is_within(url: str, bucket: str) -> bool:
    """Return whether a URL is in a bucket, whatever its options."""
    one, other = urlsplit(url), urlsplit(bucket)
    if one.scheme != "file" or other.scheme != "file":
        return one[:2] == other[:2]
    folder = Path(parse_folder_url("backups", url)).resolve()
    return folder.is_relative_to(Path(parse_folder_url("bucket", bucket)).resolve())


def derive_backup_keys(secrets: Iterable[str]) -> list[str]:
    """Derive what tells one secret from another; nothing is signed or sealed with it."""
    return [key.hex() for key in derive_keys(secrets, _KEY_PURPOSE, _KEY_BYTES)]
