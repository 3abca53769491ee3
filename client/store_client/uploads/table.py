"""A table whose rows become bundles: columns to metadata and files, by a template.

A template is JSON:

    {
      "bundle": "{run}",
      "files": {
        "run.json": {"run": "{run}", "organism": "{organism}", "megabases": "{mbases:number}"},
        "{run}.fastq.gz": "@reads/{run}.fastq.gz"
      }
    }

`{column}` stands for a cell. An object or a list becomes a JSON file; a text that begins with `@`
is the path of a local file below the folder of the table. A text that is a single
`{column:number}`, `:integer` or `:boolean` becomes such a value; a member whose cell is empty is
left out. `{{` is a brace. Without a template a row is one file metadata.json with all its cells,
and a column `file` or `file:NAME` names a local file.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from string import Formatter
from typing import Any

from store_client.errors import Misused, name_os_errors
from store_client.identifiers import quote_text
from store_client.local_files import find_collision
from store_client.names import name_fault
from store_client.validation.findings import ERROR, WARNING, Finding, Severity

METADATA_NAME = "metadata.json"
FILE_COLUMN = "file"
MOST_ROWS = 100_000
MOST_NESTED = 100
"""Levels of a template; the store searches no deeper ones."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: the line where it begins, and its cells by column."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RenderedBundle:
    """The bundle of a row: JSON documents and local files, by their names in it."""

    label: str
    line: int
    documents: Mapping[str, bytes]
    files: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class BundleTemplate:
    """Makes a bundle of a row."""

    source: str
    bundle: str
    files: Mapping[str, Any]

    def render(self, row: TableRow, folder: Path) -> RenderedBundle:
        """Make the bundle of a row; Misused names line and column."""
        cells, documents, files = row.cells, dict[str, bytes](), dict[str, Path]()
        for pattern, content in self.files.items():
            name = str(_fill(pattern, cells, self._where(row, pattern), needed=True))
            if name in documents or name in files:
                raise Misused(f"{self._where(row, pattern)}: two files have the name {name!r}")
            if isinstance(content, str):
                filled = _fill(content, cells, self._where(row, pattern), needed=True)
                said = str(filled).removeprefix("@")
                files[name] = local_path(folder, said, self._where(row, pattern))
            else:
                value = _fill_all(content, cells, self._where(row, pattern))
                documents[name] = _dump(value)
        where = self._where(row, "bundle")
        label = _check_label(str(_fill(self.bundle, cells, where, needed=True)), where)
        return RenderedBundle(label, row.line, documents, files)

    def _where(self, row: TableRow, place: str) -> str:
        return f"line {row.line}, {self.source}: {place}"


def read_table(path: Path) -> list[TableRow]:
    """Read a table, separated by tabs, or by commas if its name ends with .csv; Misused."""
    rows, findings = scan_table(path)
    fault = next((one for one in findings if one.severity == ERROR), None)
    if fault is not None:
        where = f"{path}, line {fault.line}:" if fault.line else str(path)
        raise Misused(f"{where} {fault.message}")
    return rows


def scan_table(path: Path) -> tuple[list[TableRow], list[Finding]]:
    """Read a table as far as that is possible, and find everything that is wrong with it."""
    with name_os_errors(f"read {path}", Misused):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return [], [Finding(str(path), "not UTF-8 text", line=line)]
    scan = _TableScan(str(path), "," if path.suffix.lower() == ".csv" else "\t")
    scan.read(text)
    if not scan.rows and not scan.findings:
        scan.find("has no rows below its heading")
    elif len(scan.rows) > MOST_ROWS:
        scan.find(f"has more than {MOST_ROWS} rows: split it")
    return scan.rows, scan.findings


@dataclass(slots=True)
class _TableScan:
    """Reads a table line by line."""

    path: str
    separator: str
    rows: list[TableRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    def find(self, message: str, line: int | None = None, severity: Severity = ERROR) -> None:
        self.findings.append(Finding(self.path, message, severity, line=line))

    def read(self, text: str) -> None:
        """Read heading and rows; nothing can be told after a fault in quotes."""
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, strict=True)
        line = 1
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    self._add(line, [cell.strip() for cell in cells])
                line = reader.line_num + 1
        except csv.Error as error:
            self.find(str(error), reader.line_num)

    def _add(self, line: int, cells: list[str]) -> None:
        if not self.columns:
            self.columns = cells
            self._check_columns(line)
            return
        count, wanted = len(cells), len(self.columns)
        if count > wanted:
            self.find(f"{count} cells, but {wanted} columns", line)
        elif count < wanted:
            message = f"{count} cells, but {wanted} columns: the last ones count as empty"
            self.find(message, line, WARNING)
        filled = [*cells[:wanted], *[""] * (wanted - count)]
        for name, cell in zip(self.columns, filled, strict=True):
            if "\0" in cell:
                self.find(f"column {quote_text(name)}: the cell has a NUL character", line)
        self.rows.append(TableRow(line, dict(zip(self.columns, filled, strict=True))))

    def _check_columns(self, line: int) -> None:
        for number, name in enumerate(self.columns, 1):
            if not name:
                self.find(f"column {number} has no name", line)
        other = next((one for one in ",;\t" if one in self.columns[0]), None)
        if other and len(self.columns) == 1:
            wanted = "tabs" if self.separator == "\t" else "commas"
            hint = (
                f"columns are separated by {wanted} (by commas if the file's name ends with .csv)"
            )
            self.find(f"there is only one column, {quote_text(self.columns[0])}: {hint}", line)
        twice = sorted({name for name in self.columns if name and self.columns.count(name) > 1})
        if twice:
            self.find(f"two columns {', '.join(twice)}", line)


def read_template(path: Path, columns: Sequence[str]) -> BundleTemplate:
    """Read a template; Misused names what is wrong, and the nearest of an unknown column."""
    found = _read_json(path)
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not files:
        raise Misused(f'{path} has no member "files"', hint="see: store upload --help")
    if unknown := sorted(found.keys() - {"bundle", "files"}):
        raise Misused(f"{path}: unknown member {unknown[0]!r}; known are bundle and files")
    label = found.get("bundle", "{" + columns[0] + "}")
    if not isinstance(label, str):
        raise Misused(f"{path}: bundle must be a text such as {{{columns[0]}}}")
    for name, content in files.items():
        is_path = isinstance(content, str) and content.startswith("@")
        if not is_path and not isinstance(content, dict | list):
            raise Misused(f"{path}: {name} must be an object, a list, or a file's path as @PATH")
    for text in _texts({"bundle": label, "files": files}):
        _check_columns_of(path, text, columns)
    return BundleTemplate(str(path), label, files)


def _read_json(path: Path) -> Any:
    with name_os_errors(f"read {path}", Misused):
        data = path.read_bytes()
    try:
        return json.loads(data, object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        raise Misused(f"{path} is not JSON: {error}") from error


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"one object has the name {twice!r} twice")
    return found


def render_plainly(row: TableRow, folder: Path) -> RenderedBundle:
    """The bundle of a row without a template."""
    files: dict[str, Path] = {}
    for column, cell in row.cells.items():
        if _is_file_column(column) and cell:
            name = column.partition(":")[2] or Path(cell).name
            if name in files or name == METADATA_NAME:
                raise Misused(f"line {row.line}: two files have the name {name!r}")
            files[name] = local_path(folder, cell, f"line {row.line}")
    metadata = {
        name: cell for name, cell in row.cells.items() if cell and not _is_file_column(name)
    }
    label = next(iter(row.cells.values())) or f"line {row.line}"
    _check_label(label, f"line {row.line}")
    return RenderedBundle(label, row.line, {METADATA_NAME: _dump(metadata)}, files)


def find_name_faults(names: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the names of a row's files."""
    if not names:
        yield "the bundle has no files"
    faults = {name: fault for name in names if (fault := name_fault(name))}
    yield from (f"the name {name!r} cannot be used: {fault}" for name, fault in faults.items())
    collision = None if faults else find_collision(names)
    if collision:
        yield collision


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _check_label(label: str, where: str) -> str:
    """A bundle's name stands in reports and on terminals; Misused."""
    if _CONTROL.search(label):
        raise Misused(f"{where}: the name {quote_text(label)} has control characters")
    return label


def _is_file_column(name: str) -> bool:
    return name == FILE_COLUMN or name.startswith(f"{FILE_COLUMN}:")


def local_path(folder: Path, said: str, where: str) -> Path:
    """A path below the folder: a table of others must not send just any file; Misused."""
    path = folder / said
    if "\0" in said or not path.resolve().is_relative_to(folder.resolve()):
        shown = quote_text(said)
        raise Misused(f"{where}: {shown} is not below {folder}", hint="name it: --data-dir")
    return path


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def _texts(value: Any, room: int = MOST_NESTED) -> Iterator[str]:
    """All texts of a template, also the names of members; Misused if it is nested too deeply."""
    if not room:
        raise Misused(f"the template is nested deeper than {MOST_NESTED}")
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield name
            yield from _texts(item, room - 1)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, room - 1)


KINDS = ("", "number", "integer", "boolean")


def _check_columns_of(path: Path, text: str, columns: Sequence[str]) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Misused(f"{path}: {text!r} has half of a surrogate pair")
    for column, kind in _placeholders(path, text):
        if column not in columns:
            near = get_close_matches(column, columns, n=3, cutoff=0.5)
            hint = f"did you mean: {', '.join(near)}?" if near else f"columns: {', '.join(columns)}"
            raise Misused(f"{path}: the table has no column {column!r}", hint=hint)
        if kind not in KINDS:
            raise Misused(f"{path}: {column}: {kind!r} is not number, integer or boolean")


def _placeholders(path: Path, text: str) -> list[tuple[str, str]]:
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise Misused(f"{path}: {text!r}: {error}", hint="a brace as such is {{ or }}") from None
    return [(column, kind or "") for _, column, kind, _ in parts if column is not None]


_LEFT_OUT = object()


def _fill_all(value: Any, cells: Mapping[str, str], where: str) -> Any:
    """Fill in all texts; members whose cell is empty are left out."""
    if isinstance(value, str):
        return _fill(value, cells, where, needed=False)
    if isinstance(value, Mapping):
        filled = {
            str(_fill(name, cells, where, needed=True)): _fill_all(item, cells, f"{where}.{name}")
            for name, item in value.items()
        }
        if len(filled) < len(value):
            raise Misused(f"{where}: two members have the same name")
        return {name: item for name, item in filled.items() if item is not _LEFT_OUT}
    if isinstance(value, list):
        items = [_fill_all(item, cells, f"{where}[{n}]") for n, item in enumerate(value)]
        return [item for item in items if item is not _LEFT_OUT]
    return value


def _fill(text: str, cells: Mapping[str, str], where: str, *, needed: bool) -> Any:
    """Fill in cells; `needed` names the column of an empty one in an error."""
    parts = list(Formatter().parse(text))
    columns = [column for _, column, _, _ in parts if column is not None]
    empty = next((column for column in columns if not cells[column]), None)
    if empty is not None and needed:
        raise Misused(f"{where}: the cell of column {empty!r} is empty")
    if empty is not None and len(columns) == 1:
        return _LEFT_OUT
    if len(parts) == 1 and columns and not parts[0][0]:
        return _convert(cells[columns[0]], parts[0][2] or "", f"{where}: column {columns[0]!r}")
    return "".join(
        literal + (cells[column] if column is not None else "") for literal, column, _, _ in parts
    )


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _convert(cell: str, kind: str, where: str) -> Any:
    with suppress(ValueError):  # more digits than Python reads
        if kind in ("number", "integer") and _INTEGER.fullmatch(cell):
            return int(cell)  # a float would change a long one
    if kind == "number" and _NUMBER.fullmatch(cell) and isfinite(float(cell)):
        return float(cell)
    if kind == "boolean" and cell.lower() in _BOOLEANS:
        return _BOOLEANS[cell.lower()]
    if kind:
        raise Misused(f"{where}: {quote_text(cell)} is no {kind}")
    return cell
