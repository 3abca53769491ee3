"""Lists of objects as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from store_client.cli.output import cell
from store_client.cli.plain import line

FIRST = ("name", "uuid", "version")
"""Columns that come before others, which stay in their order."""


def table(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """Write one; a column for each name that any of the rows has."""
    console = Console()
    if not console.is_terminal:  # nobody's width is known: a line is as long as it is
        console.width = 1000
    shown = Table(title=line(title) or None, box=None, pad_edge=False, title_justify="left")
    found = dict.fromkeys(name for row in rows for name in row)
    names = sorted(found, key=lambda name: name not in FIRST)
    for name in names:
        shown.add_column(line(name), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell(row.get(name))) for name in names))
    console.print(shown)
