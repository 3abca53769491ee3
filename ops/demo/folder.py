"""Bundles from a folder of real input.

Each lowest folder with files other than `.tsv` and `README*` is one bundle; each row of a `.tsv` is
one more: the row as metadata beside a small data file that is generated.
"""

import csv
import mimetypes
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ops.demo.bundles import JSON, SampleBundle, SampleFile, held, metadata_file
from ops.demo.samples import MB, noise

ROW_BYTES = 512
ROW_FILE = "run.json"


class NothingFound(Exception):
    """The folder holds nothing that could be deposited."""


def bundles(folder: Path, limit: int | None = None) -> tuple[SampleBundle, ...]:
    """All bundles of the folder, or some of every kind when there is a limit."""
    folders = [_bundle(folder, path) for path in _lowest(folder)]
    tables = [list(_rows(path)) for path in sorted(folder.rglob("*.tsv"))]
    found = [*folders, *(row for table in tables for row in table)]
    if not found:
        raise NothingFound(f"{folder} holds neither bundles nor tables")
    if limit is None or limit >= len(found):
        return tuple(found)
    return tuple(_some((folders, *tables), limit))


def _some(kinds: Iterable[list[SampleBundle]], limit: int) -> Iterator[SampleBundle]:
    """One of each kind in turn, until there are enough."""
    left = [iter(kind) for kind in kinds]
    taken = 0
    while taken < limit:
        for kind in left:
            bundle = next(kind, None)
            if bundle is not None and taken < limit:
                taken += 1
                yield bundle


def _lowest(root: Path) -> Iterator[Path]:
    """Folders that hold files of a bundle, and no folder that does."""
    holding = {path.parent for path in root.rglob("*") if path.is_file() and _counts(path)}
    for folder in sorted(holding):
        if not any(folder in other.parents for other in holding):
            yield folder


def _counts(path: Path) -> bool:
    return path.suffix != ".tsv" and not path.name.startswith(("README", "."))


def _bundle(root: Path, folder: Path) -> SampleBundle:
    label = str(folder.relative_to(root)) if folder != root else root.resolve().name
    return SampleBundle(label, tuple(_file(path) for path in _files(folder)))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and _counts(path))


def _file(path: Path) -> SampleFile:
    is_json = path.suffix == ".json"
    content_type = JSON if is_json else mimetypes.guess_type(path.name)[0]
    return SampleFile(
        path.name,
        content_type or "application/octet-stream",
        path.stat().st_size,
        partial(_read, path),
        indexed=is_json,
    )


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(MB):
            yield block


def _rows(path: Path) -> Iterator[SampleBundle]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", restkey="further", quoting=csv.QUOTE_NONE))
    numeric = {column for column in rows[0] if _all_numbers(row.get(column) for row in rows)}
    for number, row in enumerate(rows, 1):
        label = f"{path.stem}/{number:05d}"
        content = {column: _value(cell, column in numeric) for column, cell in row.items()}
        data = held("reads.fastq.gz", "application/gzip", noise(label, ROW_BYTES))
        yield SampleBundle(label, (metadata_file(ROW_FILE, content), data))


def _all_numbers(cells: Iterable[Any]) -> bool:
    given = [cell for cell in cells if cell]
    return bool(given) and all(isinstance(cell, str) and _is_number(cell) for cell in given)


def _is_number(cell: str) -> bool:
    # A leading zero is an identifier's.
    return cell.isascii() and cell.isdigit() and (cell == "0" or cell[0] != "0")


def _value(cell: Any, numeric: bool) -> Any:
    """A missing cell is null; a column is of numbers only if all of its cells are."""
    if not cell:
        return None
    return int(cell) if numeric else cell
