"""Download the files of a manifest, and read and write manifest tables.

Columns may have any order; unknown ones are kept. Quotes, a byte order mark and any line ends are
accepted.

Rows are grouped by bundle, for one request lists the presigned URLs of 500 of its files. Layout
`bundle` makes a directory of each bundle, with its metadata and the listed data files.
"""

import csv
import io
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from store_client.atomic_files import write_atomically
from store_client.downloads import listing
from store_client.downloads.job import DownloadJob, open_job
from store_client.downloads.listing import BundleListing, StoreCalls
from store_client.downloads.options import (
    LAYOUTS,
    REQUIRED,
    DownloadOptions,
    Filters,
    ManifestReport,
)
from store_client.errors import Misused, name_os_errors
from store_client.identifiers import check_uuid, is_sha256, parse_version
from store_client.names import name_fault, safe_path
from store_client.transfer.engine import Task
from store_client.transfer.streams import RemoteFile

VERSION, PATH = "file_version", "file_path"
"""Columns that written copies have (Download manifest)."""


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One row; `version` is "" if the manifest does not name it."""

    line: int
    bundle_uuid: str
    bundle_version: str
    name: str
    uuid: str
    sha256: str
    size: int
    version: str
    cells: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ManifestTable:
    """A parsed manifest."""

    columns: tuple[str, ...]
    rows: tuple[ManifestRow, ...]


@dataclass(frozen=True, slots=True)
class RowResult:
    """Version and cache path of a row; the path is "" if the file was left out."""

    version: str
    path: str


def read_manifest(path: Path) -> ManifestTable:
    """Read a manifest; Misused with the number of the invalid line."""
    try:
        with name_os_errors(f"read {path}", Misused):
            text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misused(f"{path} is not UTF-8 text (byte {error.start})") from error
    lines = _read_lines(path, text)
    try:
        _, header = next(lines)
    except StopIteration:
        raise Misused(f"{path} is empty", hint="its first line names the columns") from None
    columns = tuple(name.strip() for name in header)
    places = _column_indexes(path, columns)
    return ManifestTable(
        columns, tuple(_parse_row(path, line, cells, places) for line, cells in lines)
    )


def write_copy(table: ManifestTable, path: Path, found: Mapping[int, RowResult]) -> None:
    """Write the table with the results of each row, atomically."""
    added = [name for name in (VERSION, PATH) if name not in table.columns]
    columns = [*table.columns, *added]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(columns)
    for row in table.rows:
        cells = [*row.cells, *[""] * (len(table.columns) - len(row.cells))]
        # Cells beyond the header would stand under the added columns.
        cells = [*cells[: len(table.columns)], *[""] * len(added)]
        cells[columns.index(VERSION)] = found[row.line].version
        cells[columns.index(PATH)] = found[row.line].path
        writer.writerow(cells)
    write_atomically(path, text.getvalue().encode())


def copy_path(manifest: Path, folder: Path) -> Path:
    """The path of the copy: the manifest's name in the folder, unless another file has it."""
    place = folder / manifest.name
    if place.is_file() and not _is_copy(place):
        return place.with_name(f"{manifest.stem}.paths{manifest.suffix or '.tsv'}")
    return place


def _is_copy(path: Path) -> bool:
    try:
        return PATH in read_manifest(path).columns
    except Misused:
        return False


def _read_lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield non-empty lines with their numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
    try:
        for cells in reader:
            if any("\n" in cell and "\t" in cell for cell in cells):
                # A quote that is one of the text and not about it: whole lines would be lost in it.
                raise csv.Error("a cell that begins with a quote goes over several lines")
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise Misused(
            f"{path}, line {reader.line_num}: {error}",
            hint='a cell that begins with " also ends with it, and has each other one twice',
        ) from error


def _column_indexes(path: Path, columns: Sequence[str]) -> dict[str, int]:
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise Misused(
            f"{path}, line 1: no column {', '.join(missing)}",
            hint="a manifest is separated by tabs, and its first line names the columns",
        )
    ours = [name for name in columns if name in (*REQUIRED, VERSION, PATH)]
    twice = sorted({name for name in ours if ours.count(name) > 1})
    if twice:
        raise Misused(f"{path}, line 1: two columns {', '.join(twice)}")
    return {name: columns.index(name) for name in ours}


def _parse_row(path: Path, line: int, cells: list[str], places: Mapping[str, int]) -> ManifestRow:
    def cell(name: str) -> str:
        place = places.get(name, len(cells))
        return cells[place].strip() if place < len(cells) else ""

    try:
        _check_cells(cell("file_name"), cell("file_sha256"), cell("file_size"))
        parse_version(cell("bundle_version"))
        if cell(VERSION):
            parse_version(cell(VERSION))
        return ManifestRow(
            line=line,
            bundle_uuid=check_uuid(cell("bundle_uuid"), "bundle_uuid"),
            bundle_version=cell("bundle_version"),
            name=cell("file_name"),
            uuid=check_uuid(cell("file_uuid"), "file_uuid"),
            sha256=cell("file_sha256").lower(),
            size=int(cell("file_size")),
            version=cell(VERSION),
            cells=tuple(cells),
        )
    except Misused as error:
        raise Misused(f"{path}, line {line}: {error}", hint=error.hint) from None


def _check_cells(name: str, sha256: str, size: str) -> None:
    wrong = name_fault(name)
    if wrong is not None:
        raise Misused(f"file_name {name!r}: {wrong}")
    if not is_sha256(sha256.lower()):
        raise Misused(f"file_sha256 {sha256!r} is not a SHA-256")
    if not (size.isascii() and size.isdecimal() and len(size) < 19):
        raise Misused(f"file_size {size!r} is not a number of bytes")


MAX_SINGLE_FILES = 3
"""Up to so many files of a bundle are requested one by one."""


def download_manifest(
    store: StoreCalls,
    manifest: Path,
    *,
    options: DownloadOptions,
    layout: str = "none",
    no_metadata: bool = False,
    no_data: bool = False,
) -> ManifestReport:
    """Download the files of a manifest.

    A copy of it, with a column of paths in the cache, is written to the current directory at the
    end. Misused with the number of an invalid line; else as `download`.
    """
    if layout not in LAYOUTS:
        raise Misused(f"{layout!r} is not a layout", hint=f"choose {' or '.join(LAYOUTS)}")
    table = read_manifest(manifest)
    filters = Filters(no_metadata=no_metadata, no_data=no_data)
    with open_job(store, options) as running:
        taking = _ManifestDownload(running, layout, filters)
        running.run(taking.tasks(table.rows))
        copy = None
        if not options.dry_run:
            # The cache lies in the current directory, and so does the copy.
            copy = copy_path(manifest, options.cache.parent)
            write_copy(table, copy, taking.found)
        return ManifestReport(
            manifest=str(copy or ""),
            layout=layout,
            bundles=len({(row.bundle_uuid, row.bundle_version) for row in table.rows}),
            counts=running.tally.counts(),
            dry_run=options.dry_run,
        )


@dataclass(frozen=True, slots=True)
class _ManifestDownload:
    """The download of one manifest."""

    job: DownloadJob
    layout: str
    filters: Filters
    found: dict[int, RowResult] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tasks(self, rows: Iterable[ManifestRow]) -> list[Task]:
        """A task for each bundle."""

        def of_bundle(row: ManifestRow) -> tuple[str, str]:
            return row.bundle_uuid, row.bundle_version

        grouped = groupby(sorted(rows, key=of_bundle), of_bundle)
        return [partial(self._fetch_rows, tuple(group)) for _, group in grouped]

    def _needs_listing(self, rows: tuple[ManifestRow, ...]) -> bool:
        """Whether the bundle has to be listed, because rows are too many or incomplete."""
        has_versions = all(row.version for row in rows)
        cache = self.job.cache
        missing = sum(not cache.has_size(row.sha256, row.size) for row in rows)
        all_wanted = self.layout == "none" and self.filters == Filters()
        return not (has_versions and all_wanted and missing <= MAX_SINGLE_FILES)

    def _fetch_rows(self, rows: tuple[ManifestRow, ...]) -> list[Task]:
        if self._needs_listing(rows):
            return self._fetch_bundle_rows(rows)
        for row in rows:
            self._record_path(row, row.version, wanted=True)
        return self.job.file_tasks(
            [RemoteFile(row.uuid, row.version, row.name, row.sha256, row.size) for row in rows]
        )

    def _fetch_bundle_rows(self, rows: tuple[ManifestRow, ...]) -> list[Task]:
        first, options = rows[0], self.job.options
        listed = listing.list_bundle(
            self.job.store, options.replica, first.bundle_uuid, version=first.bundle_version
        )
        by_content: dict[tuple[str, str], list[RemoteFile]] = {}
        for one in listed.files:
            by_content.setdefault((one.uuid, one.sha256), []).append(one)
        chosen: dict[str, RemoteFile] = {}
        for row in rows:
            entry = _match_row(row, by_content, listed)
            wanted = self.filters.matches(entry.name, indexed=entry.indexed)
            self._record_path(row, entry.version, wanted=wanted)
            if wanted:
                chosen[entry.name] = entry
        if self.layout == "none":
            return self.job.file_tasks(list(chosen.values()), listed=listed)
        if not self.filters.no_metadata:
            chosen |= {one.name: one for one in listed.files if one.indexed}
        directory = safe_path(options.directory, listed.fqid)
        return self.job.file_tasks(list(chosen.values()), directory, listed=listed)

    def _record_path(self, row: ManifestRow, version: str, *, wanted: bool) -> None:
        path = self.job.cache.path(row.sha256).as_posix() if wanted else ""
        with self.lock:
            self.found[row.line] = RowResult(version, path)


def _match_row(
    row: ManifestRow, by_content: dict[tuple[str, str], list[RemoteFile]], listed: BundleListing
) -> RemoteFile:
    """The bundle's entry for a row; Misused if there is none."""
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
