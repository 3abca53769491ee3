"""The file system `store://` of fsspec, by which pandas, dask, xarray and others read the store.

    pandas.read_csv("store://bundle/UUID/table.csv")
    fsspec.filesystem("store", url="https://store.example").ls("bundle/UUID")

Bundles are directories, and files never change. A bundle without a version is its latest one when
it was listed; `invalidate_cache` looks again, and so does a minute's wait.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import isfilelike

from store_client.atomic_files import replace_atomically
from store_client.client import Client
from store_client.downloads.options import MIN_DELAY_S, NUM_RETRIES
from store_client.errors import Damaged, Misused, NotAllowed, NotFound
from store_client.identifiers import parse_version
from store_client.names import name_fault, parent_folders
from store_client.progress import NoProgress
from store_client.references import BUNDLE, FILE, StoreLocation, parse_location
from store_client.remote.content import RemoteContent, RemoteStore
from store_client.transfer.streams import RemoteFile

LISTING_EXPIRY_S = 60.0
"""How long a listing is valid, and with it what the latest version of a bundle is."""
THREADS = 16
"""Requests at once of `cat` and `cat_ranges`."""

Entry = dict[str, Any]
Folders = dict[str, list[Entry]]
"""The entries of folders by the folders' paths."""
T = TypeVar("T")
R = TypeVar("R")


class StoreFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Bundles and files of one replica of a store, read-only.

    url, profile: the store; by default that of the environment or the default profile.
    token: an access token instead of the login of the profile, which is to be preferred: options
        of a file system are copied to wherever it is used.
    replica: `aws` or `gcp`; by default that of the profile, else `aws`.
    num_retries, min_delay_s: how often a file is tried again, and the first wait, which doubles.
    """

    protocol = "store"

    def __init__(
        self,
        url: str | None = None,
        profile: str | None = None,
        token: str | None = None,
        replica: str | None = None,
        num_retries: int = NUM_RETRIES,
        min_delay_s: float = MIN_DELAY_S,
        **storage_options: Any,
    ) -> None:
        super().__init__(**{"listings_expiry_time": LISTING_EXPIRY_S, **storage_options})
        self._client = Client(url, profile=profile, token=token)
        chosen = self._client.config.choose_replica(replica)
        self._remote = RemoteStore(
            self._client, chosen, num_retries=num_retries, min_delay_s=min_delay_s
        )

    @property
    def fsid(self) -> str:
        """The store and the replica."""
        return f"store-{self._client.config.url}-{self._remote.replica}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        found = super()._strip_protocol(path)
        if not isinstance(found, str):
            return found
        kind, slash, rest = found.partition("/")
        fqid, then, name = rest.partition("/")
        uuid, dot, version = fqid.partition(".")
        return f"{kind}{slash}{uuid.lower()}{dot}{version}{then}{name}"

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **_: Any) -> list[Any]:
        """List a bundle, a folder of it, or one file.

        NotImplementedError for all bundles of a store: a search finds them.
        """
        path = self._strip_protocol(path)
        found = self._list(path, refresh=refresh)
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, refresh: bool = False, **_: Any) -> Entry:
        """Describe a file or a folder: `size`, `type`, and of files `uuid`, `version`, `sha256`."""
        path = self._strip_protocol(path)
        if path in ("", BUNDLE, FILE):
            return _folder_entry(path)
        place = _parse_path(path)
        if place.kind == FILE:
            return self._find_file(path, place)
        folders = self._list_bundle(place, refresh=refresh)
        beside = folders.get(self._parent(path), ()) if place.name else ()
        named = [entry for entry in beside if entry["name"] == path]
        if named:
            return named[0]
        if path in folders:
            return _folder_entry(path)
        raise FileNotFoundError(errno.ENOENT, "no such file in the store", path)

    def exists(self, path: str, **more: Any) -> bool:
        """Whether there is such a file or folder; other errors are raised."""
        try:
            self.info(path, **more)
        except FileNotFoundError:
            return False
        return True

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the listing of a bundle, or all listings."""
        if path is None:
            self.dircache.clear()
            return
        place = _parse_path(self._strip_protocol(path))
        self.dircache.pop(_root(place), None)

    def ukey(self, path: str) -> str:
        """The SHA-256 of a file."""
        return str(self._find(path).sha256)

    def checksum(self, path: str) -> int:
        """The SHA-256 of a file as a number."""
        return int(self.ukey(path), 16)

    def created(self, path: str) -> datetime:
        """When this version was made."""
        return parse_version(self._find(path).version)

    modified = created

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """The bytes [start, end) of a file; negative numbers count from its end.

        A whole file is verified: Damaged if its SHA-256 is wrong after all retries.
        """
        return _read_slice(self._open_content(path), start, end)

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **more: Any
    ) -> bytes | dict[str, Any]:
        """The contents of files, many at once; `on_error` may be raise, omit or return."""
        paths = self.expand_path(path, recursive=recursive)
        if not isinstance(path, list) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **more)
        files = [one for one in paths if not recursive or self.isfile(one)]
        found = _map_threads(_return_errors(partial(self.cat_file, **more)), files)
        failed = [one for one in found if isinstance(one, Exception)]
        if failed and on_error == "raise":
            raise failed[0]
        keep_errors = on_error == "return"
        pairs = zip(files, found, strict=True)
        return {name: one for name, one in pairs if keep_errors or not isinstance(one, Exception)}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """The bytes of many ranges, many at once; `starts` and `ends` may be one number for all.

        Ranges are requested as they are, whatever `max_gap` is.
        """
        first, last = (
            one if isinstance(one, list) else [one] * len(paths) for one in (starts, ends)
        )
        spans = list(zip(paths, first, last, strict=True))
        unique = list(dict.fromkeys(paths))
        opened = dict(
            zip(unique, _map_threads(_return_errors(self._open_content), unique), strict=True)
        )

        def read(span: tuple[str, int | None, int | None]) -> bytes:
            content = opened[span[0]]
            if isinstance(content, Exception):
                raise content
            return _read_slice(content, span[1], span[2])

        found = _map_threads(_return_errors(read), spans)
        failed = [one for one in found if isinstance(one, Exception)]
        if failed and on_error == "raise":
            raise failed[0]
        return found

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Callback = DEFAULT_CALLBACK,
        outfile: Any = None,
        **more: Any,
    ) -> None:
        """Copy one file, verified; a local file appears when it is complete."""
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **more)
        elif self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        else:
            content = self._open_content(rpath)
            callback.set_size(content.size)
            target = Path(lpath)
            target.parent.mkdir(parents=True, exist_ok=True)

            def put(temporary: Path) -> None:
                with open(temporary, "w+b") as file:
                    content.copy_to(file, CallbackProgress(callback))

            replace_atomically(target, put)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        size: int | None = None,
        **more: Any,
    ) -> "StoreFile":
        if mode != "rb":
            self._refuse(path)
        return StoreFile(
            self,
            self._strip_protocol(path),
            self._open_content(path),
            block_size=block_size,
            cache_options=cache_options,
            **more,
        )

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError(
            errno.EROFS, "files in the store never change; store_client.upload makes bundles"
        )

    mkdir = makedirs = rmdir = touch = pipe_file = put_file = cp_file = mv = rm = rm_file = _refuse

    def _open_content(self, path: str) -> RemoteContent:
        return self._remote.content(self._find(path))

    def _find(self, path: str) -> RemoteFile:
        entry = self.info(path)
        if entry["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "this is a directory", entry["name"])
        return RemoteFile(
            entry["uuid"],
            entry["version"],
            entry["name"],
            sha256=entry["sha256"],
            size=entry["size"],
            indexed=entry["indexed"],
        )

    def _list(self, path: str, *, refresh: bool) -> list[Entry]:
        if path == "":
            return [_folder_entry(BUNDLE), _folder_entry(FILE)]
        if path in (BUNDLE, FILE):
            raise NotImplementedError(
                f"all {path}s of a store cannot be listed here: find bundles by a search, and give"
                " store://bundle/UUID"
            )
        place = _parse_path(path)
        if place.kind == FILE:
            return [self._find_file(path, place)]
        folders = self._list_bundle(place, refresh=refresh)
        return folders[path] if path in folders else [self.info(path)]

    def _find_file(self, path: str, place: StoreLocation) -> Entry:
        with _os_errors(path):
            return _file_entry(path, self._remote.find(place))

    def _list_bundle(self, place: StoreLocation, *, refresh: bool) -> Folders:
        """The folders of a bundle with their entries, by path."""
        root = _root(place)
        if not refresh:
            with suppress(KeyError):
                found: Folders = self.dircache[root]
                return found
        with _os_errors(root):
            listed = self._remote.list_bundle(place)
        self.dircache[root] = found = build_folders(root, listed.files)
        return found


class StoreFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file in the store, open for reading; its version was fixed when it was opened."""

    def __init__(
        self, fs: StoreFileSystem, path: str, content: RemoteContent, **options: Any
    ) -> None:
        self._content = content
        super().__init__(fs, path, "rb", size=content.size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._content.read(start, end)

    def __reduce__(self) -> Any:
        # A copy reads the same version, whatever is the latest one there.
        reopen, (fs, _, *rest) = super().__reduce__()
        file = self._content.file
        return reopen, (fs, f"{FILE}/{file.uuid}.{file.version}", *rest)


class CallbackProgress(NoProgress):
    """Passes the bytes of a transfer on to a callback of fsspec."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def bytes(self, n: int) -> None:
        self._callback.relative_update(n)


def _root(place: StoreLocation) -> str:
    return f"{place.kind}/{place.fqid}"


def build_folders(root: str, files: Sequence[RemoteFile]) -> Folders:
    """The folders of a bundle's files; Damaged for a name that leads out of it."""
    folders: Folders = {root: []}
    for file in files:
        wrong = name_fault(file.name)
        if wrong is not None:
            raise Damaged(f"{root} has a file {file.name!r}, which cannot be used: {wrong}")
        for folder in sorted(parent_folders(file.name)):
            path = f"{root}/{folder}"
            if path not in folders:
                folders[path] = []
                folders[path.rpartition("/")[0]].append(_folder_entry(path))
        path = f"{root}/{file.name}"
        folders[path.rpartition("/")[0]].append(_file_entry(path, file))
    return folders


def _folder_entry(path: str) -> Entry:
    return {"name": path, "size": 0, "type": "directory"}


def _file_entry(path: str, file: RemoteFile) -> Entry:
    return {
        "name": path,
        "size": file.size,
        "type": "file",
        "uuid": file.uuid,
        "version": file.version,
        "sha256": file.sha256,
        "indexed": file.indexed,
    }


def _parse_path(path: str) -> StoreLocation:
    try:
        return parse_location(path)
    except Misused as error:
        raise FileNotFoundError(errno.ENOENT, f"{error}; {error.hint}", path) from error


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise the errors of files as those of an operating system."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
    except NotAllowed as error:
        raise PermissionError(errno.EACCES, str(error), path) from error


def _read_slice(content: RemoteContent, start: int | None, end: int | None) -> bytes:
    first, last, _ = slice(start, end).indices(content.size)
    return content.read(first, last)


def _return_errors(function: Callable[[T], R]) -> Callable[[T], R | Exception]:
    def call(item: T) -> R | Exception:
        try:
            return function(item)
        except Exception as error:
            return error

    return call


def _map_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    with ThreadPoolExecutor(min(THREADS, max(1, len(items)))) as pool:
        return list(pool.map(function, items))
