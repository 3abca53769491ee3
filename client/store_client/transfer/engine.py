"""Stop signal, memory budget, threads and bodies that all transfers share.

Threads that wait for the network cannot be ended. After Ctrl-C they are left behind, which is safe:
the journal records what arrived, and the store accepts the same bytes twice.
"""

import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from queue import Empty, SimpleQueue
from threading import Condition, Event
from typing import Any, TypeVar

from store_client.checksums import MB
from store_client.errors import Damaged, Misused, NotFound, StoreError
from store_client.progress import NO_PROGRESS, TransferProgress

log = logging.getLogger(__name__)

GRACE_S = 2.0
"""Wait for threads that are about to end."""
MAX_MEMORY = 512 * MB
"""Bytes of files held at once, whatever the number of jobs; a larger part goes alone."""
POLL_S = 0.2
"""Interval at which waiting threads look for a stop, or for Ctrl-C."""

T = TypeVar("T")
R = TypeVar("R")


class Stopped(StoreError):
    """The transfer was asked to stop."""

    def __init__(self) -> None:
        super().__init__("stopped", hint="run the same command again to resume")


class StopSignal:
    """A flag that all threads of a transfer check; setting it wakes those that wait."""

    def __init__(self, event: Event | None = None) -> None:
        self._event = event or Event()
        self._wakers: list[Callable[[], None]] = []

    def add_waker(self, waker: Callable[[], None]) -> None:
        """Call this, too, when the signal is set."""
        self._wakers.append(waker)

    def remove_waker(self, waker: Callable[[], None]) -> None:
        """Call this no more."""
        self._wakers.remove(waker)

    def set(self) -> None:
        if not self._event.is_set():
            self._event.set()
            for waker in tuple(self._wakers):
                waker()

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raise Stopped if the signal is set."""
        if self._event.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, but raise Stopped as soon as the signal is set."""
        if self._event.wait(seconds):
            raise Stopped


class BufferBudget:
    """Bytes that may be held in memory at once; threads share it."""

    def __init__(self, size: int, stop: StopSignal) -> None:
        self._size, self._stop = size, stop
        self._used = 0
        self._changed = Condition()
        stop.add_waker(self._wake)

    def reserve(self, size: int) -> None:
        """Wait for room for so many bytes; Stopped when the transfer stops."""
        with self._changed:
            while self._used and self._used + size > self._size:
                self._stop.check()
                # The signal may be an event of the caller, which wakes nothing.
                self._changed.wait(POLL_S)
            self._stop.check()
            self._used += size

    def release(self, size: int) -> None:
        """Give room back."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold room for so many bytes during a block."""
        self.reserve(size)
        try:
            yield
        finally:
            self.release(size)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class TransferContext:
    """What the files of one upload share: progress, memory, threads for parts, stop signal."""

    def __init__(
        self,
        jobs: int,
        tell: TransferProgress = NO_PROGRESS,
        *,
        memory: int = MAX_MEMORY,
        stop: Event | None = None,
    ) -> None:
        self.tell = tell
        self.part_pool = ThreadPoolExecutor(jobs, thread_name_prefix="part")
        self.stop = StopSignal(stop)
        self.memory = BufferBudget(memory, self.stop)

    def with_progress(self, tell: TransferProgress) -> "TransferContext":
        """The same context, reporting its progress elsewhere."""
        made = copy(self)
        made.tell = tell
        return made


@contextmanager
def open_transfer(
    jobs: int,
    tell: TransferProgress = NO_PROGRESS,
    *,
    memory: int = MAX_MEMORY,
    stop: Event | None = None,
) -> Iterator[TransferContext]:
    """A transfer context, whose threads end with the block."""
    context = TransferContext(jobs, tell, memory=memory, stop=stop)
    try:
        yield context
    except Exception:
        context.stop.set()
        context.part_pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        context.stop.set()
        abandon_threads(context.part_pool)
        raise
    context.part_pool.shutdown()


class RollbackProgress:
    """Passes progress on, and can take back all bytes when a file was sent in vain."""

    def __init__(self, tell: TransferProgress) -> None:
        self._tell = tell
        self._bytes = 0
        self._lock = threading.Lock()

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        self._tell.total(files, bytes)

    def bytes(self, n: int) -> None:
        """Count bytes, and pass them on."""
        with self._lock:
            self._bytes += n
        self._tell.bytes(n)

    def file(self) -> None:
        self._tell.file()

    def phase(self, name: str) -> None:
        self._tell.phase(name)

    def roll_back(self) -> None:
        """Take back all bytes that were passed on."""
        with self._lock:
            sent, self._bytes = self._bytes, 0
        if sent:
            self._tell.bytes(-sent)


class MemoryBody:
    """A request body in memory, as a file or as blocks; reports progress as it is read.

    Reading again from the start takes the reported bytes back. Pieces are larger than asked for:
    pieces of 16 KiB would cost more than the sending.
    """

    PIECE = MB // 2

    def __init__(self, data: bytes, context: TransferContext) -> None:
        self.data, self._view, self._context = data, memoryview(data), context
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int = -1) -> memoryview | bytes:
        """The next piece; b"" at the end."""
        self._context.stop.check()
        piece = self._view[self._at : self._at + (self.PIECE if size >= 0 else len(self._view))]
        self._at += len(piece)
        self._context.tell.bytes(len(piece))
        return piece or b""

    def seek(self, place: int, whence: int = 0) -> int:
        """Move as files do; skipped bytes count as read. Going back checks the stop signal."""
        target = place + {0: 0, 1: self._at, 2: len(self._view)}[whence]
        if target < self._at:
            self._context.stop.check()
        self._context.tell.bytes(target - self._at)
        self._at = target
        return target

    def tell(self) -> int:
        return self._at

    def blocks(self) -> Iterator[bytes]:
        """All bytes, piece by piece, from the beginning."""
        self.seek(0)
        while piece := self.read(0):
            yield bytes(piece)


def abandon_threads(pool: Executor, futures: Collection[Future[Any]] = ()) -> None:
    """Start nothing more, and wait a moment for what is running."""
    pool.shutdown(wait=False, cancel_futures=True)
    wait([one for one in futures if not one.cancelled()], timeout=GRACE_S)


def run_each(
    function: Callable[[T], R], items: Sequence[T], *, jobs: int, stop: StopSignal
) -> Iterator[tuple[int, R]]:
    """Call the function for each item in threads; yield index and result of each when it is done.

    The first error is raised, after the stop signal is set and the running calls have ended.
    """
    pool = ThreadPoolExecutor(max(1, jobs), thread_name_prefix="file")
    done: SimpleQueue[Future[R]] = SimpleQueue()
    futures: dict[Future[R], int] = {}
    try:
        for index, item in enumerate(items):
            future = pool.submit(function, item)
            futures[future] = index
            future.add_done_callback(done.put)
        for _ in futures:
            future = _wait_for_next(done)
            yield futures[future], future.result()
    except Exception:
        stop.set()
        pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        stop.set()
        abandon_threads(pool, futures)
        raise
    pool.shutdown()


def _wait_for_next(done: SimpleQueue[T]) -> T:
    while True:
        try:
            # With a time-out, so that Ctrl-C is noticed on every system.
            return done.get(timeout=0.5)
        except Empty:
            continue


def import_extra(name: str, needed: str, *, extra: str) -> Any:
    """Import a library of an extra, late: few transfers need it. Misused if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"pip install consortium-store-client[{extra}]"
        raise Misused(f"a staging bucket on {needed}", hint=hint) from error


class DownloadInterrupted(KeyboardInterrupt):
    """Ctrl-C: the number of finished files, and bytes of unfinished ones."""

    def __init__(self, files: int, unfinished: int) -> None:
        super().__init__()
        self.files = files
        self.unfinished = unfinished


Task = Callable[[], "Iterable[Task] | None"]

ISOLATED_ERRORS = (Damaged, NotFound)
"""Errors of one task that let other tasks continue …"""
MAX_FAILURES = 20
"""… until there are so many."""


Position = tuple[int, ...]
"""The position of a task: its number in the source, then among the tasks that tasks returned."""


class TaskRunner:
    """Runs tasks in threads; collects failures by position."""

    def __init__(self, source: Iterable[Task], stop: StopSignal) -> None:
        self._source: Iterator[tuple[int, Task]] = enumerate(source)
        self._ready: deque[tuple[Position, Task]] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._stop = stop
        self.failures: dict[Position, BaseException] = {}

    def work(self) -> None:
        """Run tasks until none are left."""
        while (taken := self._next_task()) is not None:
            position, task = taken
            following: list[Task] = []
            try:
                following.extend(task() or ())
            except Stopped:
                log.debug("a task stopped where it was")
            except BaseException as error:
                self._record_failure(position, error)
            with self._changed:
                # The first of them is to be done first: those taken are taken from the right.
                placed = [((*position, number), one) for number, one in enumerate(following)]
                self._ready.extend(reversed(placed))
                self._busy -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Start no further tasks."""
        self._stop.set()
        with self._changed:
            self._ready.clear()
            self._source = enumerate(())
            self._changed.notify_all()

    def _next_task(self) -> tuple[Position, Task] | None:
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

    def _record_failure(self, position: Position, error: BaseException) -> None:
        self.failures[position] = error
        if not isinstance(error, ISOLATED_ERRORS) or len(self.failures) >= MAX_FAILURES:
            self.stop()
        else:
            log.warning("%s; the others go on", error)


def run_tasks(source: Iterable[Task], jobs: int, *, stop: StopSignal) -> None:
    """Run all tasks in threads; raises the error of the first task that failed.

    A task may return further tasks, which run before the next one of the source. So few
    bundles of a long source are expanded at once.
    """
    running = TaskRunner(source, stop)
    threads = [
        threading.Thread(target=running.work, name=f"download-{number}", daemon=True)
        for number in range(jobs)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            # On Windows a join without a time-out hears no Ctrl-C.
            while thread.is_alive():
                thread.join(timeout=0.5)
    except BaseException:
        running.stop()
        until = time.monotonic() + GRACE_S
        for thread in threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
        raise
    if running.failures:
        raise _pick_failure(running.failures)
    stop.check()


def _pick_failure(failures: dict[Position, BaseException]) -> BaseException:
    """The failure that stopped everything, else the first in the order of tasks."""
    ordered = [failures[position] for position in sorted(failures)]
    grave = [error for error in ordered if not isinstance(error, ISOLATED_ERRORS)]
    first = (grave or ordered)[0]
    if len(failures) > 1 and isinstance(first, StoreError):
        first.args = (f"{first} (and {len(failures) - 1} more failed)",)
    return first
