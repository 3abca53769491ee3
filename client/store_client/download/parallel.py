"""Tasks done by a bounded number of threads, in bounded memory.

A task may return further tasks, which are done before the source is asked for another one. So a
source of a thousand bundles never has more than a few of them taken apart at once.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from store_client.download.stopping import Stop, Stopped
from store_client.errors import Damaged, NotFound, StoreError
from store_client.leaving import GRACE_S

log = logging.getLogger(__name__)

Task = Callable[[], "Iterable[Task] | None"]

ONLY_ITS_OWN = (Damaged, NotFound)
"""Failures that say nothing about other tasks, which go on …"""
MOST_FAILURES = 20
"""… until there are so many."""


Position = tuple[int, ...]
"""Where a task stands among all: its number in the source, then those among what tasks led to."""


class Running:
    """One run; failures by the position of their tasks."""

    def __init__(self, source: Iterable[Task], stop: Stop) -> None:
        self._source: Iterator[tuple[int, Task]] = enumerate(source)
        self._ready: deque[tuple[Position, Task]] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._stop = stop
        self.failures: dict[Position, BaseException] = {}

    def work(self) -> None:
        """Do tasks until there are none, and none can come."""
        while (taken := self._next()) is not None:
            position, task = taken
            following: list[Task] = []
            try:
                following.extend(task() or ())
            except Stopped:
                log.debug("a task stopped where it was")
            except BaseException as error:
                self._failed(position, error)
            with self._changed:
                # The first of them is to be done first: those taken are taken from the right.
                placed = [((*position, number), one) for number, one in enumerate(following)]
                self._ready.extend(reversed(placed))
                self._busy -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let no task begin any more."""
        self._stop.set()
        with self._changed:
            self._ready.clear()
            self._source = enumerate(())
            self._changed.notify_all()

    def _next(self) -> tuple[Position, Task] | None:
        with self._changed:
            while True:
                if self._ready:
                    self._busy += 1
                    return self._ready.pop()
                if found := next(self._source, None):
                    self._busy += 1
                    return found[:1], found[1]
                if not self._busy:
                    self._changed.notify_all()
                    return None
                self._changed.wait()

    def _failed(self, position: Position, error: BaseException) -> None:
        self.failures[position] = error
        if not isinstance(error, ONLY_ITS_OWN) or len(self.failures) >= MOST_FAILURES:
            self.end()
        else:
            log.warning("%s; the others go on", error)


def run(source: Iterable[Task], jobs: int, *, stop: Stop) -> None:
    """Do all tasks; the error of the first task that failed, once every thread has ended. After
    Ctrl-C threads end where they are."""
    running = Running(source, stop)
    threads = [
        threading.Thread(target=running.work, name=f"download-{number}", daemon=True)
        for number in range(jobs)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            _join(thread)
    except BaseException:
        running.end()
        until = time.monotonic() + GRACE_S
        for thread in threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
        raise
    if running.failures:
        raise _told(running.failures)


def _join(thread: threading.Thread) -> None:
    # On Windows a join without a time-out hears no Ctrl-C.
    while thread.is_alive():
        thread.join(timeout=0.5)


def _told(failures: dict[Position, BaseException]) -> BaseException:
    """The failure that ended everything, else the first in the order of tasks."""
    ordered = [failures[position] for position in sorted(failures)]
    grave = [error for error in ordered if not isinstance(error, ONLY_ITS_OWN)]
    first = (grave or ordered)[0]
    if len(failures) > 1 and isinstance(first, StoreError):
        first.args = (f"{first} (and {len(failures) - 1} more failed)",)
    return first
