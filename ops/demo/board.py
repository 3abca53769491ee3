"""What is shown while the tour goes on: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ops.demo.bundles import SampleBundle
from ops.demo.progress import NOTIFIED, STAGES, Progress

ROWS = 30
"""Up to so many bundles have a row each; more are counted only."""

PLAIN_EVERY_S = 2.0
HEADINGS = ("verified", "in both", "indexed", "notified")
"""The stages, short enough for a narrow terminal."""


class Board:
    """Shows the present step and how far the bundles have come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._bundles: Sequence[SampleBundle] = ()
        self._step = ""
        self._printed: tuple[float, str] = (0.0, "")

    @contextmanager
    def shown(self) -> Iterator["Board"]:
        """Live on a terminal until the block is left."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield self
            self.refresh()
        self._live = None

    def say(self, step: str) -> None:
        """A step begins."""
        self._step = step
        if self._live is None:
            self._say_plainly(f"- {step}")
        self.refresh()

    def follow(self, progress: Progress, bundles: Sequence[SampleBundle]) -> None:
        """Show these bundles from now on."""
        self._progress, self._bundles = progress, bundles

    def refresh(self) -> None:
        """Show how things stand now."""
        if self._progress is None:
            return
        if self._live is None:
            self._print_counts(self._progress)
        else:
            self._live.update(self._drawn(self._progress), refresh=True)

    def _print_counts(self, progress: Progress) -> None:
        """A line when something changed, not too often."""
        counts = ", ".join(
            f"{stage} {progress.count(stage)}/{len(progress.wanted(stage))}" for stage in STAGES
        )
        now, (printed_at, before) = time.monotonic(), self._printed
        due = now - printed_at >= PLAIN_EVERY_S or progress.complete()
        if counts != before and due:
            self._printed = (now, counts)
            self._say_plainly(f"  {progress.elapsed():6.1f} s  {counts}")

    def _say_plainly(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _drawn(self, progress: Progress) -> Group:
        title = Text(f"{self._step}", style="bold")
        many = len(self._bundles) > ROWS
        return Group(title, _bars(progress) if many else _rows(progress, self._bundles))


def _bars(progress: Progress) -> Table:
    table = Table.grid(padding=(0, 2))
    for stage in STAGES:
        done, wanted = progress.count(stage), len(progress.wanted(stage))
        bar = ProgressBar(total=max(wanted, 1), completed=done, width=40)
        table.add_row(stage, bar, f"{done:,} of {wanted:,}", _when(progress.finished_at(stage)))
    return table


def _rows(progress: Progress, bundles: Sequence[SampleBundle]) -> Table:
    table = Table("bundle", "files", "size", *HEADINGS, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for bundle in bundles:
        cells = (_cell(progress, stage, bundle.label) for stage in STAGES)
        table.add_row(bundle.label, str(len(bundle.files)), f"{bundle.size / 1e6:.1f} MB", *cells)
    return table


def _cell(progress: Progress, stage: str, label: str) -> Text:
    if stage == NOTIFIED and label not in progress.notifiable:
        return Text("-", style="dim")
    at = progress.reached[stage].get(label)
    return Text("...", style="dim") if at is None else Text(f"{at:.1f} s", style="green")


def _when(at: float | None) -> Text:
    return Text("") if at is None else Text(f"after {at:.1f} s", style="green")
