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
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from sqlalchemy import event

from bench import stand
from bench.rows import version
from pipelines import areas, ingest
from pipelines import bundles as pipelines_bundles
from pipelines.areas import IncomingFile
from pipelines.bundles import BundleDraft, NewEntry
from storage import keys
from storage.catalog import jobs
from storage.model import FQID, Job
from storage.stores import Stores
from workers import messages
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

AUTHOR = "bench@example.org"
DATA_BYTES = 20_000


class Queue:
    """Messages in the order in which they were sent, as one worker takes them."""

    def __init__(self, *, together: bool) -> None:
        self.rows: deque[Job] = deque()
        self.together = together

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Remember the messages: in batches, one is enough for several jobs."""
        self.rows.extend(messages.select_batch_heads(rows) if self.together else rows)


@dataclass
class Meter:
    """What jobs cost; off while bundles are deposited."""

    profile: cProfile.Profile | None = None
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)
    is_on: bool = False

    def count(self, what: str) -> None:
        """One more, if it is a job's."""
        if self.is_on:
            self.calls[what] += 1

    def run(self, working: WorkerContext, row: Job) -> None:
        """Measure what a message leads to."""
        self.is_on = True
        if self.profile is not None:
            self.profile.enable()
        began = time.process_time()
        run_job(working, row)
        self.spent[row.step] += time.process_time() - began
        if self.profile is not None:
            self.profile.disable()
        self.is_on = False

    def print(self, how: str, bundles: int) -> None:
        """Print it per bundle."""
        total = sum(self.spent.values()) * 1e3 / bundles
        print(f"{how}: processor ms per bundle: {total:.1f}")
        steps = sorted(self.spent.items(), key=lambda item: -item[1])
        print("  " + ", ".join(f"{step} {seconds * 1e3 / bundles:.2f}" for step, seconds in steps))
        print("  " + ", ".join(f"{n / bundles:.1f} {what}" for what, n in self.calls.items()))
        if self.profile is not None:
            pstats.Stats(self.profile).sort_stats("cumulative").print_stats(90)
            pstats.Stats(self.profile).sort_stats("tottime").print_stats(45)


def main(bundles: int = 40, profiled: int = 0) -> None:
    """Print the cost per bundle by step, and what left the process: one by one, and in batches."""
    print(f"{bundles} bundles of 2 files (JSON, 20 kB), one thread")
    with stand.stores() as (_, stores):
        area = str(uuid4())
        areas.create(stores, area, AUTHOR)
        _run(stores, area, 2, Meter(), together=True)
        for together in (False, True):
            meter = Meter(cProfile.Profile() if profiled else None)
            with counting(stores, meter):
                _run(stores, area, bundles, meter, together=together)
            meter.print("in batches" if together else "one by one", bundles)


def _run(stores: Stores, area: str, bundles: int, meter: Meter, *, together: bool) -> None:
    """Deposit bundles and do all of their jobs."""
    queue = Queue(together=together)
    made = [_files(stores, area, number, queue) for number in range(bundles)]
    working = WorkerContext(
        stores, queue, STEP_FUNCTIONS, 5, Random(1), BATCH_FUNCTIONS if together else {}
    )
    _drain(working, queue, meter)
    for metadata, data in made:
        entries = [NewEntry("sample.json", metadata, True), NewEntry("reads.bin", data, False)]
        new = BundleDraft(FQID(str(uuid4()), version(0)), "aws", 1, entries)
        queue.send(pipelines_bundles.put(stores, new, AUTHOR).jobs)
    _drain(working, queue, meter)
    with stores.catalog.read() as tx:
        assert not jobs.count_open(tx)
        assert not jobs.list_dead(tx)


def _drain(working: WorkerContext, queue: Queue, meter: Meter) -> None:
    while queue.rows:
        meter.run(working, queue.rows.popleft())


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
        incoming = IncomingFile(area, name, kind, iter([data]), len(data), len(data))
        queue.send(areas.receive_file(stores, incoming, AUTHOR).jobs)
        url = keys.area_url(stores.base_url, area, name)
        fqid = FQID(str(uuid4()), version(0))
        queue.send(
            ingest.start_task(stores, ingest.IngestRequest(fqid, "aws", url, 1), AUTHOR).jobs
        )
        found.append(fqid)
    return found


@contextmanager
def counting(stores: Stores, meter: Meter) -> Iterator[None]:
    """Count statements, transactions, fsyncs and opened files of this process."""
    engine = stores.catalog.engine

    def note(what: str) -> Callable[..., None]:
        return lambda *_: meter.count(what)

    heard = {"before_cursor_execute": note("SQL statements"), "commit": note("transactions")}
    for name, listener in heard.items():
        event.listen(engine, name, listener)
    fsync, opened = os.fsync, os.open

    def counted_fsync(descriptor: int) -> None:
        meter.count("fsyncs of files")
        fsync(descriptor)

    def counted_open(*given: Any, **more: Any) -> int:
        meter.count("opened files")
        return opened(*given, **more)

    os.fsync, os.open = counted_fsync, counted_open  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync, os.open = fsync, opened
        for name, listener in heard.items():
            event.remove(engine, name, listener)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
