"""One attempt to read bytes of a file from its bucket, in blocks; and where its URL comes from."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from store_client.checksums import BLOCK
from store_client.download.entries import Wanted
from store_client.download.quota import Trouble
from store_client.download.stopping import Stop
from store_client.download.wire import Answer, Wire
from store_client.errors import Damaged, StoreError, Unreachable

EXPIRED = frozenset({400, 401, 403, 404, 410})
"""What buckets answer to a URL that is no longer good."""

_BUFFERS = threading.local()


class NoRanges(Exception):
    """The server answers the whole file whatever is asked."""


class Source:
    """Where a file's bytes are; asked for anew after the URL has expired."""

    def __init__(self, wanted: Wanted, ask: Callable[[Wanted], str]) -> None:
        self._wanted = wanted
        self._ask = ask
        self._lock = threading.Lock()
        self._url = wanted.url

    def url(self) -> str:
        """One that has not been seen to be refused."""
        with self._lock:
            self._url = self._url or self._ask(self._wanted)
            return self._url

    def refused(self, url: str) -> None:
        """The bucket did not take this one."""
        with self._lock:
            if self._url == url:
                self._url = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one file."""

    wire: Wire
    source: Source
    stop: Stop
    wanted: Wanted

    def blocks(
        self, start: int, end: int, *, exact: bool
    ) -> Generator[tuple[int, memoryview], None, None]:
        """Blocks of [start, end) with their offsets, good until the next; Trouble when fewer come.
        A server that ignores ranges gives the whole, from offset 0: NoRanges if `exact`."""
        size = self.wanted.size
        url = self.source.url()
        with self.wire.get(url, start=start, end=None if end == size else end) as answer:
            self._check(answer, url, start)
            at = answer.start
            if exact and at != start:
                raise NoRanges
            buffer = _buffer()
            while at < end:
                self.stop.check()
                count = self._read(answer, buffer[: min(BLOCK, end - at)])
                if not count:
                    raise self._cut(at)
                yield at, buffer[:count]
                at += count

    def _check(self, answer: Answer, url: str, start: int) -> None:
        """Trouble when it is not an answer with these bytes."""
        if answer.status not in (200, 206):
            if answer.status in EXPIRED:
                self.source.refused(url)
            said = f"{self.wanted.name}: the bucket answers {answer.status}"
            raise Trouble(Unreachable(said), retry_after_s=answer.retry_after_s)
        if answer.total is not None and answer.total != self.wanted.size:
            said = f"{self.wanted.name} has {self.wanted.size} bytes; {answer.total} were offered"
            raise Trouble(Damaged(said))
        if answer.start not in (0, start) or (answer.start != start and answer.status == 206):
            raise Trouble(Damaged(f"{self.wanted.name}: other bytes came than were asked for"))

    def _read(self, answer: Answer, buffer: memoryview) -> int:
        try:
            return answer.readinto(buffer)
        except TimeoutError as error:
            said = f"{self.wanted.name}: the bucket fell silent"
            raise Trouble(Unreachable(said)) from error
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # The last two are what a connection gives that another thread closed meanwhile.
            raise Trouble(Damaged(f"{self.wanted.name}: broken off ({error})")) from error

    def _cut(self, at: int) -> Trouble:
        return Trouble(Damaged(f"{self.wanted.name}: only {at} of {self.wanted.size} bytes came"))


@contextlib.contextmanager
def written_to(what: object) -> Iterator[None]:
    """Say which file it was that the system would not write."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {what}: {error.strerror or error}") from error


def _buffer() -> memoryview:
    """This thread's own; made once."""
    found: memoryview | None = getattr(_BUFFERS, "block", None)
    if found is None:
        found = _BUFFERS.block = memoryview(bytearray(BLOCK))
    return found
