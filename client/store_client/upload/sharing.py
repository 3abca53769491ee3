"""What all transfers of one upload share: memory, threads, the sign to stop, and who listens."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Event

from store_client.checksums import MB
from store_client.errors import StoreError
from store_client.leaving import leave
from store_client.telling import SILENCE, Tell

MEMORY = 512 * MB
"""Bytes of files that are held at once, whatever the jobs are; a larger part goes alone."""


class Stopped(StoreError):
    """Somebody else failed, or asked to stop: this transfer ends half-way."""


class Shared:
    """Made once for an upload; its threads end with the block of `sharing`."""

    def __init__(self, jobs: int, tell: Tell = SILENCE, *, memory: int = MEMORY) -> None:
        self.tell = tell
        self.parts = ThreadPoolExecutor(jobs, thread_name_prefix="part")
        self.stopping = Event()
        self._memory = memory
        self._used = 0
        self._changed = Condition()

    def take(self, size: int) -> None:
        """Wait until there is room for so many bytes; Stopped when there is no sense in it."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.stopping.is_set() or not self._used or self._used + size <= self._memory
                )
            )
            self.check()
            self._used += size

    def give(self, size: int) -> None:
        """The bytes are held no longer."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Room for so many bytes while a block lasts."""
        self.take(size)
        try:
            yield
        finally:
            self.give(size)

    def check(self) -> None:
        """Raise Stopped once all is to stop."""
        if self.stopping.is_set():
            raise Stopped("the upload was stopped")

    def pause(self, seconds: float) -> None:
        """Wait so many seconds; Stopped as soon as all is to stop."""
        self.stopping.wait(seconds)
        self.check()

    def stop(self) -> None:
        """Whatever goes on ends at its next block."""
        with self._changed:
            self.stopping.set()
            self._changed.notify_all()


@contextmanager
def sharing(jobs: int, tell: Tell = SILENCE, *, memory: int = MEMORY) -> Iterator[Shared]:
    """What is shared, for the length of a block."""
    shared = Shared(jobs, tell, memory=memory)
    try:
        yield shared
    except Exception:
        shared.stop()
        shared.parts.shutdown(cancel_futures=True)
        raise
    except BaseException:
        shared.stop()
        leave(shared.parts)
        raise
    shared.parts.shutdown()


class Body:
    """Bytes on their way out: tells what was read of them, takes it back when they are sent again.

    It is a file to whoever sends it, but gives larger pieces than it is asked for: pieces of 16 KiB
    would cost more than the sending.
    """

    PIECE = MB // 2

    def __init__(self, data: bytes, shared: Shared) -> None:
        self._data, self._shared = memoryview(data), shared
        self._at = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, size: int = -1) -> memoryview | bytes:
        """The next piece; b"" at the end."""
        self._shared.check()
        piece = self._data[self._at : self._at + (self.PIECE if size >= 0 else len(self._data))]
        self._at += len(piece)
        self._shared.tell.bytes(len(piece))
        return piece or b""

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place, as files do; what is skipped counts as read. What is sent again may be
        stopped, what has arrived counts."""
        target = place + {0: 0, 1: self._at, 2: len(self._data)}[whence]
        if target < self._at:
            self._shared.check()
        self._shared.tell.bytes(target - self._at)
        self._at = target
        return target

    def tell(self) -> int:
        """Where it is."""
        return self._at

    def again(self) -> Iterator[bytes]:
        """All of it, piece by piece, from the beginning."""
        self.seek(0)
        while piece := self.read(0):
            yield bytes(piece)
