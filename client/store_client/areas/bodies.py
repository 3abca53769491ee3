"""The body of a request that may be made anew, and what is told of it staying true."""

from collections.abc import Callable, Iterable, Iterator
from threading import Event, Lock
from types import TracebackType

from store_client.areas.reading import Stopped
from store_client.telling import Tell


class Body:
    """Tells of blocks as they go out; of those that went in vain, it takes the telling back."""

    def __init__(self, made: Callable[[], Iterable[bytes]], *, tell: Tell, stop: Event) -> None:
        self._made, self._tell, self._stop = made, tell, stop
        self._told = 0

    def __enter__(self) -> "Body":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.take_back()

    def blocks(self) -> Iterator[bytes]:
        """All of them, from the first one on."""
        self.take_back()
        for block in self._made():
            if self._stop.is_set():
                raise Stopped
            yield block
            self._told += len(block)
            self._tell.bytes(len(block))

    def take_back(self) -> None:
        """What was sent so far does not count."""
        if self._told:
            self._tell.bytes(-self._told)
        self._told = 0


class Counted:
    """A listener whose bytes can all be taken back, when a whole file was sent in vain."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._bytes = 0
        self._lock = Lock()

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Pass it on."""
        self._tell.total(files, bytes)

    def bytes(self, n: int) -> None:
        """Count, and pass it on."""
        with self._lock:
            self._bytes += n
        self._tell.bytes(n)

    def file(self) -> None:
        """Pass it on."""
        self._tell.file()

    def take_back(self) -> None:
        """None of these bytes counts."""
        with self._lock:
            taken, self._bytes = self._bytes, 0
        if taken:
            self._tell.bytes(-taken)
