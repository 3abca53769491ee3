"""The result of a command on standard output.

json   one JSON document: indented on a terminal, else one line; the default
lines  each item of a list as JSON on its own line, written as it arrives
table  a list of objects as a table; the default for lists on a terminal
csv, tsv  a list of objects, or one, as a table for programs
raw    the bytes of the response; escaped on a terminal
"""

import csv
import importlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from store_client.cli.terminal import escape_json, escape_text, format_cell

SEPARATORS = {"csv": ",", "tsv": "\t"}


def write_value(value: Any, form: str, *, chosen: bool = True, title: str = "") -> None:
    """Write a value in a format, which the user may have `chosen`; JSON if it has no such form."""
    rows: Any = _find_rows(value) if chosen else value
    if isinstance(value, bytes):
        write_bytes(value)
    elif form == "table" and _is_tabular(rows):
        tables: Any = importlib.import_module("store_client.cli.rich_views")
        tables.print_table(rows, title=title)
    elif form == "table" and isinstance(rows, list) and chosen:
        click.echo("\n".join(format_cell(item) for item in rows) or "(none)")
    elif form == "lines" and isinstance(rows, Sequence) and not isinstance(rows, str):
        write_lines(rows)
    elif form in SEPARATORS and (_is_tabular(rows) or isinstance(rows, Mapping) or rows == []):
        known: Sequence[Mapping[str, Any]] = [rows] if isinstance(rows, Mapping) else rows
        columns = list(dict.fromkeys(name for row in known for name in row))
        write_separated(known, columns, SEPARATORS[form])
    elif form == "raw" and isinstance(value, str):
        write_bytes(value.encode("utf-8", "surrogateescape"))
    else:
        click.echo(dump_json(value))


def write_lines(items: Iterable[Any]) -> int:
    """Write each item as it arrives; the number of items."""
    count = 0
    for item in items:
        click.echo(dump_json(item, indent=False))
        count += 1
    return count


def write_bytes(data: bytes | memoryview) -> None:
    """Write bytes; escaped on a terminal."""
    if sys.stdout.isatty():
        click.echo(escape_text(bytes(data).decode("utf-8", "backslashreplace")))
        return
    stream = sys.stdout.buffer
    stream.write(data)
    stream.flush()


def dump_json(value: Any, *, indent: bool | None = None) -> str:
    """A JSON document without characters that a terminal acts on."""
    wide = sys.stdout.isatty() if indent is None else indent
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    text = json.dumps(
        value,
        ensure_ascii=not encoding.startswith("utf"),
        indent=2 if wide else None,
        default=str,
    )
    return escape_json(text)


def _find_rows(value: Any) -> Any:
    """The only list in a document, if there is exactly one."""
    if not isinstance(value, Mapping):
        return value
    found = [item for item in value.values() if isinstance(item, list)]
    return found[0] if len(found) == 1 else value


def _is_tabular(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, (str, bytes))
        and bool(value)
        and all(isinstance(item, Mapping) for item in value)
    )


def write_separated(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], separator: str
) -> int:
    """Write a table for programs: quoted as RFC 4180 does, however it is separated."""
    count = 0
    if columns:
        click.echo(_separated_line(columns, separator))
    for row in rows:
        click.echo(_separated_line([row.get(name) for name in columns], separator))
        count += 1
    return count


def _separated_line(cells: Sequence[Any], separator: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="").writerow(
        [format_cell(cell) for cell in cells]
    )
    return text.getvalue()
