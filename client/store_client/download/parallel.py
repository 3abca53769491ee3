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


class Running:
    """One run; failures in the order in which they came."""

    def __init__(self, source: Iterable[Task], stop: Stop) -> None:
        self._source: Iterator[Task] = iter(source)
        self._ready: deque[Task] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._stop = stop
        self.failures: list[BaseException] = []

    def work(self) -> None:
        """Do tasks until there are none, and none can come."""
        while (task := self._next()) is not None:
            following: deque[Task] = deque()
            try:
                following.extend(task() or ())
            except Stopped:
                log.debug("a task stopped where it was")
            except BaseException as error:
                self._failed(error)
            with self._changed:
                # The first of them is to be done first: those taken are taken from the right.
                self._ready.extend(reversed(following))
                self._busy -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let no task begin any more."""
        self._stop.set()
        with self._changed:
            self._ready.clear()
            self._source = iter(())
            self._changed.notify_all()

    def _next(self) -> Task | None:
        with self._changed:
            while True:
                task = self._ready.pop() if self._ready else next(self._source, None)
                if task is not None:
                    self._busy += 1
                    return task
                if not self._busy:
                    self._changed.notify_all()
                    return None
                self._changed.wait()

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        if not isinstance(error, ONLY_ITS_OWN) or len(self.failures) >= MOST_FAILURES:
            self.end()
        else:
            log.warning("%s; the others go on", error)


def run(source: Iterable[Task], jobs: int, *, stop: Stop) -> None:
    """Do all tasks; the error of the first that failed, once every thread has ended. After Ctrl-C
    threads end where they are."""
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


def _told(failures: list[BaseException]) -> BaseException:
    """The gravest failure: one that ended everything, else the first."""
    grave = [error for error in failures if not isinstance(error, ONLY_ITS_OWN)]
    first = (grave or failures)[0]
    if len(failures) > 1 and isinstance(first, StoreError):
        first.args = (f"{first} (and {len(failures) - 1} more failed)",)
    return first
