"""The answers of commands: tables and short lines on a terminal, JSON lines in a pipe.

--json [FIELDS]   one JSON document, of these fields
--format          table, tsv, csv, json, or lines (one JSON value a line)
--query, --jq     what a JMESPath or jq expression selects; strings as they are
"""

import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

import click

from store_client.cli import output
from store_client.cli.terminal import escape_line, escape_text, format_cell, style_text
from store_client.errors import Misused

FORMATS = ("table", "tsv", "csv", "json", "lines")
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
        return output.write_lines(picked)
    if form == "json":
        known = list(picked)
        click.echo(output.dump_json(known))
        return len(known)
    if form != "table":
        return output.write_separated(picked, asked.fields or columns, output.SEPARATORS[form])
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
        output.write_separated([picked], asked.fields or tuple(picked), output.SEPARATORS[form])
    else:
        click.echo(output.dump_json(picked, indent=None if form == "json" else False))


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
            click.echo(output.dump_json(found, indent=False if asked.form == "lines" else None))


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
