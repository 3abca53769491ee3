"""The result of a command on standard output.

json   one JSON document: indented on a terminal, else one line. The form when nothing is said.
lines  each item of a list as JSON on a line of its own, written as it comes
table  a list of objects as a table; on a terminal lists are shown so when nothing is said
raw    the answer's bytes; on a terminal, escaped
"""

import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from store_client.cli.plain import json_text, line, plain


@dataclass(frozen=True, slots=True)
class Form:
    """A form of output, and whether somebody chose it."""

    name: str
    chosen: bool = True


def show(value: Any, form: Form, *, title: str = "") -> None:
    """Write a value in a form; what has no such form is written as JSON."""
    rows: Any = _rows(value) if form.chosen else value
    if isinstance(value, bytes):
        raw(value)
    elif form.name == "table" and _tabular(rows):
        tables: Any = importlib.import_module("store_client.cli.tables")
        tables.table(rows, title=title)
    elif form.name == "table" and isinstance(rows, list) and form.chosen:
        click.echo("\n".join(cell(item) for item in rows) or "(none)")
    elif form.name == "lines" and isinstance(rows, Sequence) and not isinstance(rows, str):
        lines(rows)
    elif form.name == "raw" and isinstance(value, str):
        raw(value.encode("utf-8", "surrogateescape"))
    else:
        click.echo(as_json(value))


def lines(items: Iterable[Any]) -> None:
    """Write each item as soon as it comes."""
    for item in items:
        click.echo(as_json(item, indent=False))


def raw(data: bytes) -> None:
    """Write bytes as they are; a terminal gets them escaped."""
    if sys.stdout.isatty():
        click.echo(plain(data.decode("utf-8", "backslashreplace")))
        return
    stream = sys.stdout.buffer
    stream.write(data)
    stream.flush()


def as_json(value: Any, *, indent: bool | None = None) -> str:
    """A JSON document that any standard output can carry and no terminal acts on."""
    wide = sys.stdout.isatty() if indent is None else indent
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    text = json.dumps(
        value,
        ensure_ascii=not encoding.startswith("utf"),
        indent=2 if wide else None,
        default=str,
    )
    return json_text(text)


def cell(value: Any) -> str:
    """A value on one line of a table."""
    if value is None or isinstance(value, str):
        return line(value or "")
    return line(json.dumps(value, ensure_ascii=False, default=str))


def _rows(value: Any) -> Any:
    """What is listed in a document: the one list that it has, if it has one."""
    if not isinstance(value, Mapping):
        return value
    found = [item for item in value.values() if isinstance(item, list)]
    return found[0] if len(found) == 1 else value


def _tabular(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, (str, bytes))
        and bool(value)
        and all(isinstance(item, Mapping) for item in value)
    )
