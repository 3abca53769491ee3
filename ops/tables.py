"""How commands print: a drawn table on a terminal, tab-separated lines everywhere else."""

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table


def show(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print rows below their columns' names."""
    if console.is_terminal:
        console.print(_drawn(title, columns, rows))
        return
    for row in (columns, *rows):
        click.echo("\t".join(str(cell) for cell in row))


def _drawn(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    return table
