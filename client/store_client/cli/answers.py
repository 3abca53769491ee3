"""The answers of commands on standard output.

--json [FIELDS]   one JSON document, of these fields
--query, --jq     what a JMESPath or jq expression selects; strings as they are
--format          one of these:
  json      one document: indented on a terminal, else one line
  lines     each item of a list as JSON on its own line, written as it arrives
  table     a list of objects as a table, an object as lines
  csv, tsv  a list of objects, or one, as a table for programs
  raw       the bytes of the response; escaped on a terminal
"""

import csv
import importlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

import click

from store_client.cli.terminal import (
    escape_json,
    escape_line,
    escape_text,
    format_cell,
    style_text,
)
from store_client.errors import Misused

FORMATS = ("table", "tsv", "csv", "json", "lines")
SEPARATORS = {"csv": ",", "tsv": "\t"}
TERMINAL_ROWS = 100
"""Rows of a long list that a terminal shows unless --limit says otherwise."""
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How an answer was asked for; "" and None where it was not."""

    form: str = ""
    fields: tuple[str, ...] | None = None
    query: str = ""
    jq: str = ""

    @property
    def chosen(self) -> str:
        """The form of the answer, by default what suits standard output."""
        if self.form:
            return self.form
        if self.fields is not None or self.query or self.jq:
            return "json"
        return "table" if sys.stdout.isatty() else "lines"


def parse_fields(text: str | None) -> tuple[str, ...] | None:
    """The names in `--json uuid,version`; () for all of them."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def write_rows(
    rows: Iterable[Record], columns: Sequence[str], asked: AnswerOptions, *, title: str = ""
) -> int:
    """Write a list with these columns where it is a table; the number of rows."""
    form = asked.chosen
    if asked.query or asked.jq:
        known = list(rows)
        write_selected(known, asked)
        return len(known)
    picked = _pick_fields(rows, asked.fields)
    if form == "lines":
        return write_lines(picked)
    if form == "json":
        known = list(picked)
        click.echo(dump_json(known))
        return len(known)
    if form != "table":
        return write_separated(picked, asked.fields or columns, SEPARATORS[form])
    known = list(picked)
    if known:
        shown = asked.fields or tuple(name for name in columns if any(name in row for row in known))
        tables: Any = importlib.import_module("store_client.cli.rich_views")
        tables.print_rows(known, shown or tuple(known[0]), title=title)
    return len(known)


def write_record(record: Record, asked: AnswerOptions, *, hidden: Sequence[str] = ()) -> None:
    """Write one object: `name: value` lines on a terminal, without its `hidden` members."""
    form = asked.chosen
    if asked.query or asked.jq:
        write_selected(record, asked)
        return
    (picked,) = _pick_fields([record], asked.fields)
    if form == "table":
        shown = {name: value for name, value in picked.items() if name not in hidden}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            label = style_text(f"{escape_line(name)}:".ljust(width + 1), bold=True)
            click.echo(f"{label} {format_cell(value)}")
    elif form in ("csv", "tsv"):
        write_separated([picked], asked.fields or tuple(picked), SEPARATORS[form])
    else:
        click.echo(dump_json(picked, indent=None if form == "json" else False))


def write_picked(value: Any, asked: AnswerOptions) -> None:
    """Write the wanted fields of an object, or of each object of a list."""
    if isinstance(value, Mapping):
        write_record(value, asked)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        write_rows(value, (), asked)
    else:
        raise Misused("--json: the answer has no fields", hint="give --json without fields")


def limit_rows(rows: Iterable[Record], limit: int | None, asked: AnswerOptions) -> "LimitedRows":
    """Limit a long list: to `limit`, by default on a terminal to what one reads."""
    most = TERMINAL_ROWS if limit is None and asked.chosen == "table" else limit
    return LimitedRows(rows, most)


class LimitedRows:
    """Rows up to a limit; `more` tells afterwards whether there are others."""

    def __init__(self, rows: Iterable[Record], most: int | None) -> None:
        self.more = False
        self.most = most
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[Record]:
        yield from self._rows if self.most is None else islice(self._rows, self.most)
        self.more = self.most is not None and next(self._rows, None) is not None


def write_selected(value: Any, asked: AnswerOptions) -> None:
    """Write what the expression of --query or --jq selects; Misused if it is none.

    Objects are written in the form that was asked for, all else as JSON, strings as they are.
    """
    values = _select(value, asked)
    rows = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if asked.form not in ("", "json") and rows and all(isinstance(row, Mapping) for row in rows):
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        write_rows(rows, columns, AnswerOptions(form=asked.form))
        return
    for found in values if asked.form in ("", "json") else rows:
        if isinstance(found, str):
            click.echo(escape_text(found))
        else:
            click.echo(dump_json(found, indent=False if asked.form == "lines" else None))


def check_expressions(asked: AnswerOptions) -> None:
    """Misused for an expression that cannot be read, before any request."""
    if asked.query and asked.jq:
        raise Misused("give --query or --jq, not both")
    if asked.query or asked.jq:
        _compile(asked)


def _select(value: Any, asked: AnswerOptions) -> list[Any]:
    program = _compile(asked)
    try:
        if asked.jq:
            return list(program.input_value(value).all())
        # JMESPath knows the types of JSON only, and none that derive from them.
        return [program.search(json.loads(json.dumps(value, default=str)))]
    except ValueError as error:  # of jq; errors of JMESPath are ValueErrors, too
        raise Misused(f"the expression fails: {error}") from error


def _compile(asked: AnswerOptions) -> Any:
    if not asked.jq:
        jmespath: Any = importlib.import_module("jmespath")
        try:
            return jmespath.compile(asked.query)
        except ValueError as error:
            text = str(error).splitlines()[0]
            raise Misused(f"--query: {text}", hint="JMESPath: https://jmespath.org") from error
    try:
        jq: Any = importlib.import_module("jq")
    except ImportError:
        raise Misused(
            "--jq needs the package jq: pip install 'consortium-store-client[jq]'",
            hint="--query takes a JMESPath expression without it",
        ) from None
    try:
        return jq.compile(asked.jq)
    except ValueError as error:
        raise Misused(f"--jq: {str(error).splitlines()[0]}") from error


def _pick_fields(rows: Iterable[Record], fields: tuple[str, ...] | None) -> Iterator[Record]:
    """Rows with the wanted fields only; Misused names the nearest of an unknown one."""
    for row in rows:
        if not fields:
            yield row
            continue
        if not isinstance(row, Mapping):
            raise Misused("--json: the answer has no fields", hint="give --json without fields")
        for name in fields:
            if name not in row:
                raise unknown_field(name, list(row))
        yield {name: row[name] for name in fields}


def unknown_field(name: str, known: Sequence[str]) -> Misused:
    """The error for a field that there is not."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    more = f"did you mean: {', '.join(near)}?" if near else f"known fields: {', '.join(known)}"
    return Misused(f"there is no field {name!r}", hint=more)


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
