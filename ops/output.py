"""What operator commands print: tables on a terminal, tabs in a pipe, or JSON; once or watched."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from config import SettingsError
from ops.options import FiniteRange
from storage.errors import DomainError, explain_error

WATCH_S = 2.0


@dataclass(frozen=True)
class OutputTable:
    """Rows below the names of their columns; in JSON a list of objects with these members.

    A cell is a text, number, time, list of texts, or None.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    hidden_if_empty: bool = False

    def list_objects(self) -> list[dict[str, Any]]:
        """Return each row as an object."""
        names = [column.replace(" ", "_") for column in self.columns]
        return [dict(zip(names, map(_encode_cell, row), strict=True)) for row in self.rows]


@dataclass(frozen=True)
class CommandOutput:
    """What a command has done: a table, or the members of an object with tables among them.

    `before` and `text` are the sentences around the tables, which JSON does not have. With an
    `error` the command fails after it has printed.
    """

    value: OutputTable | Mapping[str, Any]
    text: str = ""
    before: str = ""
    error: str = ""

    def list_tables(self) -> list[OutputTable]:
        """Return the tables to print."""
        members = self.value.values() if isinstance(self.value, Mapping) else [self.value]
        tables = [one for one in members if isinstance(one, OutputTable)]
        return [one for one in tables if one.rows or not one.hidden_if_empty]

    def build_json(self) -> Any:
        """Return the value for `json.dumps`."""
        if isinstance(self.value, OutputTable):
            return self.value.list_objects()
        return {
            name: one.list_objects() if isinstance(one, OutputTable) else _encode_cell(one)
            for name, one in self.value.items()
        }


def _encode_cell(cell: Any) -> Any:
    return cell.isoformat(timespec="seconds") if isinstance(cell, datetime) else cell


def prints_output(function: Callable[..., CommandOutput]) -> Callable[..., None]:
    """Print what a command returns; adds the option --json."""

    @wraps(function)
    def call(*args: Any, as_json: bool, **options: Any) -> None:
        output = function(*args, **options)
        print_output(output, as_json=as_json)
        if output.error:
            raise click.ClickException(output.error)

    return _add_json_option(call)


def prints_state(function: Callable[..., CommandOutput | None]) -> Callable[..., None]:
    """Print what a command returns, with --watch again and again; adds --json, too.

    A group that returns None prints nothing: one of its commands does.
    """

    @wraps(function)
    def call(*args: Any, as_json: bool, interval_s: float | None, **options: Any) -> None:
        def collect() -> CommandOutput | None:
            return function(*args, **options)

        output = collect()
        if output is None:
            _require_no_options(as_json, interval_s)
            return
        if interval_s is None:
            print_output(output, as_json=as_json)
            if output.error:
                raise click.ClickException(output.error)
            return
        try:
            _watch(output, collect, interval_s, as_json=as_json)
        except KeyboardInterrupt:
            return

    watch = click.option(
        "--watch",
        "interval_s",
        is_flag=False,
        flag_value=WATCH_S,
        type=FiniteRange(0.1, 3600),
        metavar="[SECONDS]",
        help=f"Print it again every {WATCH_S:.0f} or SECONDS, until Ctrl-C.",
    )
    return watch(_add_json_option(call))


def _require_no_options(as_json: bool, interval_s: float | None) -> None:
    if as_json or interval_s is not None:
        raise click.UsageError("--json and --watch belong behind the name of the command")


def _add_json_option(call: Callable[..., None]) -> Callable[..., None]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(call)


def _watch(
    first: CommandOutput,
    collect: Callable[[], CommandOutput | None],
    interval_s: float,
    *,
    as_json: bool,
) -> None:
    """Print states: a terminal is drawn anew, a pipe gets one after the other."""
    console = Console()
    output: CommandOutput | None = first
    while output is not None:
        if as_json:
            click.echo(json.dumps(output.build_json(), ensure_ascii=False))
        else:
            # Drawn before the screen is cleared, so that it does not flicker.
            lines = "\n".join(_draw_lines(output, console))
            if console.is_terminal:
                console.clear()
            click.echo(lines)
        if output.error and not as_json:
            click.echo(f"Error: {output.error}", err=not console.is_terminal)
        time.sleep(interval_s)
        output = _collect_or_explain(collect)


def _collect_or_explain(collect: Callable[[], CommandOutput | None]) -> CommandOutput | None:
    """Collect a state; a store that is away for a moment does not end the watch."""
    try:
        return collect()
    except (DomainError, SettingsError, OSError) as error:
        reason = explain_error(error)
        return CommandOutput({"error": reason}, error=reason)


def print_output(output: CommandOutput, *, as_json: bool) -> None:
    """Print it as tables on a terminal, lines with tabs in a pipe, or JSON."""
    if as_json:
        click.echo(json.dumps(output.build_json(), ensure_ascii=False, indent=2))
        return
    for line in _draw_lines(output, Console()):
        click.echo(line)


def _draw_lines(output: CommandOutput, console: Console) -> Iterator[str]:
    if output.before:
        yield output.before
    for table in output.list_tables():
        if console.is_terminal:
            with console.capture() as drawing:
                console.print(_build_table(table))
            yield drawing.get().rstrip("\n")
        else:
            for row in (table.columns, *table.rows):
                yield "\t".join(" ".join(_format_cell(cell).split()) for cell in row)
    if output.text:
        yield output.text


def _format_cell(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return f"{cell:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "\n".join(cell) if isinstance(cell, list) else str(cell)


def _build_table(shown: OutputTable) -> Table:
    table = Table(title=shown.title, title_justify="left")
    for column in shown.columns:
        table.add_column(column, overflow="fold")
    for row in shown.rows:
        # No markup: reasons may have brackets.
        table.add_row(*(Text(_format_cell(cell)) for cell in row))
    return table
