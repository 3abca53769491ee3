"""How far a transfer is, for a person: a bar on a terminal, else a line now and then.

`Progress` is a telling.Tell; upload, download and files hand it to what does the work.
"""

import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from store_client.telling import size

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Time between two lines where there is no terminal."""


class Shown(Protocol):
    """What shows how far a transfer is."""

    def update(self, state: "State") -> None:
        """Show it; called often."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class State:
    """What is done of what there is to do; changed under one lock."""

    def __init__(self, start: float) -> None:
        self.files = self.bytes_ = self.all_files = self.all_bytes = 0
        self.start = start


class Progress:
    """Counts what threads tell, and shows it; a context manager."""

    def __init__(self, shown: Shown, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = State(clock())
        self._shown = shown
        self._lock = threading.Lock()

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Add to what there is to do."""
        self._add(all_files=files, all_bytes=bytes)

    def bytes(self, n: int) -> None:
        """Note n bytes more (or, negative, fewer) done."""
        self._add(bytes_=n)

    def file(self) -> None:
        """Note one file more done."""
        self._add(files=1)

    def _add(self, **more: int) -> None:
        with self._lock:
            for name, amount in more.items():
                setattr(self.state, name, getattr(self.state, name) + amount)
            self._shown.update(self.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.close()


class Unseen:
    """Shows nothing: for those who want no progress."""

    def update(self, state: State) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is left behind."""


def progress(
    total_bytes: int = 0, total_files: int = 0, *, enabled: bool = True, what: str = ""
) -> Progress:
    """What suits standard error; `enabled` is false after --no-progress and --quiet."""
    shown: Shown
    if not enabled:
        shown = Unseen()
    elif sys.stderr.isatty():
        bars: Any = importlib.import_module("store_client.cli.bars")
        shown = bars.Bar(what)
    else:
        shown = Lines(what)
    made = Progress(shown)
    made.total(total_files, total_bytes)
    return made


class Lines:
    """A line of the log every ten seconds."""

    def __init__(self, what: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._last = clock()

    def update(self, state: State) -> None:
        """Write a line when it is time."""
        now = self._clock()
        if now - self._last >= EVERY_S:
            self._last = now
            log.info("%s", sentence(state, now, what=self._what))

    def close(self) -> None:
        """Nothing is left behind."""


def sentence(state: State, now: float, *, what: str = "") -> str:
    """`upload: 3 of 10 files, 1.0 of 4.0 MB, 0.5 MB/s, 0:06 left`."""
    rate = state.bytes_ / max(now - state.start, 1e-3)
    parts = [f"{state.files} of {state.all_files} files"]
    parts.append(f"{size(state.bytes_)} of {size(state.all_bytes)}, {size(rate)}/s")
    if rate > 0 and state.all_bytes >= state.bytes_:
        parts.append(f"{duration((state.all_bytes - state.bytes_) / rate)} left")
    return f"{what}: {', '.join(parts)}" if what else ", ".join(parts)


def duration(seconds: float) -> str:
    """`0:06`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
