"""How many requests of one process run at once; those that only wait give up their place.

A thread that waits for its client or for a worker costs some kilobytes, and may wait. One that runs
costs processor time and connections to the catalog, so a semaphore limits the number of those.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Permit:
    """One request's place among those that run."""

    def __init__(self, places: threading.Semaphore) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._suspensions = 0

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Give the place up while the block waits; the block must hold no lock or transaction."""
        self._suspend()
        try:
            yield
        finally:
            self._resume()

    def _suspend(self) -> None:
        with self._lock:
            self._suspensions += 1
            first = self._suspensions == 1
        if first:
            self._places.release()

    def _resume(self) -> None:
        with self._lock:
            self._suspensions -= 1
            last = self._suspensions == 0
        if last:
            self._places.acquire()


class _Current(threading.local):
    """The permit of this thread's request."""

    permit: Permit | None = None


_current = _Current()


class Permits:
    """The places of one process."""

    def __init__(self, count: int) -> None:
        self._places = threading.Semaphore(count)

    @contextmanager
    def running(self) -> Iterator[Permit]:
        """Run the block as a request of this thread, once a place is free."""
        permit = Permit(self._places)
        with self._places:
            _current.permit = permit
            try:
                yield permit
            finally:
                _current.permit = None


@contextmanager
def suspended() -> Iterator[None]:
    """Give up the place of this thread's request, if it has one, while the block waits."""
    permit = _current.permit
    if permit is None:
        yield
        return
    with permit.suspended():
        yield
