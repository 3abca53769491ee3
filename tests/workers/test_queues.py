"""Actors: queues, priorities and interruption."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import dramatiq
import pytest
from dramatiq.middleware import Middleware

from pipelines.flow import Step
from storage.catalog import Catalog, Tx, jobs, now_us
from storage.model import Job, JobClaim
from storage.stores import Stores
from tests.waiting import until
from workers import PREFETCHED_MESSAGES, actors
from workers.actors import ACTORS, QUEUES
from workers.broker import MemoryBroker, build_middleware
from workers.claims import WorkerContext
from workers.messages import MessageSender
from workers.queues import QUEUE_POLICIES
from workers.runtime import stop_workers

LARGE = Job(Step.VERIFY_LARGE, "aws", "task")


def test_jobs_that_a_caller_waits_for_run_before_others_of_the_process() -> None:
    assert ACTORS[Step.MATCH].priority < ACTORS[Step.INDEX].priority
    assert ACTORS[Step.VERIFY].priority < ACTORS[Step.SYNC].priority


def test_every_step_has_an_actor_and_a_policy() -> None:
    assert set(ACTORS) == set(QUEUE_POLICIES) == set(Step)


def test_dramatiq_retries_no_actor() -> None:
    assert {actor.options["max_retries"] for actor in ACTORS.values()} == {0}


def test_every_actor_has_a_time_limit_of_its_own() -> None:
    limits = {actor.options["time_limit"] for actor in ACTORS.values()}
    # A shorter one would end the claim of a healthy worker.
    longest = max(policy.lease_s for policy in QUEUE_POLICIES.values())
    assert min(limits) > longest * 1000


def test_declare_moves_the_actors_to_the_broker_of_the_process() -> None:
    broker = MemoryBroker()
    actors.declare_actors(broker)
    ACTORS[Step.INDEX].send("aws", "b.1", "r")
    assert broker.depth("index") == 1
    assert set(QUEUES) <= broker.get_declared_queues()
    assert dramatiq.get_broker() is broker


def test_worker_prefetch_is_as_measured() -> None:
    # In a process of its own: the library looks once, when it is imported for the first time.
    asked = "import workers.__main__, dramatiq.worker as w; print(w.QUEUE_PREFETCH)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert int(told.stdout) == PREFETCHED_MESSAGES


@contextmanager
def worker_in_a_long_job(
    stores: Stores, chosen: list[Middleware] | None = None, **options: float
) -> Iterator[dramatiq.Worker]:
    """A worker whose only job would never end."""
    begun = threading.Event()

    def never_end(stores: Stores, claim: JobClaim, heartbeat: object) -> tuple[Job, ...]:
        begun.set()
        while True:
            time.sleep(0.005)

    broker = MemoryBroker(chosen)
    actors.declare_actors(
        broker,
        WorkerContext(stores, MessageSender(broker), dict.fromkeys(Step, never_end), 5, Random(0)),
    )
    with stores.catalog.write() as tx:
        jobs.insert(tx, [LARGE])
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, queues={"verify_large"}, worker_timeout=20, worker_threads=1)
    worker.start()
    broker.enqueue(
        ACTORS[Step.VERIFY_LARGE].message_with_options(args=(LARGE.replica, LARGE.ref), **options)
    )
    assert begun.wait(10)
    try:
        yield worker
    finally:
        worker.stop(timeout=5_000)


def row(stores: Stores) -> tuple[int, str | None, bool]:
    """Attempts, reason, and whether it can be claimed now."""
    with stores.catalog.read() as tx:
        found = tx.exec_driver_sql("SELECT attempts, reason, due_us, token FROM todo").one()
        return found.attempts, found.reason, found.token is None and found.due_us <= now_us(tx)


def test_stopped_worker_releases_long_job_at_once(stores: Stores) -> None:
    with worker_in_a_long_job(stores) as worker:
        worker.stop(timeout=5_000)
        assert row(stores) == (0, "Its worker was stopped.", True)


class SlowCatalog:
    """A catalog whose transactions begin late once a stop was noticed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self.noticed = catalog, threading.Event()

    def write(self, *, durable: bool = True) -> AbstractContextManager[Tx]:
        for _ in range(100 if self.noticed.is_set() else 0):
            time.sleep(0.005)
        return self._catalog.write(durable=durable)


def test_a_stop_of_several_workers_interrupts_a_job_only_once(stores: Stores) -> None:
    """The second time would interrupt giving it back."""
    slow, begun = SlowCatalog(stores.catalog), threading.Event()

    def never_end(stores: Stores, claim: JobClaim, heartbeat: object) -> tuple[Job, ...]:
        begun.set()
        try:
            while True:
                time.sleep(0.005)
        finally:
            slow.noticed.set()

    broker = MemoryBroker()
    ours = replace(stores, catalog=cast(Catalog, slow))
    steps = dict.fromkeys(Step, never_end)
    actors.declare_actors(broker, WorkerContext(ours, MessageSender(broker), steps, 5, Random(0)))
    with stores.catalog.write() as tx:
        jobs.insert(tx, [LARGE])
    workers = [
        dramatiq.Worker(broker, queues={queue}, worker_timeout=20, worker_threads=1)
        for queue in ("index", "sync", "verify_large")
    ]
    for worker in workers:
        worker.start()
    broker.enqueue(ACTORS[Step.VERIFY_LARGE].message(LARGE.replica, LARGE.ref))
    assert begun.wait(10)
    stopping = threading.Thread(target=workers[2].stop)
    stopping.start()
    assert slow.noticed.wait(10)
    stop_workers(workers[:2])
    stopping.join(10)
    assert row(stores) == (0, "Its worker was stopped.", True)


def test_a_job_beyond_its_time_limit_is_retried_with_backoff(stores: Stores) -> None:
    quick = build_middleware(time_limit_check_ms=10)
    with worker_in_a_long_job(stores, quick, time_limit=50):
        until(lambda: row(stores)[1] is not None)
        attempts, reason, claimable = row(stores)
    assert (attempts, claimable) == (1, False)
    assert reason is not None
    assert reason.startswith("TimeLimitExceeded")


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (("-m", "workers"), {"STORE_REDIS_URL": "nonsense"}, "STORE_REDIS_URL: "),
        (("-c", "import web.wsgi"), {}, "STORE_REDIS_URL: must name"),
        (
            ("-c", "import web.wsgi"),
            {"STORE_SEARCH_URL": "ftp://x"},
            "STORE_SEARCH_URL: must be a URL that begins with https:// or http://",
        ),
    ],
)
def test_failed_start_has_reason_in_one_sentence(
    command: tuple[str, ...], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    own = {"STORE_HOME": str(tmp_path), "STORE_SECRET_KEY": "a key of the tests, long"}
    environ = {**os.environ, **own, **settings}
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True)
    assert done.returncode
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
