"""Many files into one area, several at once; whoever asks sees each as it is done."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal

from store_client.areas import syncing
from store_client.areas.reading import Outgoing, Stopped
from store_client.areas.sending import send_file
from store_client.areas.sent import Sending, Sent
from store_client.errors import Conflict, NotAllowed, NotFound, StoreError, Unreachable
from store_client.leaving import leave

JOBS = 8
"""Files at once."""
LASTING = (NotAllowed, NotFound, Conflict, Unreachable)
"""What would befall the files that follow, too."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What became of one file; `sent` unless it failed."""

    outgoing: Outgoing
    state: Literal["sent", "unchanged", "to send", "failed"]
    sent: Sent | None = None
    error: StoreError | None = None


def bring(
    sending: Sending,
    files: Sequence[Outgoing],
    *,
    sync: bool = False,
    dry_run: bool = False,
    jobs: int = JOBS,
) -> Iterator[Brought]:
    """Send each, in no order; with `sync` only what does not lie there as it is.

    A file that fails leaves the others alone, unless what failed concerns all of them: then no
    other is begun. Ended early, by an error or by whoever iterates, those under way are stopped.
    """
    lies = syncing.listed(sending) if sync else {}
    sending.tell.total(len(files), sum(one.size for one in files))

    def one(outgoing: Outgoing) -> Brought:
        return _brought(sending, outgoing, lies=lies, dry_run=dry_run)

    pool = ThreadPoolExecutor(max(1, jobs), thread_name_prefix="files")
    done: SimpleQueue[Future[Brought]] = SimpleQueue()
    begun: list[Future[Brought]] = []
    try:
        for outgoing in files:
            begun.append(pool.submit(one, outgoing))
            begun[-1].add_done_callback(done.put)
        yield from _as_done(done, len(files))
    except BaseException:
        sending.stop.set()
        leave(pool, begun)
        raise
    sending.stop.set()
    pool.shutdown(cancel_futures=True)


def _as_done(done: SimpleQueue[Future[Brought]], count: int) -> Iterator[Brought]:
    for _ in range(count):
        found = _next(done).result()
        yield found
        if isinstance(found.error, LASTING):
            return


def _next(done: SimpleQueue[Future[Brought]]) -> Future[Brought]:
    while True:
        try:
            # Now and then, so that Ctrl-C is heard on every system.
            return done.get(timeout=0.5)
        except Empty:
            continue


def _brought(
    sending: Sending, outgoing: Outgoing, *, lies: syncing.Listed, dry_run: bool
) -> Brought:
    try:
        if sending.stop.is_set():
            raise Stopped
        found = syncing.there(sending, outgoing, files=lies)
        if found is not None:
            sending.tell.bytes(outgoing.size)
            sending.tell.file()
            return Brought(outgoing, "unchanged", found)
        if dry_run:
            return Brought(outgoing, "to send")
        sent = send_file(sending, outgoing)
    except StoreError as error:
        return Brought(outgoing, "failed", error=error)
    sending.tell.file()
    return Brought(outgoing, "sent", sent)
