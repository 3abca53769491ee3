"""What the jobs of one small bundle cost in a worker: processor time, SQL, fsyncs, opened files.

All jobs run in this process, on embedded stores, as the worker runs them: from the claim to the
messages of what follows. Run as `python -m bench.jobs [bundles] [1 to profile]`.
"""

import cProfile
import logging
import os
import pstats
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import uuid4

from sqlalchemy import event

from bench import stand
from bench.rows import version
from pipelines.depositing import areas, ingest, manifests
from pipelines.depositing.areas import Incoming
from pipelines.depositing.manifests import NewBundle, NewEntry
from storage import keys
from storage.catalog import todo
from storage.model import FQID, Todo
from storage.stores import Stores
from workers import chains
from workers.actors import BATCHES, STEPS
from workers.claims import Working, work

AUTHOR = "bench@example.org"
DATA_BYTES = 20_000

Seconds = dict[str, float]


class Queue:
    """Messages in the order in which they were sent, as one worker takes them."""

    def __init__(self, *, together: bool) -> None:
        self.rows: deque[Todo] = deque()
        self.together = together

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None:
        """Remember the messages: in batches, one is enough for several jobs."""
        self.rows.extend(chains.batch_heads(rows) if self.together else rows)


def main(bundles: int = 40, profiled: int = 0) -> None:
    """Print the cost per bundle by step, and what left the process: one by one, and in batches."""
    print(f"{bundles} bundles of 2 files (JSON, 20 kB), one thread")
    with stand.stores() as (_, stores):
        area = str(uuid4())
        areas.create(stores, area, AUTHOR)
        _run(stores, area, 2)
        for together in (False, True):
            profile = cProfile.Profile() if profiled else None
            with counting(stores) as calls:
                spent = _run(stores, area, bundles, profile, together=together)
            _print("in batches" if together else "one by one", bundles, spent, calls)
            if profile is not None:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(90)
                pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def _print(how: str, bundles: int, spent: Seconds, calls: Counter[str]) -> None:
    print(f"{how}: processor ms per bundle: {sum(spent.values()) * 1e3 / bundles:.1f}")
    by_step = sorted(spent.items(), key=lambda item: -item[1])
    print("  " + ", ".join(f"{step} {seconds * 1e3 / bundles:.2f}" for step, seconds in by_step))
    print("  " + ", ".join(f"{count / bundles:.1f} {what}" for what, count in calls.items()))


def _run(
    stores: Stores,
    area: str,
    bundles: int,
    profile: cProfile.Profile | None = None,
    *,
    together: bool = True,
) -> Seconds:
    """Deposit bundles and do all of their jobs; processor seconds by step."""
    queue = Queue(together=together)
    made = [_files(stores, area, number, queue) for number in range(bundles)]
    working = Working(stores, queue, STEPS, 5, Random(1), BATCHES if together else {})
    spent: Seconds = defaultdict(float)
    _drain(working, queue, spent, profile)
    for metadata, data in made:
        entries = [NewEntry("sample.json", metadata, True), NewEntry("reads.bin", data, False)]
        new = NewBundle(FQID(str(uuid4()), version(0)), "aws", 1, entries)
        queue.send(manifests.write(stores, new, AUTHOR).todo)
    _drain(working, queue, spent, profile)
    with stores.catalog.read() as tx:
        assert not todo.backlog(tx)
        assert not todo.parked(tx)
    return spent


def _drain(
    working: Working, queue: Queue, spent: Seconds, profile: cProfile.Profile | None
) -> None:
    while queue.rows:
        row = queue.rows.popleft()
        began = time.process_time()
        if profile is not None:
            profile.enable()
        work(working, row)
        if profile is not None:
            profile.disable()
        spent[row.step] += time.process_time() - began


def _files(stores: Stores, area: str, number: int, queue: Queue) -> Sequence[FQID]:
    content = b'{"core":{"schema_url":"http://bench.example/sample.json","schema_version":"1.0.0"},'
    content += b'"sample":{"number":%d,"organ":"organ %d","text":"%s"}}' % (
        number,
        number % 7,
        b"word " * 50,
    )
    found = []
    for name, data, kind in (
        (f"{uuid4()}/sample.json", content, "application/json"),
        (f"{uuid4()}/reads.bin", os.urandom(DATA_BYTES), "application/octet-stream"),
    ):
        incoming = Incoming(area, name, kind, iter([data]), len(data), len(data))
        queue.send(areas.receive(stores, incoming, AUTHOR).todo)
        url = keys.area_url(stores.base_url, area, name)
        fqid = FQID(str(uuid4()), version(0))
        queue.send(ingest.deposit(stores, ingest.Deposit(fqid, "aws", url, 1), AUTHOR).todo)
        found.append(fqid)
    return found


@contextmanager
def counting(stores: Stores) -> Iterator[Counter[str]]:
    """Statements, transactions, fsyncs and opened files of this process."""
    calls: Counter[str] = Counter()
    engine = stores.catalog.engine

    def note(what: str) -> Callable[..., None]:
        def noted(*_: Any) -> None:
            calls[what] += 1

        return noted

    heard = {"before_cursor_execute": note("SQL statements"), "commit": note("transactions")}
    for name, listener in heard.items():
        event.listen(engine, name, listener)
    fsync, opened = os.fsync, os.open

    def counted_fsync(descriptor: int) -> None:
        calls["fsyncs of files"] += 1
        fsync(descriptor)

    def counted_open(*given: Any, **more: Any) -> int:
        calls["opened files"] += 1
        return opened(*given, **more)

    os.fsync, os.open = counted_fsync, counted_open  # type: ignore[assignment]
    try:
        yield calls
    finally:
        os.fsync, os.open = fsync, opened
        for name, listener in heard.items():
            event.remove(engine, name, listener)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
