"""Tables and progress bars drawn by rich; imported only when shown."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from store_client.cli.terminal import escape_line, format_cell
from store_client.progress import ProgressState

FIRST = ("name", "uuid", "version")
"""Columns that come before others, which stay in their order."""


def print_table(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """Print a table with a column for each name in any row."""
    console = Console()
    if not console.is_terminal:  # no width to wrap at
        console.width = 1000
    shown = Table(title=escape_line(title) or None, box=None, pad_edge=False, title_justify="left")
    found = dict.fromkeys(name for row in rows for name in row)
    names = sorted(found, key=lambda name: name not in FIRST)
    for name in names:
        shown.add_column(escape_line(name), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(format_cell(row.get(name))) for name in names))
    console.print(shown)


EVERY_S = 0.1
"""Shortest time between two updates."""


class ProgressBar:
    """A progress bar in the last line; log lines appear above it."""

    def __init__(
        self,
        what: str = "",
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[done]}/{task.fields[of]} files"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            redirect_stdout=False,
        )
        self._task = self._bar.add_task(escape_line(what), total=None, done=0, of=0)
        self._clock = clock
        self._last = 0.0
        self._state: ProgressState | None = None
        self._bar.start()

    def update(self, state: ProgressState) -> None:
        """Update the bar, at most ten times a second."""
        self._state = state
        now = self._clock()
        if now - self._last >= EVERY_S:
            self._last = now
            self._show(state)

    def close(self) -> None:
        """Show the final state, and leave the line there."""
        if self._state:
            self._show(self._state)
        self._bar.stop()

    def _show(self, state: ProgressState) -> None:
        self._bar.update(
            self._task,
            completed=state.bytes_,
            total=state.all_bytes,
            done=state.files,
            of=state.all_files,
        )
