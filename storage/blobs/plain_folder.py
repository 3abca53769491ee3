"""A folder of plain files for checkouts.

A file's path is its key, and there is no metadata. Files appear whole or not at all.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from storage import errors
from storage.blobs import folder_files
from storage.blobs.folder import FolderBlobs
from storage.blobs.folder_files import file_pin, sync_folder
from storage.protocols import (
    DEFAULT_CONTENT_TYPE,
    BlobInfo,
    BlobStore,
    MultipartUpload,
    PresignedUpload,
    ProgressCallback,
)

INCOMING_PREFIX = ".incoming-"
_LINK_ATTEMPTS = 16


class PlainFolder:
    """The part of BlobStore that a checkout needs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def head(self, key: str) -> BlobInfo:
        with self._open(key) as descriptor:
            return _file_info(key, descriptor)

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        with self._open(key) as descriptor:
            info = _file_info(key, descriptor)
            if pin is not None and info.pin != pin:
                raise errors.SourceChanged(f"{key} changed.")
            yield from folder_files.read_range(descriptor, info.size, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore; drops content type and metadata, and never replaces."""
        if replace:
            raise errors.Invalid("A checkout folder cannot replace files.")
        with self._create(key) as descriptor:
            folder_files.write_all(descriptor, data, 0)
        return self.head(key)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> MultipartUpload:
        """Refuse: large files are copied from the replica's folder."""
        raise errors.Invalid("A checkout folder does not support uploads.")

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
        """See BlobStore; from folder buckets only."""
        if not isinstance(source, FolderBlobs):
            return None
        payload, size, info = source.open_payload(key)
        with payload, self._create(target_key) as descriptor:
            if pin is not None and info.pin != pin:
                raise errors.SourceChanged(f"{key} changed.")
            start = payload.tell()
            for done in folder_files.copy_range(
                payload.fileno(), descriptor, size, start=start, at=0
            ):
                if progress:
                    progress("", done)
        return self.head(target_key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; holds all names in memory."""
        base = self._path(prefix.rpartition("/")[0])
        paths = (path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
        names = (path.relative_to(self._root).as_posix() for path in paths)
        wanted = (name for name in names if name.startswith(prefix) and name > after)
        for name in sorted(wanted, key=str.encode):
            if not name.startswith(INCOMING_PREFIX):
                with suppress(errors.NotFoundError):
                    yield self.head(name)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore; removes folders that become empty."""
        path = self._path(key)
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        for folder in path.parents:
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:
                return

    def write_metadata(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: ProgressCallback | None = None,
    ) -> BlobInfo:
        """Refuse: plain files have no metadata."""
        raise errors.Invalid("A checkout folder cannot store metadata.")

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """Refuse: the files need no URLs."""
        raise errors.Forbidden("A checkout folder cannot sign URLs.")

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> PresignedUpload:
        raise errors.Forbidden("A checkout folder cannot sign URLs.")

    def find_direct_uploads(self) -> None:
        """See BlobStore."""

    def direct_url(self, key: str) -> str:
        url = (self._root.absolute() / key).as_uri()
        return f"{url}/" if key.endswith("/") else url

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        removed = 0
        for path in self._root.glob(f"{INCOMING_PREFIX}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - older_than_s:
                    path.unlink()
                    removed += 1
        return removed

    def _path(self, key: str) -> Path:
        """Return the path of a key; Invalid if it leads out of the folder."""
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise errors.Invalid(f"{key!r} is not a valid file name.")
        return self._root / key

    @contextmanager
    def _open(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.NotFoundError(f"File {key} does not exist.") from error
        except OSError as error:
            raise errors.Unavailable(f"The folder cannot be read: {error.strerror}.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise errors.NotFoundError(f"File {key} does not exist.")
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _create(self, key: str) -> Iterator[int]:
        """Yield a private file, then sync it and link it to the key's name."""
        path = self._path(key)
        temporary = self._root / f"{INCOMING_PREFIX}{secrets.token_hex(16)}"
        with _translate_write_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
            )
        try:
            with _translate_write_errors():
                yield descriptor
                os.fsync(descriptor)
                _link_file(temporary, path, key)
                sync_folder(str(path.parent))
        finally:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)


def _link_file(temporary: Path, path: Path, key: str) -> None:
    for left in reversed(range(_LINK_ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(temporary, path)
        except FileExistsError as error:
            if path.is_file():
                raise errors.AlreadyExists(f"{key} exists already.") from error
            raise
        except FileNotFoundError:
            # Another process removed the empty folder; make it again.
            if not left:
                raise
        else:
            return


@contextmanager
def _translate_write_errors() -> Iterator[None]:
    """Translate errors, including a file name that is a folder of another key."""
    try:
        yield
    except OSError as error:
        raise errors.Forbidden(f"The folder cannot be written: {error.strerror}.") from error


def _file_info(key: str, descriptor: int) -> BlobInfo:
    status = os.fstat(descriptor)
    return BlobInfo(key, status.st_size, file_pin(status))
