"""The download manifest as a file: a table with a header, read with forgiveness, written whole.

Columns stand in any order, others than ours are kept as they are. Quotes, a byte order mark and
either kind of line end are taken.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from store_client.download.options import checked_uuid
from store_client.errors import Misused
from store_client.names import fault
from store_client.replacing import write_whole
from store_client.versions import parse_version

REQUIRED = (
    "bundle_uuid",
    "bundle_version",
    "file_name",
    "file_uuid",
    "file_sha256",
    "file_size",
)
VERSION, PATH = "file_version", "file_path"
"""Columns that written copies have (Download manifest)."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Row:
    """One file; `version` is "" when the manifest does not name it."""

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
class Table:
    """A manifest."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a copy says of a row: where its bytes are, "" when they were left out."""

    version: str
    path: str


def read(path: Path) -> Table:
    """The manifest in a file; Misused with the number of the line that is wrong."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise Misused(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Misused(f"{path} is not UTF-8 text (byte {error.start})") from error
    lines = _lines(path, text)
    try:
        _, header = next(lines)
    except StopIteration:
        raise Misused(f"{path} is empty", hint="its first line names the columns") from None
    columns = tuple(name.strip() for name in header)
    places = _places(path, columns)
    return Table(columns, tuple(_row(path, line, cells, places) for line, cells in lines))


def write_copy(table: Table, path: Path, found: Mapping[int, Found]) -> None:
    """The same table with what was found of each line, put in place at one instant."""
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
    write_whole(path, text.getvalue().encode())


def place_of_copy(manifest: Path, folder: Path) -> Path:
    """In the current directory under the manifest's own name; where a file of that name lies that
    is no such copy, be it the manifest itself, it stays as it is, and the copy comes beside it."""
    place = folder / manifest.name
    if place.is_file() and not _is_copy(place):
        return place.with_name(f"{manifest.stem}.paths{manifest.suffix or '.tsv'}")
    return place


def _is_copy(path: Path) -> bool:
    try:
        return PATH in read(path).columns
    except Misused:
        return False


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that say something, with their numbers."""
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


def _places(path: Path, columns: Sequence[str]) -> dict[str, int]:
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


def _row(path: Path, line: int, cells: list[str], places: Mapping[str, int]) -> Row:
    def cell(name: str) -> str:
        place = places.get(name, len(cells))
        return cells[place].strip() if place < len(cells) else ""

    try:
        _check(cell("file_name"), cell("file_sha256"), cell("file_size"))
        parse_version(cell("bundle_version"))
        if cell(VERSION):
            parse_version(cell(VERSION))
        return Row(
            line=line,
            bundle_uuid=checked_uuid(cell("bundle_uuid"), "bundle_uuid"),
            bundle_version=cell("bundle_version"),
            name=cell("file_name"),
            uuid=checked_uuid(cell("file_uuid"), "file_uuid"),
            sha256=cell("file_sha256").lower(),
            size=int(cell("file_size")),
            version=cell(VERSION),
            cells=tuple(cells),
        )
    except Misused as error:
        raise Misused(f"{path}, line {line}: {error}", hint=error.hint) from None


def _check(name: str, sha256: str, size: str) -> None:
    wrong = fault(name)
    if wrong is not None:
        raise Misused(f"file_name {name!r}: {wrong}")
    if not _SHA256.fullmatch(sha256):
        raise Misused(f"file_sha256 {sha256!r} is no SHA-256")
    if not (size.isascii() and size.isdecimal() and len(size) < 19):
        raise Misused(f"file_size {size!r} is no number of bytes")
