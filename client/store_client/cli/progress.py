"""How far a transfer is, for a person: a bar on a terminal, else a line now and then.

`ProgressCounter` is a progress.TransferProgress; commands pass it to the transfer.
"""

import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from store_client.progress import ProgressState, format_duration, format_size, remaining_s

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Time between two lines where there is no terminal."""


class ProgressDisplay:
    """Displays the progress of a transfer; this one shows nothing."""

    def update(self, state: ProgressState) -> None:
        """Update the display; called often."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class ProgressCounter:
    """Counts the progress of threads, and displays it; a context manager."""

    def __init__(
        self, shown: ProgressDisplay, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = ProgressState(clock())
        self._shown = shown
        self._lock = threading.Lock()

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        self._add(all_files=files, all_bytes=bytes)

    def bytes(self, n: int) -> None:
        self._add(bytes_=n)

    def file(self) -> None:
        self._add(files=1)

    def phase(self, name: str) -> None:
        with self._lock:
            self.state.phase = name
            self._shown.update(self.state)

    def _add(self, **more: int) -> None:
        with self._lock:
            for name, amount in more.items():
                setattr(self.state, name, getattr(self.state, name) + amount)
            self._shown.update(self.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()


def open_progress(*, enabled: bool, what: str) -> ProgressCounter:
    """Progress that suits standard error; hidden unless `enabled`."""
    shown: ProgressDisplay
    if not enabled:
        shown = ProgressDisplay()
    elif sys.stderr.isatty():
        bars: Any = importlib.import_module("store_client.cli.rich_views")
        shown = bars.ProgressBar(what)
    else:
        shown = LogDisplay(what)
    return ProgressCounter(shown)


class LogDisplay(ProgressDisplay):
    """Logs a line every ten seconds."""

    def __init__(self, what: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._last = clock()

    def update(self, state: ProgressState) -> None:
        now = self._clock()
        if now - self._last >= EVERY_S:
            self._last = now
            log.info("%s", progress_line(state, now, what=self._what))


def progress_line(state: ProgressState, now: float, *, what: str = "") -> str:
    """Format progress: `upload: sending, 3 of 10 files, 1.0 of 4.0 MB, 0.5 MB/s, 0:06 left`."""
    rate = state.bytes_ / max(now - state.start, 1e-3)
    parts = [state.phase] if state.phase else []
    parts.append(f"{state.files} of {state.all_files} files")
    parts.append(
        f"{format_size(state.bytes_)} of {format_size(state.all_bytes)}, {format_size(rate)}/s"
    )
    left = remaining_s(state, now)
    if left is not None:
        parts.append(f"{format_duration(left)} left")
    return f"{what}: {', '.join(parts)}" if what else ", ".join(parts)
