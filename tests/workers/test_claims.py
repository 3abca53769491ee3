"""Running a job: done, postponed, dead, lost, and the messages that follow."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import event

from pipelines.flow import Step
from pipelines.leases import make_heartbeat
from storage.catalog import Catalog, jobs, now_us
from storage.errors import DomainError, NotFoundError, NotReady, Unavailable
from storage.metrics import REGISTRY
from storage.model import Job, JobClaim
from storage.stores import Stores
from tests.builders import build_stores
from workers.broker import MemoryBroker
from workers.claims import StepFunction, WorkerContext, run_job
from workers.messages import MessageSender

pytestmark = pytest.mark.spec("OPS-19")

ROW = Job(Step.INDEX, "aws", "b.1")
NEXT = Job(Step.PERCOLATE, "aws", "event")


@pytest.fixture
def stores(tmp_path: Path, catalog: Catalog) -> Stores:
    with catalog.write() as tx:
        jobs.insert(tx, [ROW], request_id="r")
    return build_stores(tmp_path, catalog)


def working(
    stores: Stores, step: StepFunction, broker: MemoryBroker | None = None
) -> WorkerContext:
    return WorkerContext(
        stores, MessageSender(broker or MemoryBroker()), {Step.INDEX: step}, 3, Random(1)
    )


def finishing(stores: Stores, claim: JobClaim, beat: Callable[[int], None]) -> tuple[Job, ...]:
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
        jobs.insert(tx, [NEXT], request_id=claim.request_id)
    return (NEXT,)


def failing(error: Exception) -> StepFunction:
    def step(stores: Stores, claim: JobClaim, beat: Callable[[int], None]) -> tuple[Job, ...]:
        raise error

    return step


def due_now(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET due_us = 0")


def reasons(stores: Stores) -> list[str]:
    with stores.catalog.read() as tx:
        return [row.reason for row in jobs.list_dead(tx)]


def test_a_row_is_done_once_and_what_follows_is_sent(stores: Stores) -> None:
    broker = MemoryBroker()
    assert run_job(working(stores, finishing, broker), ROW)
    assert broker.depth("match") == 1
    assert not run_job(working(stores, finishing, broker), ROW)
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {(Step.PERCOLATE, "aws"): 1}


def test_a_failure_waits_longer_and_is_parked_in_the_end(stores: Stores) -> None:
    broken = working(stores, failing(NotFoundError("no such thing")))
    for _ in range(3):
        assert not run_job(broken, ROW)
        assert not run_job(working(stores, finishing), ROW), "it is not due yet"
        due_now(stores)
    assert reasons(stores) == ["no such thing"]


def test_a_surprise_is_a_failure_too(stores: Stores) -> None:
    broken = working(stores, failing(ZeroDivisionError("oh")))
    for _ in range(3):
        run_job(broken, ROW)
        due_now(stores)
    assert reasons(stores) == ["ZeroDivisionError: oh"]


def test_engine_outage_counts_as_no_failure(stores: Stores) -> None:
    away = working(stores, failing(Unavailable("the bucket is away")))
    for _ in range(10):
        run_job(away, ROW)
        due_now(stores)
    assert reasons(stores) == []
    assert run_job(working(stores, finishing), ROW)


@pytest.mark.parametrize(
    ("error", "least_s", "most_s"),
    [
        (Unavailable("away", retry_after_s=1), 2, 21),
        (NotReady("not yet", retry_after_s=1), 0.7, 2),
        (NotReady("not yet", retry_after_s=600), 480, 730),
    ],
)
def test_waiting_job_names_its_delay(
    stores: Stores, error: DomainError, least_s: float, most_s: float
) -> None:
    with stores.catalog.read() as tx:
        before = now_us(tx)
    run_job(working(stores, failing(error)), ROW)
    with stores.catalog.read() as tx:
        due_us = tx.exec_driver_sql("SELECT due_us FROM todo").scalar_one()
        assert tx.exec_driver_sql("SELECT attempts FROM todo").scalar_one() == 0
    assert least_s * 1e6 <= due_us - before < most_s * 1e6


def test_a_lost_claim_has_no_effect(stores: Stores) -> None:
    def robbed(stores: Stores, claim: JobClaim, beat: Callable[[int], None]) -> tuple[Job, ...]:
        with stores.catalog.write() as tx:
            jobs.insert(tx, [ROW])
        return finishing(stores, claim, beat)

    broker = MemoryBroker()
    before = REGISTRY.get_sample_value("store_claims_lost_total", {"step": ROW.step}) or 0
    assert not run_job(working(stores, robbed, broker), ROW)
    assert broker.depth("match") == 0
    lost = REGISTRY.get_sample_value("store_claims_lost_total", {"step": ROW.step})
    assert lost == before + 1
    assert run_job(working(stores, finishing), ROW), "it is to be done again"


def test_sending_never_fails_for_its_caller() -> None:
    class Broken(MemoryBroker):
        def depth(self, queue_name: str) -> int:
            raise ConnectionError("away")

    MessageSender(Broken()).send([ROW], "r")


def test_a_deep_queue_is_left_to_the_clock() -> None:
    class Deep(MemoryBroker):
        def depth(self, queue_name: str) -> int:
            return 1_000_000

    broker = Deep()
    MessageSender(broker).send([ROW], "r")
    assert "index" not in broker.queues


def test_a_heartbeat_and_the_completion_of_a_batch_wait_for_each_other(stores: Stores) -> None:
    """Both lock the same rows; in another order each, PostgreSQL would end one of them."""
    rows = [Job(Step.INDEX, "aws", ref) for ref in ("z", "a")]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows)
        claimed = [jobs.claim(tx, row, token="t", lease_s=30, max_claims=5) for row in rows]
    claims = [claim for claim in claimed if claim is not None]
    renewed = Event()

    @event.listens_for(stores.catalog.engine, "after_cursor_execute")
    def renew_slowly(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE todo SET due_us") and not renewed.is_set():
            renewed.set()
            time.sleep(0.3)

    beat = make_heartbeat(stores, claims, lease_s=0)
    renewing = Thread(target=beat, args=(1,))
    renewing.start()
    assert renewed.wait(10)
    with stores.catalog.write() as tx:
        jobs.finish_all(tx, claims)
    renewing.join(10)
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {(Step.INDEX, "aws"): 1}
