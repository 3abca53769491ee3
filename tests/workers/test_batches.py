"""Batches: each job of one claim succeeds or fails by itself."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from dramatiq.middleware import Shutdown, TimeLimitExceeded
from dramatiq.middleware.threading import raise_thread_exception

from pipelines import areas, bundles, ingest, replication
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.flow import Step
from pipelines.job_batches import CompletedJobs, run_in_groups, run_until_error
from storage import keys
from storage.catalog import jobs, versions
from storage.errors import ClaimLost, NotFoundError, Unavailable
from storage.model import FQID, REPLICAS, Job, JobClaim
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.bundle_events import make_bundle
from tests.pipelines.test_ingest import AREA, OWNER, deposit, stage
from tests.waiting import until
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.broker import MemoryBroker
from workers.claims import BatchFunction, StepFunction, WorkerContext, run_job
from workers.messages import MessageSender
from workers.queues import BATCH_SIZE, QUEUE_POLICIES

pytestmark = pytest.mark.spec("OPS-19")

Beat = Callable[[int], None]
POISON = "b.2"


@pytest.fixture(autouse=True)
def area(stores: Stores) -> None:
    areas.create(stores, AREA, OWNER)


def real(stores: Stores, broker: MemoryBroker | None = None) -> WorkerContext:
    """A worker of the real steps, in batches."""
    return WorkerContext(
        stores,
        MessageSender(broker or MemoryBroker()),
        STEP_FUNCTIONS,
        5,
        Random(1),
        BATCH_FUNCTIONS,
    )


def fake(stores: Stores, step: StepFunction, batch: BatchFunction) -> WorkerContext:
    """A worker of one step."""
    chains = MessageSender(MemoryBroker())
    return WorkerContext(stores, chains, {Step.INDEX: step}, 3, Random(1), {Step.INDEX: batch})


def add(stores: Stores, count: int, step: Step = Step.INDEX) -> list[Job]:
    rows = [Job(step, "aws", f"b.{number}") for number in range(count)]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows, request_id="r")
    return rows


def finish_one(stores: Stores, claim: JobClaim, beat: Beat) -> tuple[Job, ...]:
    if claim.job.ref == POISON:
        raise NotFoundError("it is poison")
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def finish_batch(stores: Stores, claims: Sequence[JobClaim], beat: Beat) -> CompletedJobs:
    good = [claim for claim in claims if claim.job.ref != POISON]
    with stores.catalog.write() as tx:
        jobs.finish_all(tx, good)
    return {claim.job: () for claim in good}


def failing(error: BaseException) -> BatchFunction:
    def batch(stores: Stores, claims: Sequence[JobClaim], beat: Beat) -> CompletedJobs:
        raise error

    return batch


def left(stores: Stores) -> list[tuple[str, int, str | None]]:
    """Reference, attempts and reason of the jobs that are left."""
    with stores.catalog.read() as tx:
        rows = tx.exec_driver_sql("SELECT ref, attempts, reason FROM todo ORDER BY ref")
        return [(row.ref, row.attempts, row.reason) for row in rows]


def due_now(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")


def test_one_message_runs_all_due_jobs(stores: Stores) -> None:
    rows = add(stores, 5)
    due = [row for row in rows if row.ref != POISON]
    assert run_job(fake(stores, finish_one, finish_batch), due[0])
    assert [ref for ref, *_ in left(stores)] == [POISON]
    assert not run_job(fake(stores, finish_one, finish_batch), due[1])


def test_a_poison_job_in_the_middle_fails_by_itself_with_its_own_backoff(stores: Stores) -> None:
    rows = add(stores, 5)
    working = fake(stores, finish_one, finish_batch)
    assert run_job(working, rows[0])
    assert left(stores) == [(POISON, 1, "it is poison")]
    assert not run_job(working, rows[2]), "it is not due yet"
    due_now(stores)
    run_job(working, rows[2])
    assert left(stores) == [(POISON, 2, "it is poison")]


def test_a_batch_has_a_limit(stores: Stores) -> None:
    rows = add(stores, BATCH_SIZE + 3, Step.MATCH)
    seen: list[int] = []

    def batch(stores: Stores, claims: Sequence[JobClaim], beat: Beat) -> CompletedJobs:
        seen.append(len(claims))
        return finish_batch(stores, claims, beat)

    working = WorkerContext(
        stores, MessageSender(MemoryBroker()), {}, 3, Random(1), {Step.MATCH: batch}
    )
    # The poison stays due: no step runs it here.
    with stores.catalog.write() as tx:
        jobs.delete(tx, rows[2])
    run_job(working, rows[0])
    assert seen == [QUEUE_POLICIES[Step.MATCH].batch]


def test_jobs_of_another_replica_are_in_no_batch(stores: Stores) -> None:
    rows = add(stores, 2)
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row._replace(replica="gcp") for row in rows])
    assert run_job(fake(stores, finish_one, finish_batch), rows[0])
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {(Step.INDEX, "gcp"): 2}
        assert jobs.is_any_due(tx, rows[0]._replace(replica="gcp"))
        assert not jobs.is_any_due(tx, rows[0])


def test_a_batch_is_full_behind_a_backlog_of_the_other_replica(stores: Stores) -> None:
    batch = QUEUE_POLICIES[Step.INDEX].batch
    with stores.catalog.write() as tx:
        jobs.insert(tx, [Job(Step.INDEX, "aws", f"a.{number}") for number in range(1_500)])
        # Attempted before: those are due first, and in no batch.
        tx.exec_driver_sql("UPDATE todo SET attempts = 1 WHERE ref < 'a.5'")
    behind = [Job(Step.INDEX, "gcp", f"g.{number}") for number in range(batch)]
    with stores.catalog.write() as tx:
        jobs.insert(tx, behind)
    run_job(fake(stores, finish_one, finish_batch), behind[0])
    assert [ref for ref, *_ in left(stores) if ref.startswith("g")] == []


def test_jobs_that_were_attempted_before_are_in_no_batch(stores: Stores) -> None:
    """They may be what killed the worker."""
    rows = add(stores, 4)
    with stores.catalog.write() as tx:
        assert jobs.claim(tx, rows[1], token="dead", lease_s=0, max_claims=3)
    seen: list[list[str]] = []

    def batch(stores: Stores, claims: Sequence[JobClaim], beat: Beat) -> CompletedJobs:
        seen.append(sorted(claim.job.ref for claim in claims))
        return {}

    run_job(fake(stores, finish_one, batch), rows[0])
    run_job(fake(stores, finish_one, batch), rows[1])
    assert seen == [["b.0", "b.2", "b.3"]]
    assert [ref for ref, *_ in left(stores)] == [POISON]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("oh"), ClaimLost("gone"), NotFoundError("not there")]
)
def test_a_batch_that_fails_is_run_one_by_one(stores: Stores, error: Exception) -> None:
    rows = add(stores, 4)
    assert run_job(fake(stores, finish_one, failing(error)), rows[0])
    assert left(stores) == [(POISON, 1, "it is poison")]


def test_slow_batch_is_released_to_run_one_by_one(stores: Stores) -> None:
    rows = add(stores, 4)
    assert not run_job(fake(stores, finish_one, failing(TimeLimitExceeded())), rows[0])
    assert left(stores) == [(row.ref, 1, "Its batch took too long.") for row in rows]
    for row in rows:
        run_job(fake(stores, finish_one, failing(AssertionError())), row)
    assert [ref for ref, *_ in left(stores)] == [POISON]


def test_engine_outage_releases_batch_without_counting(stores: Stores) -> None:
    rows = add(stores, 3)
    assert not run_job(fake(stores, finish_one, failing(Unavailable("away"))), rows[0])
    assert left(stores) == [(row.ref, 0, "away") for row in rows]


def test_a_crash_in_the_middle_loses_nothing(stores: Stores) -> None:
    rows = add(stores, 3)

    class Crash(BaseException):
        """The process ends."""

    with pytest.raises(Crash):
        run_job(fake(stores, finish_one, failing(Crash())), rows[0])
    assert [ref for ref, *_ in left(stores)] == ["b.0", "b.1", "b.2"]
    due_now(stores)
    for row in rows:
        run_job(fake(stores, finish_one, finish_batch), row)
    assert left(stores) == [(POISON, 2, "it is poison")]


def test_job_requested_again_runs_again(stores: Stores) -> None:
    rows = add(stores, 3)

    def batch(stores: Stores, claims: Sequence[JobClaim], beat: Beat) -> CompletedJobs:
        with stores.catalog.write() as tx:
            jobs.insert(tx, [rows[1]])
        return finish_batch(stores, claims, beat)

    run_job(fake(stores, finish_one, batch), rows[0])
    assert [ref for ref, *_ in left(stores)] == ["b.1", POISON]
    assert run_job(fake(stores, finish_one, finish_batch), rows[1])


def test_the_messages_of_jobs_that_were_done_together_find_nothing(stores: Stores) -> None:
    rows = [row for row in add(stores, 4) if row.ref != POISON]
    with stores.catalog.write() as tx:
        jobs.delete(tx, Job(Step.INDEX, "aws", POISON))
    working = fake(stores, finish_one, finish_batch)
    assert run_job(working, rows[0])
    assert not run_job(working, rows[1])
    with stores.catalog.write() as tx:
        jobs.insert(tx, [rows[2]])
    assert run_job(working, rows[2]), "needed again, with a message of its own"


def test_batch_of_jobs_gets_one_message() -> None:
    broker = MemoryBroker()
    rows = [Job(Step.SYNC, "gcp", f"file:{number}") for number in range(BATCH_SIZE + 1)]
    MessageSender(broker).send([*rows, Job(Step.SYNC, "aws", "file:0")])
    assert broker.depth("sync") == 3
    MessageSender(broker).send([Job(Step.CHECKOUT, "aws", str(number)) for number in range(3)])
    assert broker.depth("checkout") == 3


def task_states(stores: Stores, accepted: Sequence[ingest.AcceptedIngest]) -> list[tuple[str, Any]]:
    tasks = [ingest.get_task(stores, str(one.task_id)) for one in accepted]
    return [(task.state, task.cause and task.cause["code"]) for task in tasks]


def test_verifies_files_together_except_mismatching_ones(stores: Stores) -> None:
    lie = {"store-sha1": "0" * 40}
    urls = [
        stage(stores, b"%d" % number, name=f"{number}.txt", lies=lie if number == 2 else None)
        for number in range(5)
    ]
    accepted = [deposit(stores, url) for url in urls]
    # Two that are the same bytes, and one whose source is gone.
    accepted.append(deposit(stores, urls[0]))
    accepted.append(deposit(stores, stage(stores, b"gone", name="gone.txt")))
    stores.areas.delete(keys.area_file_key(AREA, "gone.txt"))
    broker = MemoryBroker()
    assert run_job(real(stores, broker), accepted[0].jobs[0])
    well, wrong = ("SUCCEEDED", None), ("FAILED", "checksum_mismatch")
    states = task_states(stores, accepted)
    assert states[:6] == [well, well, wrong, well, well, well]
    assert states[6][0] == "FAILED"
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {(Step.SYNC, "gcp"): 5}


class SlowSources:
    """Sources of which one cannot be read until `ready`."""

    def __init__(self, inner: Any, url: str, ready: Event) -> None:
        self._inner, self._url, self._ready = inner, url, ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, url: str) -> Any:
        source = self._inner.open(url)
        return SlowBucket(source, source.head().pin, self._ready) if url == self._url else source


def test_slow_source_delays_no_other(stores: Stores) -> None:
    urls = [stage(stores, b"%d" % number, name=f"{number}.txt") for number in range(4)]
    accepted = [deposit(stores, url) for url in urls]
    ready = Event()
    sources: Any = SlowSources(stores.sources, urls[0], ready)
    slow = real(replace(stores, sources=sources))
    worker = Thread(target=run_job, args=(slow, accepted[1].jobs[0]))
    worker.start()
    states = ["RUNNING", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]
    try:
        until(lambda: [state for state, _ in task_states(stores, accepted)] == states)
    finally:
        ready.set()
        worker.join()
    assert task_states(stores, accepted) == [("SUCCEEDED", None)] * 4


def test_copies_files_together_except_missing_ones(stores: Stores) -> None:
    made = [make_file(stores, b"%d" % number) for number in range(4)]
    gone = made[1]
    with stores.catalog.read() as tx:
        (sha256,) = tx.exec_driver_sql(
            "SELECT sha256 FROM blobs JOIN files ON files.blob_id = blobs.id"
            f" WHERE files.uuid = '{gone.uuid}'"
        ).one()
    stores.replicas["aws"].delete(keys.blob_key(sha256))
    rows = [Job(Step.SYNC, "gcp", f"file:{fqid}") for fqid in made]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows)
    assert run_job(real(stores), rows[0])
    with stores.catalog.read() as tx:
        seen = versions.filter_published(tx, "file", "gcp", made)
    assert seen == set(made) - {gone}
    ((ref, attempts, _),) = left(stores)
    assert (ref, attempts) == (f"file:{gone}", 1)


def test_finished_jobs_do_not_wait_for_slow_one() -> None:
    slow = Event()

    def double(number: int) -> int:
        if number == 2:
            assert slow.wait(10)
        if number == 3:
            raise NotFoundError("it is gone")
        return 2 * number

    groups = []

    def complete(group: dict[int, int]) -> CompletedJobs:
        groups.append(group)
        slow.set()
        return {Job("test", "aws", str(key)): () for key in group}

    done = run_in_groups(double, range(5), complete, step="test", replica="aws", parallel=5)
    assert groups == [{0: 0, 1: 2, 4: 8}, {2: 4}]
    assert {row.ref for row in done} == {"0", "1", "2", "4"}


class SlowBucket:
    """A bucket in which one object cannot be read until `ready`."""

    def __init__(self, inner: Any, key: str, ready: Event) -> None:
        self._inner, self._key, self._ready = inner, key, ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, key: str, **options: Any) -> Iterator[bytes]:
        assert key != self._key or self._ready.wait()
        yield from self._inner.read(key, **options)


def test_slow_copy_delays_no_other(stores: Stores) -> None:
    made = [make_file(stores, b"%d" % number) for number in range(4)]
    rows = [Job(Step.SYNC, "gcp", f"file:{fqid}") for fqid in made]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows)
        (sha256,) = tx.exec_driver_sql(
            "SELECT sha256 FROM blobs JOIN files ON files.blob_id = blobs.id"
            f" WHERE files.uuid = '{made[0].uuid}'"
        ).one()
    ready = Event()
    bucket: Any = SlowBucket(stores.replicas["aws"], keys.blob_key(sha256), ready)
    slow = replace(stores, replicas={**stores.replicas, "aws": bucket})
    worker = Thread(target=run_job, args=(real(slow), rows[0]))
    worker.start()
    try:
        until(lambda: len(left(stores)) == 1)
        assert left(stores)[0][0] == f"file:{made[0]}"
    finally:
        ready.set()
        worker.join()
    assert left(stores) == []


def test_slow_metadata_delays_no_other_bundle(stores: Stores) -> None:
    made = [make_bundle(stores, number) for number in range(4)]
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM todo WHERE step <> 'index'")
        (sha256,) = tx.exec_driver_sql(
            "SELECT sha256 FROM blobs JOIN files ON files.blob_id = blobs.id ORDER BY files.id"
        ).first() or ("",)
    ready = Event()
    bucket: Any = SlowBucket(stores.replicas["aws"], keys.blob_key(sha256), ready)
    slow = replace(stores, replicas={**stores.replicas, "aws": bucket})
    worker = Thread(target=run_job, args=(real(slow), Job(Step.INDEX, "aws", f"bundle:{made[0]}")))
    worker.start()
    try:
        until(lambda: indexed(stores) == set(made[1:]))
    finally:
        ready.set()
        worker.join()
    assert indexed(stores) == set(made)


def indexed(stores: Stores) -> set[FQID]:
    return set(stores.search["aws"].list_ids())


def test_bundles_are_synced_together_once_their_files_are_there(stores: Stores) -> None:
    made = [make_bundle(stores, number) for number in range(3)]
    lone = make_file(stores, b"only in aws")
    entries = [NewEntry("a.bin", lone, False)]
    new = BundleDraft(FQID(new_uuid(), version(9)), "aws", 1, entries)
    made.append(bundles.put(stores, new, OWNER).fqid)
    rows = [Job(Step.SYNC, "gcp", f"bundle:{fqid}") for fqid in made]
    broker = MemoryBroker()
    assert run_job(real(stores, broker), rows[0])
    with stores.catalog.read() as tx:
        assert versions.filter_published(tx, "bundle", "gcp", made) == set(made)
        backlog = jobs.count_open(tx)
    assert (backlog[Step.INDEX, "gcp"], backlog[Step.MATCH, "gcp"]) == (4, 4)
    for fqid in made:
        key = keys.record_key("bundle", fqid)
        (here, there) = (b"".join(stores.replicas[name].read(key)) for name in REPLICAS)
        assert here == there


def test_bundles_are_indexed_together_and_their_events_matched(stores: Stores) -> None:
    made = [make_bundle(stores, number) for number in range(4)]
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM todo WHERE step = 'sync'")
    working = real(stores)
    for _ in range(3):
        with stores.catalog.write() as tx:
            rows = [
                row
                for step in (Step.INDEX, Step.MATCH, Step.PERCOLATE)
                for row, *_ in jobs.take_due(tx, step, limit=9, resend=True)
            ]
        for row in rows:
            run_job(working, row)
    assert left(stores) == []
    assert set(stores.search["aws"].list_ids()) == set(made)


def test_first_error_stops_pending_work() -> None:
    begun: list[int] = []

    def work_on(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise NotFoundError("it is poison")

    with ThreadPoolExecutor(2) as pool:
        run_until_error(pool, begun.append, [0, 1], parallel=2)
        assert sorted(begun) == [0, 1]
        begun.clear()
        with pytest.raises(NotFoundError):
            run_until_error(pool, work_on, range(9), parallel=1)
    assert begun == [0, 1, 2]


def test_interrupted_job_ends_its_threads_soon() -> None:
    begun: list[int] = []

    def work_on(item: int) -> None:
        begun.append(item)
        time.sleep(0.05)

    def run() -> None:
        with ThreadPoolExecutor(2) as pool, suppress(Shutdown):
            run_until_error(pool, work_on, range(100), parallel=2)

    thread = Thread(target=run)
    thread.start()
    until(lambda: len(begun) > 4)
    assert thread.ident is not None
    raise_thread_exception(thread.ident, Shutdown)
    thread.join(10)
    assert not thread.is_alive()
    assert len(begun) < 60


@pytest.mark.parametrize(("error", "reason"), [(TimeLimitExceeded(), "Time"), (Shutdown(), "Its")])
def test_jobs_after_interrupted_one_are_released(
    stores: Stores, error: BaseException, reason: str
) -> None:
    rows = add(stores, 4)

    def step(stores: Stores, claim: JobClaim, beat: Beat) -> tuple[Job, ...]:
        if claim.job == rows[1]:
            raise error
        return finish_one(stores, claim, beat)

    assert run_job(fake(stores, step, failing(ValueError("no batch"))), rows[0])
    interrupted, *others = left(stores)
    assert interrupted[0] == rows[1].ref
    assert (interrupted[2] or "").startswith(reason)
    assert [(ref, attempts) for ref, attempts, _ in others] == [(r.ref, 0) for r in rows[2:]]


def test_batch_leaves_out_bundles_whose_files_are_missing(stores: Stores) -> None:
    made = []
    for number in range(2):
        entries = [NewEntry("a.bin", make_file(stores, b"%d" % number), False)]
        draft = BundleDraft(FQID(new_uuid(), version(number)), "aws", 1, entries)
        made.append(bundles.put(stores, draft, OWNER).fqid)
    rows = [Job(Step.SYNC, "gcp", f"bundle:{fqid}") for fqid in made]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows)
        claims = [jobs.claim(tx, row, token="t", lease_s=60, max_claims=5) for row in rows]

    assert replication.sync_versions(stores, [one for one in claims if one], lambda _n: None) == {}

    with stores.catalog.read() as tx:
        assert versions.filter_published(tx, "bundle", "gcp", made) == set()
