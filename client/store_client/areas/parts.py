"""A large file as parts: read and hashed once, in order, and sent in parallel.

Where a part goes is the caller's, as is what happens before the first one and after the last.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import BoundedSemaphore, Event
from typing import cast

from store_client.areas.bodies import Body
from store_client.areas.reading import Outgoing, Stopped, read
from store_client.areas.sent import Sending
from store_client.checksums import Checksums, Hashing

AT_ONCE = 4
"""Parts of one file on their way."""
BUFFERS = BoundedSemaphore(6)
"""Parts in memory over all files of this process: at 64 MB each, what bounds it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a file; the first part has the number 1."""

    number: int
    blocks: tuple[bytes, ...]
    size: int


def count(size: int, part_size: int) -> int:
    """How many parts a file of that size has."""
    return -(-size // part_size)


def carry(
    sending: Sending,
    outgoing: Outgoing,
    send: Callable[[Part, Body], None],
    *,
    part_size: int,
    stored: Collection[int],
) -> Checksums:
    """Send every part that is not stored yet; the checksums of the whole.

    The first error of `send` ends it; what was told of the parts that arrived stays told.
    """
    hashing = Hashing(outgoing.size)
    blocks = hashing.over(read(outgoing.path, outgoing.size, stop=sending.stop))
    lanes = _Lanes(sending, send)
    try:
        cut = _cut(blocks, part_size)
        for number in range(1, count(outgoing.size, part_size) + 1):
            lanes.wait_for_room()
            lanes.take(Part(number, *_next(cut)), done=number in stored)
        # The reader looks for more than was announced when it is asked for more.
        for _ in blocks:
            raise AssertionError("more was read than announced")
        lanes.finish()
    except BaseException:
        lanes.give_up()
        raise
    finally:
        # Its threads end now, not when the error that may hold this frame is gone.
        cast("Generator[bytes]", blocks).close()
    return hashing.result()


def _next(cut: Iterator[tuple[tuple[bytes, ...], int]]) -> tuple[tuple[bytes, ...], int]:
    try:
        return next(cut)
    except BaseException:
        # The buffer that this part was to fill.
        BUFFERS.release()
        raise


def _cut(blocks: Iterable[bytes], size: int) -> Iterator[tuple[tuple[bytes, ...], int]]:
    """The blocks of one part after the other, and their bytes."""
    held: list[bytes] = []
    room = size
    for block in blocks:
        rest = block
        while len(rest) >= room:
            yield (*held, rest[:room]), size
            held, rest, room = [], rest[room:], size
        if rest:
            held.append(rest)
            room -= len(rest)
    if held:
        yield tuple(held), size - room


class _Lanes:
    """The parts that are on their way; one thread fills them."""

    def __init__(self, sending: Sending, send: Callable[[Part, Body], None]) -> None:
        self._send, self._stop = send, sending.stop
        self._halt = Event()
        self._tell = sending.tell
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="part")
        self._running: set[Future[None]] = set()

    def wait_for_room(self) -> None:
        """Until a buffer is free; the error of a part that failed meanwhile."""
        while not BUFFERS.acquire(timeout=0.2):
            self._check()

    def take(self, part: Part, *, done: bool) -> None:
        """Send it, unless it is done already; its buffer is free after that."""
        if done:
            BUFFERS.release()
            self._tell.bytes(part.size)
            return
        future = self._pool.submit(self._one, part)
        future.add_done_callback(lambda _: BUFFERS.release())
        self._running.add(future)
        self._check()

    def finish(self) -> None:
        """Wait for all of them."""
        while self._running:
            wait(self._running, timeout=0.2, return_when=FIRST_COMPLETED)
            self._check()
        self._pool.shutdown()

    def give_up(self) -> None:
        """End those that run, begin no others."""
        self._halt.set()
        self._pool.shutdown(cancel_futures=True)

    def _one(self, part: Part) -> None:
        with Body(lambda: part.blocks, tell=self._tell, stop=self._halt) as body:
            self._send(part, body)

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped
        ended = {one for one in self._running if one.done()}
        self._running -= ended
        for one in ended:
            one.result()
