"""What a download did, as its caller is told."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Files that were wanted, and those of them for which bytes had to come."""

    files: int
    bytes: int
    fetched_files: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class BundleReport:
    """Of a bundle: where it lies now. In a dry run, what would be fetched."""

    bundle_uuid: str
    version: str
    directory: str
    counts: Counts
    dry_run: bool


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """Of a manifest: where its copy is, "" in a dry run, and how many bundles were laid out."""

    manifest: str
    layout: str
    bundles: int
    counts: Counts
    dry_run: bool


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """Of a collection: where it lies, and how many things it leads to, itself left out."""

    uuid: str
    version: str
    directory: str
    collections: int
    bundles: int
    fragments: int
    counts: Counts
    dry_run: bool


class Tally:
    """Counts that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}

    def add(self, **numbers: int) -> None:
        """Add to each of these."""
        with self._lock:
            for name, number in numbers.items():
                self._numbers[name] = self._numbers.get(name, 0) + number

    def get(self, name: str) -> int:
        """How many."""
        with self._lock:
            return self._numbers.get(name, 0)

    def counts(self) -> Counts:
        """Those of files."""
        names = ("files", "bytes", "fetched_files", "fetched_bytes")
        return Counts(*(self.get(name) for name in names))
