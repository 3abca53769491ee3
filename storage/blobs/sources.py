"""Open the objects that depositors name by source_url.

`s3://` and `gs://` are read with the ambient credentials, or unsigned without them; `file://` only
inside the staging folders; files of an upload area by their area URL.

A file's metadata is in `<name>.store.json` beside it: one flat JSON object of strings with
`content-type` and the declared checksums (`store-sha256` and so on).
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from urllib.parse import unquote, urlsplit

from storage import engines, keys
from storage.blobs import folder_files
from storage.blobs.clients import CloudLimits, PerProcess, SourceAccess
from storage.blobs.folder_files import file_pin
from storage.errors import (
    Forbidden,
    Invalid,
    NotFoundError,
    SourceChanged,
    Unprocessable,
)
from storage.protocols import BlobInfo, BlobStore, SourceObject

SIDECAR_SUFFIX = ".store.json"
MAX_SIDECAR_BYTES = 64 * 1024

_OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderSource:
    """See SourceObject; a file in a folder.

    Each name of the path is opened by itself without following symbolic links, so no link leads out
    of the folder, not even one that is made meanwhile.
    """

    def __init__(self, root: str, names: tuple[str, ...]) -> None:
        self._root, self._names = root, names

    def head(self) -> BlobInfo:
        with self._open_folder() as folder:
            with _open_file(folder, self._names[-1]) as descriptor:
                status = os.fstat(descriptor)
            described = _read_sidecar(folder, self._names[-1] + SIDECAR_SUFFIX)
        return BlobInfo(
            key="/".join(self._names),
            size=status.st_size,
            pin=file_pin(status),
            content_type=described.get("content-type"),
            metadata={name: text for name, text in described.items() if name != "content-type"},
        )

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See SourceObject; checks the pin before and after, since a file can change in place."""
        with self._open_folder() as folder, _open_file(folder, self._names[-1]) as descriptor:
            _check_pin(descriptor, pin)
            size = os.fstat(descriptor).st_size
            yield from folder_files.read_range(descriptor, size, start=start, length=length)
            _check_pin(descriptor, pin)

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        """Open the folder that holds the file."""
        with _translate_open_errors():
            current = os.open(self._root, _OPEN_FOLDER_FLAGS)
        try:
            for name in self._names[:-1]:
                with _translate_open_errors():
                    inner = os.open(name, _OPEN_FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


@contextmanager
def _open_file(folder: int, name: str) -> Iterator[int]:
    with _translate_open_errors():
        descriptor = os.open(name, _OPEN_FILE_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unprocessable("the source is not a regular file", code="source_not_found")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _translate_open_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no file can have this name"
        closed = isinstance(error, PermissionError)
        code = "source_not_readable" if closed else "source_not_found"
        raise Unprocessable(f"the source cannot be read: {why}", code=code) from error


def _read_sidecar(folder: int, name: str) -> Mapping[str, str]:
    """Return the metadata of the sidecar file; empty if there is none."""
    try:
        descriptor = os.open(name, _OPEN_FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _make_sidecar_error(name) from error
    try:
        text = os.read(descriptor, MAX_SIDECAR_BYTES + 1)
        found = json.loads(text) if len(text) <= MAX_SIDECAR_BYTES else None
    except (OSError, ValueError) as error:
        raise _make_sidecar_error(name) from error
    finally:
        os.close(descriptor)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _make_sidecar_error(name)
    return {key.lower(): value for key, value in found.items()}


def _check_pin(descriptor: int, pin: str) -> None:
    if file_pin(os.fstat(descriptor)) != pin:
        raise SourceChanged("the source has changed")


def _make_sidecar_error(name: str) -> Unprocessable:
    return Unprocessable(f"{name} is not a flat JSON object of texts", code="invalid_checksum")


@dataclass(frozen=True)
class SourceSettings:
    """`external_bases` are all base URLs of the API; `own_buckets` are the store's buckets."""

    areas: BlobStore
    external_bases: tuple[str, ...] = ()
    staging_roots: tuple[str, ...] = ()
    own_buckets: tuple[BlobStore, ...] = ()
    limits: CloudLimits = field(default_factory=CloudLimits)
    access: SourceAccess = field(default_factory=SourceAccess)


class UrlSources:
    """See Sources; opens sources by URL scheme."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        limits, access, is_expired = settings.limits, settings.access, attrgetter("is_expired")
        self._readers = {
            scheme: PerProcess(
                partial(engines.open_source_reader, scheme, limits, access), expired=is_expired
            )
            for scheme in ("s3", "gs")
        }
        self._roots = tuple(os.path.realpath(root) for root in settings.staging_roots)

    def open(self, url: str) -> SourceObject:
        key = self.resolve_area_key(url)
        if key is not None:
            return AreaSource(self._settings.areas, key)
        scheme, _, rest = url.partition("://")
        match scheme.lower():
            case "s3" | "gs" as cloud:
                bucket, key = _split_bucket_and_key(rest)
                if cloud == "s3" and bucket.endswith(_ALIAS_SUFFIXES):
                    raise Invalid("source_url: names no bucket")
                return engines.open_source(cloud, bucket, key, self._readers[cloud])
            case "file":
                return self._open_file(url)
        raise Invalid(f"source_url: scheme {scheme} is not supported", code="unknown_source_schema")

    def list(self, url: str) -> Iterator[BlobInfo]:
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme not in self._readers or not bucket:
            raise Invalid(f"source: must be s3://bucket/prefix or gs://bucket/prefix (got {url})")
        if not _BUCKET_NAME.fullmatch(bucket):
            raise Invalid(f"source: bucket {bucket} must be at least 2 letters, digits, ., _ or -")
        if self.is_own_bucket(url):
            raise Forbidden("source: must not be a bucket of the store")
        return engines.list_sources(scheme, bucket, prefix, self._readers[scheme])

    def resolve_area_key(self, url: str) -> str | None:
        by_interface = keys.parse_area_url(url, self._settings.external_bases)
        if by_interface is not None:
            return by_interface
        areas, base = self._settings.areas, self._settings.areas.direct_url(keys.AREAS)
        rest = url.removeprefix(base)
        spelled = (keys.AREAS + text for text in (unquote(rest), rest))
        return next((key for key in spelled if rest != url and areas.direct_url(key) == url), None)

    def is_own_bucket(self, url: str) -> bool:
        scheme, _, rest = url.partition("://")
        is_alias = rest.partition("/")[0].endswith(_ALIAS_SUFFIXES)
        return (scheme.lower() == "s3" and is_alias) or any(
            is_in_bucket(url, store) for store in self._settings.own_buckets
        )

    def _open_file(self, url: str) -> FolderSource:
        path = _parse_file_url(url)
        if self.is_own_bucket(url) or is_in_bucket(url, self._settings.areas):
            raise Forbidden("source_url: must not point into a bucket of the store")
        for root in (*self._roots, *self._settings.staging_roots):
            names = tuple(path.removeprefix(root.rstrip("/") + "/").split("/"))
            if path.startswith(root.rstrip("/") + "/") and all(names):
                return FolderSource(root, names)
        raise Forbidden("source_url: file:// must be inside a staging folder")


@dataclass(frozen=True, slots=True)
class AreaSource:
    """See SourceObject; a file in an upload area."""

    areas: BlobStore
    key: str

    def head(self) -> BlobInfo:
        with _translate_absence():
            return self.areas.head(self.key)

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _translate_absence():
            yield from self.areas.read(self.key, pin=pin, start=start, length=length)


@contextmanager
def _translate_absence() -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise Unprocessable("the source does not exist", code="source_not_found") from error


def is_in_bucket(url: str, store: BlobStore) -> bool:
    """Return whether a URL points into a store's bucket or folder, at any key."""
    root = store.direct_url("")
    scheme, _, rest = url.partition("://")
    own_scheme, _, own_rest = root.partition("://")
    if scheme.lower() != own_scheme:
        return False
    if own_scheme == "file":
        path, folder = _real_path(url), _real_path(root)
        return path == folder or path.startswith(folder + "/")
    return rest.partition("/")[0] == own_rest.partition("/")[0]


def _real_path(url: str) -> str:
    """Resolve the path of a `file://` URL, links included; empty if it is malformed."""
    try:
        return os.path.realpath(unquote(urlsplit(url).path))
    except ValueError:
        return ""


def _split_bucket_and_key(rest: str) -> tuple[str, str]:
    """Split a cloud URL; it is not percent-encoded: the key is all that follows the bucket."""
    bucket, _, key = rest.partition("/")
    if not bucket or not key:
        raise Invalid("source_url: names no object")
    if not _BUCKET_NAME.fullmatch(bucket):
        raise Invalid("source_url: names no bucket")
    return bucket, key


_ALIAS_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap")
"""How names of access points end, which may be aliases of the store's buckets."""
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
"""Names of buckets, old ones of S3 too: nothing that is part of a path, or of a resource's name."""


def _parse_file_url(url: str) -> str:
    """Return the decoded path of a `file://` URL of this machine; Invalid if it has `..`."""
    try:
        _, host, quoted, query, fragment = urlsplit(url)
        path = unquote(quoted, errors="strict")
    except ValueError as error:
        raise Invalid("source_url: is malformed") from error
    if host not in ("", "localhost") or query or fragment or not path.startswith("/"):
        raise Invalid("source_url: is malformed")
    if "\0" in path or any(name in (".", "..") for name in path.split("/")):
        raise Invalid("source_url: path must not contain ..")
    return path
