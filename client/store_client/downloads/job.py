"""One download job: tasks, disk space, and links from the cache into directories.

A task that lists files returns one task for each of them. The small files of a bundle are read from
its archive, which comes in one request: requests cost more than their bytes where the store itself
sends them. A member of the archive is recognized by its SHA-256; its name is never used.
"""

import contextlib
import hashlib
import io
import logging
import os
import shutil
import tarfile
import threading
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from store_client.atomic_files import replace_atomically
from store_client.checksums import file_sha256
from store_client.downloads import listing
from store_client.downloads.listing import BundleListing, StoreCalls
from store_client.downloads.options import DownloadOptions, DownloadTally
from store_client.errors import StoreError, name_os_errors
from store_client.http.pool import BodyReader, shut_down
from store_client.names import LocalPaths, reject_links
from store_client.progress import format_size
from store_client.transfer import cache, engine
from store_client.transfer.cache import SHARED_FROM, ContentCache
from store_client.transfer.connections import BucketConnections, FailureQuota
from store_client.transfer.engine import DownloadInterrupted, Stopped, StopSignal, Task
from store_client.transfer.fetcher import FileFetcher
from store_client.transfer.streams import RemoteFile, StreamSlots

if TYPE_CHECKING:
    import httpx
    from _typeshed import WriteableBuffer

log = logging.getLogger(__name__)


LinkFunction = Callable[[Path, Path], None]
"""Makes the second path lead to what the first holds; FileExistsError when it leads anywhere."""


def link_file(source: Path, target: Path, *, sha256: str, link: LinkFunction = os.link) -> None:
    """Link `target` to `source`; different content is replaced atomically."""
    try:
        _link_or_copy(source, target, link)
    except FileExistsError:
        if not _has_content(source, target, sha256):
            log.warning("%s had other content, and is replaced", target)
            _replace_target(source, target, link)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error


def _link_or_copy(source: Path, target: Path, link: LinkFunction) -> None:
    try:
        try:
            link(source, target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            link(source, target)
    except FileExistsError:
        raise
    except OSError:
        _copy_file(source, target)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file atomically, where hard links are not possible."""
    if os.path.lexists(target):
        raise FileExistsError
    replace_atomically(target, lambda temporary: shutil.copyfile(source, temporary))


def _replace_target(source: Path, target: Path, link: LinkFunction) -> None:
    def put(temporary: Path) -> None:
        try:
            link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    if target.is_dir() and not target.is_symlink():
        raise StoreError(f"{target} is a directory", hint="remove it, or choose another one")
    with name_os_errors(f"replace {target}"):
        replace_atomically(target, put)


def _has_content(source: Path, target: Path, sha256: str) -> bool:
    if target.is_symlink() or not target.is_file():
        return False
    if os.path.samefile(source, target):
        return True
    return source.stat().st_size == target.stat().st_size and file_sha256(target) == sha256


def _existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


KEPT_FREE = 16 * 1024 * 1024
"""Reserve for directories and for what others write meanwhile."""


def free_bytes(path: Path) -> int:
    """Free bytes on the disk of a directory, which may not exist yet."""
    return shutil.disk_usage(_existing_parent(path)).free


class DiskSpace:
    """Free space of one directory, minus what is reserved."""

    def __init__(self, directory: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
        self._directory = directory
        self._free = free
        self._lock = threading.Lock()
        self._coming: dict[str, int] = {}

    def reserve(self, needed: Mapping[str, int]) -> None:
        """Reserve bytes for contents, each once; StoreError if there is not enough."""
        with self._lock:
            coming = {**self._coming, **needed}
            wanted, free = sum(coming.values()), self._free(self._directory)
            if sum(needed.values()) and wanted + KEPT_FREE > free:
                raise StoreError(
                    f"{format_size(wanted)} are needed in {self._directory.absolute()}, but only"
                    f" {format_size(free)} are free",
                    hint="make room, fetch fewer files, or run the command on another disk",
                )
            self._coming = coming

    def release(self, content: str) -> None:
        """Release the reservation: the content is on the disk now."""
        with self._lock:
            self._coming.pop(content, None)


MIN_FILES = 16
"""Fewer files are fetched one by one."""
MAX_AVERAGE = 128 * 1024
"""Mean size of the files; larger ones come faster over several connections."""
MAX_UNWANTED = 256 * 1024
"""Bytes of other files that the archive may have, beside as many as there are wanted ones."""
HEADERS_SIZE = 8 * 1024
"""Bytes of a member's headers at most; a name has 1,024 or fewer."""
INVALID_ARCHIVE = (ValueError, EOFError, ArithmeticError, LookupError, RecursionError)
"""What the library raises besides its own errors."""
PIECE = 256 * 1024
"""Bytes that are read at once."""


class ArchiveBroken(Exception):
    """The archive did not come, or broke off; the other files are fetched one by one."""


def choose_archived(
    store: StoreCalls, listed: BundleListing, missing: Mapping[str, int]
) -> Collection[str]:
    """The SHA-256 of missing files that are better read from the archive, which may be none."""
    sizes = {sha256: size for sha256, size in missing.items() if size < SHARED_FROM}
    wanted, total = sum(sizes.values()), sum(one.size for one in listed.files)
    is_small = len(sizes) >= MIN_FILES and wanted <= len(sizes) * MAX_AVERAGE
    if is_small and total <= 2 * wanted + MAX_UNWANTED and store.sends(listed.files[0].url):
        return sizes.keys()
    return ()


def read_archive(
    store: StoreCalls, listed: BundleListing, replica: str, *, stop: StopSignal
) -> Generator[tuple[str, bytes], None, None]:
    """Yield the SHA-256 and the bytes of each small file of a bundle; ArchiveBroken."""
    limit = sum(one.size + HEADERS_SIZE for one in listed.files) + tarfile.RECORDSIZE
    try:
        with (
            store.stream(
                "get_bundle_archive",
                uuid=listed.uuid,
                version=listed.version,
                replica=replica,
                format="tar",
            ) as answer,
            _closed_by(stop, answer),
            tarfile.open(
                fileobj=cast(BinaryIO, _ArchiveBody(answer, limit, stop)), mode="r|", bufsize=PIECE
            ) as archive,
        ):
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                is_small = member.isreg() and member.size < SHARED_FROM
                if is_small and (content := archive.extractfile(member)) is not None:
                    data = content.read()
                    yield hashlib.sha256(data).hexdigest(), data
    except Stopped:
        raise
    except (StoreError, tarfile.TarError, *INVALID_ARCHIVE) as error:
        stop.check()
        raise ArchiveBroken(
            f"the archive of bundle {listed.fqid} is incomplete: {error}"
        ) from error


class _ArchiveBody(io.RawIOBase):
    """The body of an archive as a file; EOFError beyond a number of bytes."""

    def __init__(self, answer: "httpx.Response", limit: int, stop: StopSignal) -> None:
        self._body = BodyReader(answer)
        self._left = limit
        self._stop = stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read some bytes; 0 at the end."""
        self._stop.check()
        count = self._body.read_some(memoryview(buffer))
        self._left -= count
        if self._left < 0:
            raise EOFError("it has more bytes than the bundle")
        return count


@contextlib.contextmanager
def _closed_by(stop: StopSignal, answer: "httpx.Response") -> Iterator[None]:
    """Close the connection when the transfer stops, which wakes a thread that reads."""
    found = answer.extensions["network_stream"].get_extra_info("socket")

    def close() -> None:
        shut_down(found)

    stop.add_waker(close)
    try:
        yield
    finally:
        stop.remove_waker(close)


PlacedFile = tuple[RemoteFile, Path | None]
"""A file, and the path that is linked to it."""


@dataclass(frozen=True, slots=True)
class DownloadJob:
    """What the tasks of one download share."""

    store: StoreCalls
    options: DownloadOptions
    cache: ContentCache
    fetching: FileFetcher
    space: DiskSpace
    stop: StopSignal
    tally: DownloadTally = field(default_factory=DownloadTally)
    archive_free: threading.Lock = field(default_factory=threading.Lock)
    """One archive at a time: the store limits how many a client may read."""

    def file_tasks(
        self,
        wanted: Sequence[RemoteFile],
        directory: Path | None = None,
        *,
        listed: BundleListing | None = None,
    ) -> list[Task]:
        """A task for each file, if there is space for all; none in a dry run.

        Many small files of one bundle, which was `listed`, have one task at first.
        """
        laid = LocalPaths(directory) if directory else None
        # Every name is looked at before the first byte comes.
        targets = [laid.path(one.name) if laid else None for one in wanted]
        missing = {
            one.sha256: one.size for one in wanted if not self.cache.has_size(one.sha256, one.size)
        }
        self.tally.add(files=len(wanted), bytes=sum(one.size for one in wanted))
        if self.options.dry_run:
            self.tally.add(fetched_files=len(missing), fetched_bytes=sum(missing.values()))
            return []
        self._check_space(wanted, missing, directory)
        self.options.tell.total(len(wanted), sum(missing.values()))
        placed = list(zip(wanted, targets, strict=True))
        together = choose_archived(self.store, listed, missing) if listed else ()
        tasks: list[Task] = [
            partial(self._fetch_and_link, one, to)
            for one, to in placed
            if one.sha256 not in together
        ]
        if not (listed and together):
            return tasks
        small = [(one, to) for one, to in placed if one.sha256 in together]
        return [partial(self._fetch_archive, listed, small), *tasks]

    def fetch(self, wanted: RemoteFile) -> Path:
        """Fetch one file into the cache; its path."""
        return self._finish(wanted, came=self.fetching.fetch(wanted))

    def run(self, source: Iterable[Task]) -> None:
        """Run all tasks, and those that they return."""
        engine.run_tasks(source, self.options.jobs, stop=self.stop)

    def _fetch_and_link(self, wanted: RemoteFile, target: Path | None) -> None:
        path = self.fetch(wanted)
        if target is not None:
            self._link(path, target, wanted.sha256)

    def _fetch_archive(self, listed: BundleListing, placed: Sequence[PlacedFile]) -> list[Task]:
        """Fetch files from the archive of their bundle; a task for each that did not come."""
        left: dict[str, list[PlacedFile]] = {}
        for one, target in placed:
            left.setdefault(one.sha256, []).append((one, target))
        if self.archive_free.acquire(blocking=False):
            try:
                self._read_archive(listed, left)
            except ArchiveBroken as error:
                log.info("%s; its other files are fetched one by one", error)
            finally:
                self.archive_free.release()
        return [partial(self._fetch_and_link, *one) for several in left.values() for one in several]

    def _read_archive(self, listed: BundleListing, left: dict[str, list[PlacedFile]]) -> None:
        """Add the files of an archive to the cache and link them; they are taken out of `left`."""
        found = read_archive(self.store, listed, self.options.replica, stop=self.stop)
        with contextlib.closing(found) as files:
            for sha256, data in files:
                for number, (one, target) in enumerate(left.get(sha256, ())):
                    path = self._finish(one, came=not number and self.fetching.add(one, data))
                    if target is not None:
                        self._link(path, target, sha256)
                left.pop(sha256, None)
                if not left:
                    return

    def _link(self, path: Path, target: Path, sha256: str) -> None:
        # While files came, a directory may have been replaced by a link that leads elsewhere.
        reject_links(self.options.directory, target.parent)
        link_file(path, target, sha256=sha256)

    def _finish(self, wanted: RemoteFile, *, came: bool) -> Path:
        """Count a file that is cached; its path."""
        if came:
            self.tally.add(fetched_files=1, fetched_bytes=wanted.size)
        self.space.release(wanted.sha256)
        self.options.tell.file()
        return self.cache.path(wanted.sha256)

    def _check_space(
        self, wanted: Sequence[RemoteFile], missing: dict[str, int], directory: Path | None
    ) -> None:
        self.space.reserve(
            {one: self.cache.missing_bytes(one, size) for one, size in missing.items()}
        )
        if directory is None:
            return
        disks = {_existing_parent(one).stat().st_dev for one in (directory, self.cache.root)}
        if len(disks) > 1:  # no hard links there: files are copied, and need the space again
            absent = (one for one in wanted if not (directory / one.name).exists())
            DiskSpace(directory).reserve({one.name: one.size for one in absent})


@contextlib.contextmanager
def open_job(store: StoreCalls, options: DownloadOptions) -> Iterator[DownloadJob]:
    """Open a download; DownloadInterrupted after Ctrl-C."""
    options.check()
    kept = cache.open_cache(options.cache, make=not options.dry_run)
    wire, stop = BucketConnections(), StopSignal(options.stop)
    stop.add_waker(wire.close)
    fetching = FileFetcher(
        cache=kept,
        wire=wire,
        url_of=lambda wanted: listing.renew_url(store, options.replica, wanted),
        new_quota=lambda: FailureQuota(options.num_retries, options.min_delay_s, pause=stop.pause),
        tell=options.tell,
        stop=stop,
        slots=StreamSlots(options.jobs),
    )
    made = DownloadJob(store, options, kept, fetching, DiskSpace(options.cache), stop)
    try:
        yield made
    except KeyboardInterrupt as error:
        fetched = made.tally.counts().fetched_files
        raise DownloadInterrupted(fetched, kept.partial_bytes()) from error
    finally:
        wire.close()
