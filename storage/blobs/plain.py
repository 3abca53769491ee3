"""A folder of plain files: where checked-out bundles lie for people and their programs to read.

Not a replica: there is no metadata, and a file's name is its key. What it takes is whole or absent.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import mkstemp

from storage.blobs.local import LocalBlobs
from storage.errors import AlreadyExists, Forbidden, Invalid, NotFound, SourceChanged
from storage.protocols import BLOCK, BlobInfo, BlobStore, Progress, Upload


class PlainFolder:
    """The verbs of BlobStore that a checkout needs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def head(self, key: str) -> BlobInfo:
        """See BlobStore."""
        try:
            stat = self._path(key).stat()
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {key}.") from error
        return BlobInfo(key, stat.st_size, f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}")

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        if pin is not None and self.head(key).pin != pin:
            raise SourceChanged(f"{key} changed.")
        left = length
        with self._path(key).open("rb") as file:
            file.seek(start)
            while block := file.read(BLOCK if left is None else min(BLOCK, left)):
                yield block
                left = None if left is None else left - len(block)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
    ) -> BlobInfo:
        """See BlobStore; content type and metadata are not kept."""
        temporary = self._temporary(key)
        with temporary.open("wb") as file:
            file.write(data)
        return self._link(temporary, key)

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
        pin: str,
        part_size: int,
        resume: str | None = None,
        progress: Progress | None = None,
    ) -> BlobInfo | None:
        """See BlobStore; from folder buckets only."""
        if not isinstance(source, LocalBlobs):
            return None
        payload, size, info = source.open_payload(key)
        temporary = self._temporary(target_key)
        with payload, temporary.open("wb") as file:
            if info.pin != pin:
                raise SourceChanged(f"{key} changed.")
            shutil.copyfileobj(payload, file, BLOCK)
        if temporary.stat().st_size != size:
            raise SourceChanged(f"{key} changed.")
        return self._link(temporary, target_key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; all names are in memory at once."""
        base = self._path(prefix.rstrip("/"))
        found = (path for path in base.rglob("*") if path.is_file()) if base.is_dir() else ()
        names = sorted(str(path.relative_to(self._root)) for path in found)
        yield from (self.head(name) for name in names if name > after)

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore; folders that become empty go too."""
        path = self._path(key)
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root or any(folder.iterdir()):
                return
            folder.rmdir()

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

    def direct_url(self, key: str) -> str:
        """See BlobStore."""
        url = (self._root.absolute() / key).as_uri()
        return f"{url}/" if key.endswith("/") else url

    def _path(self, key: str) -> Path:
        """Names are checked when a bundle is written; this holds whatever they are."""
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise Invalid(f"{key!r} is not a name in a folder.")
        return self._root / key

    def _temporary(self, key: str) -> Path:
        try:
            self._path(key).parent.mkdir(parents=True, exist_ok=True)
            self._root.mkdir(parents=True, exist_ok=True)
            handle, path = mkstemp(prefix=".incoming-", dir=self._root)
        except OSError as error:
            raise Forbidden(f"The folder cannot be written: {error.strerror}.") from error
        os.close(handle)
        return Path(path)

    def _link(self, temporary: Path, key: str) -> BlobInfo:
        temporary.chmod(0o644)
        try:
            os.link(temporary, self._path(key))
        except FileExistsError as error:
            raise AlreadyExists(f"{key} exists.") from error
        finally:
            temporary.unlink()
        return self.head(key)
