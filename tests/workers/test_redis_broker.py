"""The Redis broker: messages arrive, dead workers are replaced, FLUSHALL loses nothing.

On a server in memory, on a private one, and on the one that is named.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from dramatiq import Worker

from pipelines.flow import Step
from storage.catalog import jobs
from storage.model import Job, JobClaim
from storage.redis_engines import RedisPubSub
from storage.stores import Stores
from tests import redis_server
from tests.redis_server import PROGRAM
from tests.waiting import until
from workers import actors, redis_broker
from workers.claims import WorkerContext
from workers.messages import MessageSender

pytestmark = pytest.mark.spec("OPS-19")

NAMED = os.environ.get("STORE_TEST_REDIS", "")
"""A server that may be emptied."""
SERVERS = ["in memory", *(["private"] if PROGRAM else []), *(["named"] if NAMED else [])]


@pytest.fixture(params=SERVERS)
def redis_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "named":
        yield NAMED
    elif request.param == "private":
        with redis_server.serving(tmp_path) as real:
            yield real.url
    else:
        with redis_server.fake() as port:
            yield f"redis://127.0.0.1:{port}/0"


def finish(stores: Stores, claim: JobClaim, beat: object) -> tuple[Job, ...]:
    with stores.catalog.write() as tx:
        jobs.finish(tx, claim)
    return ()


def settle(stores: Stores) -> None:
    def done() -> bool:
        with stores.catalog.read() as tx:
            return not jobs.count_open(tx)

    until(done)


def test_rows_are_done_over_redis_also_when_it_was_emptied(stores: Stores, redis_url: str) -> None:
    notices = RedisPubSub(redis_url)
    messages = redis_broker.connect_broker(redis_url, notices)
    working = WorkerContext(
        stores, MessageSender(messages), dict.fromkeys(Step, finish), 5, Random(0)
    )
    rows = [Job(Step.SYNC_LARGE, "aws", f"b.{number}") for number in range(20)]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows)
    working.sender.send(rows, "r")
    assert messages.depth("sync_large") == 20
    messages.client.flushall()
    assert messages.depth("sync_large") == 0
    with stores.catalog.write() as tx:
        again = jobs.take_due(tx, Step.SYNC_LARGE, limit=50, resend=True)
    working.sender.send([row for row, *_ in again], "r")
    actors.declare_actors(messages, working)
    worker = Worker(messages, queues={"sync_large"}, worker_timeout=20, worker_threads=2)
    worker.start()
    try:
        settle(stores)
    finally:
        worker.stop()
        messages.close()
        notices.close()
