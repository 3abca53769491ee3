"""What the jobs of one small bundle cost in a worker: processor time, SQL, transactions, fsyncs.

All jobs run in this thread, on embedded stores, as a worker runs them: from the claim to the
messages of what follows; one by one, and in batches.
"""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from uuid import uuid4

from bench.harness import Figures, Measure
from bench.stores import AUTHOR, VERSION, counting, embedded_stores
from pipelines import areas, bundles, ingest
from pipelines.areas import IncomingFile
from pipelines.bundles import BundleDraft, NewEntry
from storage import keys
from storage.catalog import jobs
from storage.model import FQID, Job
from storage.stores import Stores
from workers import messages
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

DATA_BYTES = 20_000
MAX_CLAIMS = 5


class LocalQueue:
    """Messages in the order in which they were sent, as one worker takes them."""

    def __init__(self, *, batches: bool) -> None:
        self.rows: deque[Job] = deque()
        self.batches = batches

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Remember the messages; in batches one is enough for several jobs."""
        self.rows.extend(messages.select_batch_heads(rows) if self.batches else rows)


@contextmanager
def prepare(count: int = 20) -> Iterator[Measure]:
    """Run the jobs of so many bundles a round."""
    with embedded_stores() as (_, stores):
        area = str(uuid4())
        areas.create(stores, area, AUTHOR)
        _run(stores, area, 2, batches=True)

        def measure() -> Figures:
            return {
                **_run(stores, area, count, batches=False),
                **_run(stores, area, count, batches=True),
            }

        yield measure


def _run(stores: Stores, area: str, count: int, *, batches: bool) -> Figures:
    """Deposit bundles and run all of their jobs; return what one bundle cost."""
    queue = LocalQueue(batches=batches)
    worker = WorkerContext(
        stores, queue, STEP_FUNCTIONS, MAX_CLAIMS, Random(1), BATCH_FUNCTIONS if batches else {}
    )
    spent: Counter[str] = Counter()
    made = [_deposit(stores, area, number, queue) for number in range(count)]
    counted = _drain(worker, queue, spent)
    for metadata, data in made:
        entries = [NewEntry("sample.json", metadata, True), NewEntry("reads.bin", data, False)]
        draft = BundleDraft(FQID(str(uuid4()), VERSION), "aws", 1, entries)
        queue.send(bundles.put(stores, draft, AUTHOR).jobs)
    counted += _drain(worker, queue, spent)
    with stores.catalog.read() as tx:
        assert not jobs.count_open(tx)
        assert not jobs.list_dead(tx)
    how = "in batches" if batches else "one by one"
    return {
        f"{how}: processor ms": sum(spent.values()) / count / 1e6,
        **{f"  {how}: {step} ms": spent[step] / count / 1e6 for step in sorted(spent)},
        f"  {how}: SQL statements": counted["statements"] / count,
        f"  {how}: write transactions": counted["BEGIN IMMEDIATE"] / count,
        f"  {how}: fsyncs": counted["syncs"] / count,
    }


def _drain(worker: WorkerContext, queue: LocalQueue, spent: Counter[str]) -> Counter[str]:
    """Run all jobs; add the nanoseconds of each step to `spent`, return what was counted."""
    with counting(worker.stores) as counted:
        while queue.rows:
            row = queue.rows.popleft()
            began = time.process_time_ns()
            run_job(worker, row)
            spent[row.step] += time.process_time_ns() - began
    return counted


def _deposit(stores: Stores, area: str, number: int, queue: LocalQueue) -> list[FQID]:
    """Upload a file with metadata and one without, and start their ingest."""
    content = {
        "core": {"schema_url": "http://bench.example/sample.json", "schema_version": "1.0.0"},
        "sample": {"id": str(uuid4()), "organ": f"organ {number % 7}", "text": "word " * 50},
    }
    found = []
    for name, data, content_type in (
        (f"{uuid4()}/sample.json", json.dumps(content).encode(), "application/json"),
        (f"{uuid4()}/reads.bin", os.urandom(DATA_BYTES), "application/octet-stream"),
    ):
        incoming = IncomingFile(area, name, content_type, iter([data]), len(data), len(data))
        queue.send(areas.receive_file(stores, incoming, AUTHOR).jobs)
        fqid = FQID(str(uuid4()), VERSION)
        request = ingest.IngestRequest(fqid, "aws", keys.area_url(stores.base_url, area, name), 1)
        queue.send(ingest.start_task(stores, request, AUTHOR).jobs)
        found.append(fqid)
    return found
