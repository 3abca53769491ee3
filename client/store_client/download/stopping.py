"""One flag that all threads of a download look at: somebody wants it to end."""

import threading
from collections.abc import Callable


class Stopped(Exception):
    """Raised in whoever goes on although the end is wanted."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: how many files had come whole, and how many bytes are kept of others."""

    def __init__(self, files: int, unfinished: int) -> None:
        super().__init__()
        self.files = files
        self.unfinished = unfinished


class Stop:
    """Set once; what waits for time to pass, or for bytes, is woken."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._wakers: list[Callable[[], None]] = []

    def wakes(self, waker: Callable[[], None]) -> None:
        """Have this called, too, when the end is wanted."""
        self._wakers.append(waker)

    def set(self) -> None:
        """From now on nobody goes on."""
        if not self._event.is_set():
            self._event.set()
            for waker in self._wakers:
                waker()

    def check(self) -> None:
        """Raise Stopped when the end is wanted."""
        if self._event.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        if self._event.wait(seconds):
            raise Stopped
