"""A folder of plain files: where checked-out bundles lie for people and their programs to read.

Not a replica: there is no metadata, and a file's path is its key. What it takes is whole or absent.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.blobs import transfer
from storage.blobs.envelope import pin_of
from storage.blobs.local import LocalBlobs
from storage.blobs.tree import sync_folder
from storage.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    Unavailable,
)
from storage.protocols import (
    DEFAULT_TYPE,
    BlobInfo,
    BlobStore,
    Progress,
    SignedUpload,
    Upload,
)

INCOMING = ".incoming-"
_ATTEMPTS = 16


class PlainFolder:
    """The verbs of BlobStore that a checkout needs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def head(self, key: str) -> BlobInfo:
        """See BlobStore."""
        with self._opened(key) as descriptor:
            return _info(key, descriptor)

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        with self._opened(key) as descriptor:
            info = _info(key, descriptor)
            if pin is not None and info.pin != pin:
                raise SourceChanged(f"{key} changed.")
            if start and start >= info.size:
                raise RangeNotSatisfiable(f"{key} has {info.size} bytes.")
            rest = info.size - start
            yield from transfer.blocks(
                descriptor, start, rest if length is None else min(length, rest)
            )

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore; content type and metadata are not kept, and nothing is replaced."""
        if replace:
            raise Invalid("A checkout folder replaces nothing.")
        with self._creating(key) as descriptor:
            transfer.write_all(descriptor, data, 0)
        return self.head(key)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Upload:
        """Not taken: large files are copied from the replica's own folder."""
        raise Invalid("A checkout folder takes no uploads.")

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
        """See BlobStore; from folder buckets only."""
        if not isinstance(source, LocalBlobs):
            return None
        payload, size, info = source.open_payload(key)
        with payload, self._creating(target_key) as descriptor:
            if pin is not None and info.pin != pin:
                raise SourceChanged(f"{key} changed.")
            start = payload.tell()
            for done in transfer.copy_range(payload.fileno(), descriptor, size, start=start, at=0):
                if progress:
                    progress("", done)
        return self.head(target_key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; all names are in memory at once."""
        base = self._path(prefix.rpartition("/")[0])
        paths = (path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
        names = (path.relative_to(self._root).as_posix() for path in paths)
        wanted = (name for name in names if name.startswith(prefix) and name > after)
        for name in sorted(wanted, key=str.encode):
            if not name.startswith(INCOMING):
                with suppress(NotFound):
                    yield self.head(name)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore; folders that become empty go too."""
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

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """Not taken: plain files have no metadata."""
        raise Invalid("A checkout folder keeps no metadata.")

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """Not given: the files lie in the open."""
        raise Forbidden("A checkout folder signs no URLs.")

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """See BlobStore."""
        raise Forbidden("A checkout folder signs no URLs.")

    def direct_url(self, key: str) -> str:
        """See BlobStore."""
        url = (self._root.absolute() / key).as_uri()
        return f"{url}/" if key.endswith("/") else url

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        removed = 0
        for path in self._root.glob(f"{INCOMING}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - older_than_s:
                    path.unlink()
                    removed += 1
        return removed

    def _path(self, key: str) -> Path:
        """Names are checked when a bundle is written; this holds whatever they are."""
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise Invalid(f"{key!r} is not a name in a folder.")
        return self._root / key

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"There is no file {key}.") from error
        except OSError as error:
            raise Unavailable(f"The folder cannot be read: {error.strerror}.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotFound(f"There is no file {key}.")
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _creating(self, key: str) -> Iterator[int]:
        """A private file that gets the key's name, synced, when the block ends well."""
        path = self._path(key)
        temporary = self._root / f"{INCOMING}{secrets.token_hex(16)}"
        with _unwritable_as_ours():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
            )
        try:
            with _unwritable_as_ours():
                yield descriptor
                os.fsync(descriptor)
                _link(temporary, path, key)
                sync_folder(str(path.parent))
        finally:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path, key: str) -> None:
    for left in reversed(range(_ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(temporary, path)
        except FileExistsError as error:
            if path.is_file():
                raise AlreadyExists(f"{key} exists.") from error
            raise
        except FileNotFoundError:
            # Somebody removed the folder because it was empty; make it again.
            if not left:
                raise
        else:
            return


@contextmanager
def _unwritable_as_ours() -> Iterator[None]:
    """Also when one name of a bundle is the folder of another, which no file system can hold."""
    try:
        yield
    except OSError as error:
        raise Forbidden(f"The folder cannot be written: {error.strerror}.") from error


def _info(key: str, descriptor: int) -> BlobInfo:
    status = os.fstat(descriptor)
    return BlobInfo(key, status.st_size, pin_of(status))
