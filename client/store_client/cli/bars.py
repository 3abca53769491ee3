"""The bar on a terminal: files, bytes, rate, remaining time."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from store_client.cli.plain import line
from store_client.cli.progress import State

EVERY_S = 0.1
"""What is told more often is not worth a thread's time."""


class Bar:
    """One line at the foot of the terminal; log lines appear above it."""

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
        self._task = self._bar.add_task(line(what), total=None, done=0, of=0)
        self._clock = clock
        self._last = 0.0
        self._state: State | None = None
        self._bar.start()

    def update(self, state: State) -> None:
        """Show it, but not more often than eyes follow."""
        self._state = state
        now = self._clock()
        if now - self._last >= EVERY_S:
            self._last = now
            self._show(state)

    def close(self) -> None:
        """Show where it ended, and leave the line there."""
        if self._state:
            self._show(self._state)
        self._bar.stop()

    def _show(self, state: State) -> None:
        self._bar.update(
            self._task,
            completed=state.bytes_,
            total=state.all_bytes,
            done=state.files,
            of=state.all_files,
        )
