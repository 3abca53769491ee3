"""What each owner has deposited: counts and bytes of files, bundles and upload areas."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, fields
from typing import Literal

from storage.catalog import Catalog, statistics
from storage.catalog.statistics import OwnerTotal
from storage.model import REPLICAS, Replica

IDS_PER_PAGE = 50_000
"""Ids that one short transaction reads; each range is found by the primary key."""
AREAS_PER_PAGE = 500

_VERSION_KINDS: tuple[Literal["file", "bundle"], ...] = ("file", "bundle")


@dataclass(slots=True)
class VersionUsage:
    """Numbers of files and bundles, and the bytes of the files."""

    files: int = 0
    bytes: int = 0
    bundles: int = 0

    def add(self, kind: Literal["file", "bundle"], total: OwnerTotal) -> None:
        """Add versions of one kind."""
        if kind == "file":
            self.files += total.number
            self.bytes += total.size
        else:
            self.bundles += total.number


@dataclass(slots=True)
class OwnerUsage(VersionUsage):
    """What an owner has deposited, and what of it replicas lack."""

    areas: int = 0
    area_files: int = 0
    area_bytes: int = 0
    lacking: dict[Replica, VersionUsage] = field(default_factory=dict)


USAGE_COLUMNS = tuple(one.name for one in fields(OwnerUsage) if one.name != "lacking")


def measure_usage(
    catalog: Catalog, owners: Set[str] | None = None, *, ids_per_page: int = IDS_PER_PAGE
) -> dict[str, OwnerUsage]:
    """Measure what these owners have, by default all; one short transaction for each page.

    Bytes are those of each file; equal contents are stored once. What is deleted but not purged
    counts.
    """
    found: dict[str, OwnerUsage] = defaultdict(OwnerUsage)
    for kind in _VERSION_KINDS:
        for after, until in _iterate_ranges(catalog, kind, ids_per_page):
            with catalog.read() as tx:
                totals = statistics.count_versions(tx, kind, after, until)
                lacking = {
                    name: statistics.count_versions(tx, kind, after, until, lacking_in=name)
                    for name in REPLICAS
                }
            for one in _choose(totals, owners):
                found[one.owner].add(kind, one)
            for name, missing in lacking.items():
                for one in _choose(missing, owners):
                    found[one.owner].lacking.setdefault(name, VersionUsage()).add(kind, one)
    _add_areas(catalog, found, owners)
    return dict(found)


def _choose(totals: Iterable[OwnerTotal], owners: Set[str] | None) -> Iterator[OwnerTotal]:
    return (one for one in totals if owners is None or one.owner in owners)


def _iterate_ranges(
    catalog: Catalog, kind: Literal["file", "bundle"], size: int
) -> Iterator[tuple[int, int]]:
    with catalog.read() as tx:
        last = statistics.find_last_version_id(tx, kind)
    for after in range(0, last, size):
        yield after, after + size


def _add_areas(catalog: Catalog, found: dict[str, OwnerUsage], owners: Set[str] | None) -> None:
    after = ""
    while True:
        with catalog.read() as tx:
            page = statistics.list_areas(tx, after=after, limit=AREAS_PER_PAGE)
            chosen = [(uuid, owner) for uuid, owner in page if owners is None or owner in owners]
            counted = statistics.count_area_files(tx, [uuid for uuid, _ in chosen])
        for _, owner in chosen:
            found[owner].areas += 1
        for one in counted:
            found[one.owner].area_files += one.number
            found[one.owner].area_bytes += one.size
        if len(page) < AREAS_PER_PAGE:
            return
        after = page[-1][0]
