"""The same over Redis: messages reach actors, a dead worker's are taken over, FLUSHALL loses none.

On a server in memory, on a private one, and on the one that is named.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from dramatiq import Worker

from pipelines.flow import Step
from storage.catalog import todo
from storage.model import Claim, Todo
from storage.notices_redis import RedisNotices
from storage.stores import Stores
from tests import redis_server
from tests.patience import until
from tests.redis_server import PROGRAM
from workers import actors, redis_broker
from workers.chains import Chains
from workers.claims import Working

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


def finish(stores: Stores, claim: Claim, beat: object) -> tuple[Todo, ...]:
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def settle(stores: Stores) -> None:
    def done() -> bool:
        with stores.catalog.read() as tx:
            return not todo.backlog(tx)

    until(done)


def test_rows_are_done_over_redis_also_when_it_was_emptied(stores: Stores, redis_url: str) -> None:
    notices = RedisNotices(redis_url)
    messages = redis_broker.connect(redis_url, notices)
    working = Working(stores, Chains(messages), dict.fromkeys(Step, finish), 5, Random(0))
    rows = [Todo(Step.SYNC_LARGE, "aws", f"b.{number}") for number in range(20)]
    with stores.catalog.write() as tx:
        todo.add(tx, rows)
    working.chains.send(rows, "r")
    assert messages.depth("sync_large") == 20
    messages.client.flushall()
    assert messages.depth("sync_large") == 0
    with stores.catalog.write() as tx:
        again = todo.due(tx, Step.SYNC_LARGE, limit=50, resend=True)
    working.chains.send([row for row, *_ in again], "r")
    actors.declare(messages, working)
    worker = Worker(messages, queues={"sync_large"}, worker_timeout=20, worker_threads=2)
    worker.start()
    try:
        settle(stores)
    finally:
        worker.stop()
        messages.close()
        notices.close()
