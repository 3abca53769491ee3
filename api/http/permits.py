"""Permits to run: how many requests of a process run at once, while others wait for workers.

Gunicorn's master imports this module with the worker class, so it must not import the application.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Permit:
    """One request's permit to run."""

    def __init__(self, semaphore: threading.Semaphore) -> None:
        self._semaphore = semaphore
        self._lock = threading.Lock()
        self._suspensions = 0

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Release the permit while the block waits; the block must hold no lock or transaction."""
        with self._lock:
            self._suspensions += 1
            is_first = self._suspensions == 1
        if is_first:
            self._semaphore.release()
        try:
            yield
        finally:
            with self._lock:
                self._suspensions -= 1
                is_last = self._suspensions == 0
            if is_last:
                self._semaphore.acquire()


class _CurrentPermit(threading.local):
    """The permit of this thread's request."""

    permit: Permit | None = None


_current = _CurrentPermit()


class Permits:
    """The permits of one process."""

    def __init__(self, count: int) -> None:
        self._semaphore = threading.Semaphore(count)

    @contextmanager
    def acquire(self) -> Iterator[Permit]:
        """Wait for a permit, then run the block as this thread's request."""
        permit = Permit(self._semaphore)
        with self._semaphore:
            _current.permit = permit
            try:
                yield permit
            finally:
                _current.permit = None


@contextmanager
def suspend_permit() -> Iterator[None]:
    """Release the permit of this thread's request, if it has one, while the block waits."""
    permit = _current.permit
    if permit is None:
        yield
        return
    with permit.suspend():
        yield
