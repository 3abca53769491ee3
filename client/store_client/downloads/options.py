"""Options and reports of downloads."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from store_client.errors import Misused
from store_client.progress import NO_PROGRESS, TransferProgress

NUM_RETRIES = 10
MIN_DELAY_S = 0.25
"""Of the failure quota (Download rules)."""
JOBS = 8
MAX_JOBS = 64
CACHE = ".store"
"""The cache directory, created in the current one (Download rules)."""
REQUIRED = (
    "bundle_uuid",
    "bundle_version",
    "file_name",
    "file_uuid",
    "file_sha256",
    "file_size",
)
"""Columns that a manifest must have (Download manifest)."""
LAYOUTS = ("none", "bundle")
"""What is made of a manifest's files: only the cache, or directories of bundles, too."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which files of a bundle to download: case-sensitive shell patterns of names."""

    metadata: str | None = None
    data: str | None = None
    no_metadata: bool = False
    no_data: bool = False

    def check(self) -> None:
        """Misused if a kind is both filtered and left out."""
        if self.no_metadata and self.metadata is not None:
            raise Misused("no_metadata cannot be combined with metadata_filter")
        if self.no_data and self.data is not None:
            raise Misused("no_data cannot be combined with data_filter")

    def matches(self, name: str, *, indexed: bool) -> bool:
        """Whether a file passes; `indexed` files are metadata."""
        left_out, pattern = (
            (self.no_metadata, self.metadata) if indexed else (self.no_data, self.data)
        )
        return not left_out and fnmatchcase(name, "*" if pattern is None else pattern)


@dataclass(frozen=True, slots=True)
class DownloadOptions:
    """Options of a download; `directory` is for bundles, `cache` for all content."""

    replica: str
    directory: Path = field(default_factory=Path)
    cache: Path = field(default_factory=lambda: Path(CACHE))
    num_retries: int = NUM_RETRIES
    min_delay_s: float = MIN_DELAY_S
    jobs: int = JOBS
    dry_run: bool = False
    tell: TransferProgress = NO_PROGRESS
    stop: threading.Event | None = None
    """Ends the download early when it is set."""

    def check(self) -> None:
        """Misused for invalid options."""
        if self.replica not in ("aws", "gcp"):
            raise Misused(f"{self.replica!r} is not a replica", hint="choose aws or gcp")
        if self.num_retries < 0:
            raise Misused("num_retries must not be negative")
        if not 0 <= self.min_delay_s <= 3600:
            raise Misused("min_delay_seconds must be 0 to 3600")
        if not 1 <= self.jobs <= MAX_JOBS:
            raise Misused(f"jobs must be 1 to {MAX_JOBS}")


@dataclass(frozen=True, slots=True)
class DownloadCounts:
    """Files requested, and files fetched."""

    files: int
    bytes: int
    fetched_files: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The result for a bundle; in a dry run, what would be fetched."""

    bundle_uuid: str
    version: str
    directory: str
    counts: DownloadCounts
    dry_run: bool


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The result for all bundles that match a query."""

    directory: str
    bundles: int
    counts: DownloadCounts
    dry_run: bool


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The result for a manifest; `manifest` is the path of the copy."""

    manifest: str
    layout: str
    bundles: int
    counts: DownloadCounts
    dry_run: bool


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """The result for a collection; the counts leave out the collection itself."""

    uuid: str
    version: str
    directory: str
    collections: int
    bundles: int
    fragments: int
    counts: DownloadCounts
    dry_run: bool


class DownloadTally:
    """Counters that threads share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = Counter[str]()

    def add(self, **numbers: int) -> None:
        with self._lock:
            self._numbers.update(numbers)

    def get(self, name: str) -> int:
        with self._lock:
            return self._numbers[name]

    def counts(self) -> DownloadCounts:
        names = ("files", "bytes", "fetched_files", "fetched_bytes")
        return DownloadCounts(*(self.get(name) for name in names))
