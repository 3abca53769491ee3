"""Download what a manifest lists: into the cache, and by bundles into directories, too.

Rows are taken by bundle, for one request tells the URLs of 500 of its files. Layout `bundle` makes
a directory of each: with all of the bundle's metadata, and with the data files that are listed.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from store_client.download import entries, manifest_table
from store_client.download.entries import Listed, Store, Wanted
from store_client.download.job import Job, job
from store_client.download.manifest_table import Found, Row, Table
from store_client.download.options import Filters, Options
from store_client.download.parallel import Task
from store_client.download.reports import ManifestReport
from store_client.errors import Misused
from store_client.names import safe_path

LAYOUTS = ("none", "bundle")
FEW = 3
"""So many files of one bundle are asked for one by one."""


def download_manifest(
    store: Store,
    manifest: Path,
    *,
    options: Options,
    layout: str = "none",
    no_metadata: bool = False,
    no_data: bool = False,
) -> ManifestReport:
    """Bring the files that a manifest lists.

    A copy of it, with a column of their paths in the cache, is written to the current directory
    when all are there. Misused with the number of a line that is wrong; else as `download`.
    """
    if layout not in LAYOUTS:
        raise Misused(f"{layout!r} is no layout", hint=f"choose {' or '.join(LAYOUTS)}")
    table = manifest_table.read(manifest)
    filters = Filters(no_metadata=no_metadata, no_data=no_data)
    with job(store, options) as running:
        taking = _Taking(running, layout, filters)
        running.run(taking.tasks(table.rows))
        copy = _copied(manifest, table, taking)
        return ManifestReport(
            manifest=copy,
            layout=layout,
            bundles=len({(row.bundle_uuid, row.bundle_version) for row in table.rows}),
            counts=running.tally.counts(),
            dry_run=options.dry_run,
        )


def _copied(manifest: Path, table: Table, taking: "_Taking") -> str:
    if taking.job.options.dry_run:
        return ""
    # The cache lies in the current directory, and so does the copy.
    place = manifest_table.place_of_copy(manifest, taking.job.options.cache.parent)
    manifest_table.write_copy(table, place, taking.found)
    return str(place)


@dataclass(frozen=True, slots=True)
class _Taking:
    """One manifest on its way."""

    job: Job
    layout: str
    filters: Filters
    found: dict[int, Found] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tasks(self, rows: Iterable[Row]) -> list[Task]:
        """One for each bundle."""

        def of_bundle(row: Row) -> tuple[str, str]:
            return row.bundle_uuid, row.bundle_version

        grouped = groupby(sorted(rows, key=of_bundle), of_bundle)
        return [self._task(tuple(group)) for _, group in grouped]

    def _task(self, rows: tuple[Row, ...]) -> Task:
        def task() -> list[Task]:
            if self._needs_bundle(rows):
                return self._of_bundle(rows)
            return self._one_by_one(rows)

        return task

    def _needs_bundle(self, rows: tuple[Row, ...]) -> bool:
        """Whether the rows alone do not tell enough, or too many files would be asked for."""
        told = all(row.version for row in rows)
        cache = self.job.cache
        missing = sum(not cache.seems_to_have(row.sha256, row.size) for row in rows)
        all_wanted = self.layout == "none" and self.filters == Filters()
        return not (told and all_wanted and missing <= FEW)

    def _one_by_one(self, rows: tuple[Row, ...]) -> list[Task]:
        for row in rows:
            self._note(row, row.version, wanted=True)
        return self.job.files([_wanted(row) for row in rows])

    def _of_bundle(self, rows: tuple[Row, ...]) -> list[Task]:
        first, options = rows[0], self.job.options
        listed = entries.bundle(
            self.job.store, options.replica, first.bundle_uuid, version=first.bundle_version
        )
        by_content: dict[tuple[str, str], list[Wanted]] = {}
        for one in listed.files:
            by_content.setdefault((one.uuid, one.sha256), []).append(one)
        chosen: dict[str, Wanted] = {}
        for row in rows:
            entry = _matching(row, by_content, listed)
            wanted = self.filters.want(entry.name, indexed=entry.indexed)
            self._note(row, entry.version, wanted=wanted)
            if wanted:
                chosen[entry.name] = entry
        if self.layout == "none":
            return self.job.files(list(chosen.values()))
        if not self.filters.no_metadata:
            chosen |= {one.name: one for one in listed.files if one.indexed}
        return self.job.files(list(chosen.values()), safe_path(options.directory, listed.fqid))

    def _note(self, row: Row, version: str, *, wanted: bool) -> None:
        path = self.job.cache.path(row.sha256).as_posix() if wanted else ""
        with self.lock:
            self.found[row.line] = Found(version, path)


def _wanted(row: Row) -> Wanted:
    return Wanted(row.uuid, row.version, row.name, row.sha256, row.size)


def _matching(row: Row, by_content: dict[tuple[str, str], list[Wanted]], listed: Listed) -> Wanted:
    """The bundle's entry that a row means; Misused when it has none such."""
    entries_of = by_content.get((row.uuid, row.sha256), ())
    found = [one for one in entries_of if row.version in ("", one.version)]
    # A bundle may have one file under several names.
    entry = next((one for one in found if one.name == row.name), found[0] if found else None)
    if entry is None:
        raise Misused(
            f"line {row.line}: bundle {listed.fqid} has no file {row.uuid} with this SHA-256"
            f"{' and version' if row.version else ''}"
        )
    if entry.size != row.size:
        raise Misused(f"line {row.line}: file {row.uuid} has {entry.size} bytes, not {row.size}")
    return entry
