"""What a `source_url` may name, by its scheme, and what it may not.

`s3://` and `gs://` are read with the ambient credentials, or unsigned where there are none,
`file://` inside the staging folders, and an upload area by the URL that its files are put to.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from storage import engines, keys
from storage.blobs.clients import Limits, PerProcess, Reader
from storage.blobs.source_file import FileSource
from storage.errors import Forbidden, Invalid, NotFound, Unprocessable
from storage.protocols import BlobInfo, BlobStore, Source


@dataclass(frozen=True)
class SourceSettings:
    """`external_bases` are all URLs that the API may be known by; `own` the store's buckets."""

    areas: BlobStore
    external_bases: tuple[str, ...] = ()
    staging_roots: tuple[str, ...] = ()
    own: tuple[BlobStore, ...] = ()
    limits: Limits = field(default_factory=Limits)


class Sources:
    """Sources by URL."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._s3 = PerProcess(lambda: engines.open_s3_reader(settings.limits), expired=_is_expired)
        self._gcs = PerProcess(
            lambda: engines.open_gcs_reader(settings.limits), expired=_is_expired
        )
        self._roots = tuple(os.path.realpath(root) for root in settings.staging_roots)

    def open(self, url: str) -> Source:
        """See Sources in the protocols."""
        key = self.area_key(url)
        if key is not None:
            return AreaSource(self._settings.areas, key)
        scheme, _, rest = url.partition("://")
        match scheme.lower():
            case "s3":
                return engines.open_s3_source(*_plain(*_bucket_and_key(rest)), self._s3)
            case "gs":
                return engines.open_gcs_source(*_bucket_and_key(rest), lambda: self._gcs().client)
            case "file":
                return self._open_file(url)
        raise Invalid(f"no source can be read from {scheme}", code="unknown_source_schema")

    def area_key(self, url: str) -> str | None:
        """See Sources in the protocols."""
        by_interface = keys.area_key(url, self._settings.external_bases)
        if by_interface is not None:
            return by_interface
        areas, base = self._settings.areas, self._settings.areas.direct_url(keys.AREAS)
        rest = url.removeprefix(base)
        spelled = (keys.AREAS + text for text in (unquote(rest), rest))
        return next((key for key in spelled if rest != url and areas.direct_url(key) == url), None)

    def own(self, url: str) -> bool:
        """See Sources in the protocols."""
        return _alias(url) or any(same_bucket(url, store) for store in self._settings.own)

    def _open_file(self, url: str) -> FileSource:
        path = _file_path(url)
        if self.own(url) or same_bucket(url, self._settings.areas):
            raise Forbidden("the source lies in a bucket of the store")
        for root in (*self._roots, *self._settings.staging_roots):
            names = tuple(path.removeprefix(root.rstrip("/") + "/").split("/"))
            if path.startswith(root.rstrip("/") + "/") and all(names):
                return FileSource(root, names)
        raise Forbidden("file:// sources are read from the staging folders only")


def _is_expired(reader: Reader[Any]) -> bool:
    return reader.expired


@dataclass(frozen=True, slots=True)
class AreaSource:
    """A Source in an upload area."""

    areas: BlobStore
    key: str

    def head(self) -> BlobInfo:
        """See Source."""
        try:
            return self.areas.head(self.key)
        except NotFound as error:
            raise Unprocessable("the source does not exist", code="source_not_found") from error

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source."""
        try:
            yield from self.areas.read(self.key, pin=pin, start=start, length=length)
        except NotFound as error:
            raise Unprocessable("the source does not exist", code="source_not_found") from error


def same_bucket(url: str, store: BlobStore) -> bool:
    """True when a URL points into a store's bucket or folder, at whatever key."""
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
    """Where a `file://` URL leads, links and all; empty when it is malformed."""
    try:
        return os.path.realpath(unquote(urlsplit(url).path))
    except ValueError:
        return ""


def _bucket_and_key(rest: str) -> tuple[str, str]:
    """Cloud URLs are not percent-encoded: the key is all that follows the bucket."""
    bucket, _, key = rest.partition("/")
    if not bucket or not key:
        raise Invalid("the source URL names no object")
    if not _BUCKET.fullmatch(bucket):
        raise Invalid("the source URL names no bucket")
    return bucket, key


_ALIASES = ("-s3alias", "--ol-s3", ".mrap")
"""How names of access points end that are used like a bucket's: no bucket's may end so."""


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
"""Names of buckets, old ones of S3 too: nothing that is part of a path, or of a resource's name."""


def _alias(url: str) -> bool:
    """True for another name of some bucket, which may be one of the store's."""
    scheme, _, rest = url.partition("://")
    return scheme.lower() == "s3" and rest.partition("/")[0].endswith(_ALIASES)


def _plain(bucket: str, key: str) -> tuple[str, str]:
    """Never an access point: it may lead into a bucket of the store by another name."""
    if bucket.endswith(_ALIASES):
        raise Invalid("the source URL names no bucket")
    return bucket, key


def _file_path(url: str) -> str:
    """The decoded path of a `file://` URL of this machine, which climbs nowhere."""
    try:
        _, host, quoted, query, fragment = urlsplit(url)
        path = unquote(quoted, errors="strict")
    except ValueError as error:
        raise Invalid("the source URL is malformed") from error
    if host not in ("", "localhost") or query or fragment or not path.startswith("/"):
        raise Invalid("the source URL is malformed")
    if "\0" in path or any(name in (".", "..") for name in path.split("/")):
        raise Invalid("the source's path climbs")
    return path
