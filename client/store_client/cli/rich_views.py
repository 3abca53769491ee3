"""Tables and progress bars drawn by rich; imported only when shown."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from store_client.cli.terminal import escape_line, format_cell
from store_client.progress import ProgressState, format_duration, format_size, remaining_s

FIRST = ("name", "uuid", "version")
"""Columns that come before others, which stay in their order."""


def _open_console() -> Console:
    """Standard output; without a terminal there is no width to wrap at."""
    console = Console()
    if not console.is_terminal:
        console.width = 1000
    return console


def print_table(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """Print a table with a column for each name in any row."""
    found = dict.fromkeys(name for row in rows for name in row)
    print_rows(rows, sorted(found, key=lambda name: name not in FIRST), title=title)


NEVER_WRAPPED = (
    *("name", "bundle", "id", "sha256", "page", "alias", "email"),
    *("field", "value", "count", "size", "moment"),
)
IDS = ("uuid", "version", "_id", "_fqid", "url", "uri")
"""Ends of names of columns that have ids and addresses."""


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, title: str) -> None:
    """Print a table that fits the terminal, in a pager if it is longer.

    Columns that have no room are left out from the right, which a last line says.
    """
    console = _open_console()
    cells = [[format_cell(row.get(name)) for name in columns] for row in rows]
    widths = _fit_columns(columns, cells, console.width)
    kept = len(widths)
    table = Table(box=None, pad_edge=False)
    for place, (name, width) in enumerate(zip(columns, widths, strict=False)):
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(
            Text(escape_line(name)),
            no_wrap=True,
            width=width,
            overflow="ellipsis" if place else "ignore",
            justify="right" if numeric else "left",
        )
    for line in cells:
        table.add_row(*(Text(cell) for cell in line[:kept]))
    left_out = ", ".join(map(escape_line, columns[kept:]))
    with console.capture() as captured:
        if title:
            console.print(escape_line(title), style="italic", markup=False, highlight=False)
        console.print(table)
        if left_out:
            console.print(
                f"(no room for {left_out}; see --format csv, --json)",
                style="dim",
                markup=False,
                highlight=False,
            )
    _show_text(captured.get(), console)


def _fit_columns(columns: Sequence[str], cells: list[list[str]], width: int) -> list[int]:
    """The widths of the columns that fit next to each other, at least of the first."""
    wanted, widths = [], []
    left = width + GAP
    for place, name in enumerate(columns):
        heading = cell_len(escape_line(name))
        widest = max([heading, *(cell_len(line[place]) for line in cells)])
        # Prose may be cut; what is copied may not.
        needed = widest if _is_copied(name) else min(widest, max(heading, PROSE))
        if place and needed + GAP > left:
            break
        wanted.append(widest)
        widths.append(needed)
        left -= needed + GAP
    for place, widest in enumerate(wanted):
        more = max(0, min(left, widest - widths[place]))
        widths[place] += more
        left -= more
    return widths


def _is_copied(name: str) -> bool:
    """Whether people copy the cells of a column: whole, or not shown."""
    return name in NEVER_WRAPPED or name.endswith(IDS)


GAP = 2
"""Characters between two columns."""
PROSE = 24
"""Characters to which a column of prose may shrink."""


def _show_text(text: str, console: Console) -> None:
    if console.is_terminal and text.count("\n") >= console.height:
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)


class _StateBar(Progress):
    """A bar that reads its state whenever it is drawn, ten times a second."""

    show: Callable[[], None] = staticmethod(lambda: None)

    def get_renderables(self) -> Iterable[RenderableType]:
        self.show()
        yield from super().get_renderables()


class ProgressBar:
    """A progress bar in the last line; log lines appear above it."""

    def __init__(self, what: str = "", *, console: Console | None = None) -> None:
        self._bar = _StateBar(
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[done]}/{task.fields[of]} files"),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            console=console or Console(stderr=True),
            redirect_stdout=False,
        )
        self._task = self._bar.add_task(
            escape_line(what), total=None, done=0, of=0, rate="", left=""
        )
        self._what = escape_line(what)
        self._phase = ""
        self._state: ProgressState | None = None
        self._bar.show = self._show
        self._bar.start()

    def update(self, state: ProgressState) -> None:
        """Take over the state; a new phase is drawn at once."""
        self._state = state
        if state.phase != self._phase:
            self._phase = state.phase
            self._bar.refresh()

    def close(self) -> None:
        """Show the final state, and leave the line there, unless nothing was to be transferred."""
        if not (self._state and self._state.all_files):
            self._bar.live.transient = True
        self._bar.stop()

    def _show(self) -> None:
        state = self._state
        if state is None:
            return
        now = time.monotonic()
        rate = state.bytes_ / max(now - state.start, 1e-3)
        left = remaining_s(state, now)
        self._bar.update(
            self._task,
            description=f"{self._what}: {state.phase}" if state.phase else self._what,
            rate=f"{format_size(rate)}/s" if rate >= 1 else "",
            left=f"{format_duration(left)} left" if left else "",
            completed=state.bytes_,
            total=state.all_bytes,
            done=state.files,
            of=state.all_files,
        )
