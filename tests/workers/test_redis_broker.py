"""The same over Redis: messages reach actors, a dead worker's are taken over, FLUSHALL loses none."""

import threading
from collections.abc import Iterator
from random import Random

import pytest
from dramatiq import Worker

from ops.fakeredis_server import QueueServer
from pipelines.flow import Step
from storage.catalog import todo
from storage.model import Claim, Todo
from storage.notices import RedisNotices
from storage.stores import Stores
from tests.patience import until
from workers import actors, broker
from workers.chains import Chains
from workers.claims import Working


@pytest.fixture
def redis_url() -> Iterator[str]:
    server = QueueServer("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{server.server_address[1]}/0"
    server.shutdown()
    server.server_close()
    thread.join(5)


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
    messages = broker.connect(redis_url, notices)
    working = Working(stores, Chains(messages), dict.fromkeys(Step, finish), 5, Random(0))
    rows = [Todo(Step.INDEX, "aws", f"b.{number}") for number in range(20)]
    with stores.catalog.write() as tx:
        todo.add(tx, rows)
    working.chains.send(rows, "r")
    assert messages.depth("index") == 20
    messages.client.flushall()
    assert messages.depth("index") == 0
    with stores.catalog.write() as tx:
        again = todo.due(tx, Step.INDEX, limit=50, resend=True)
    working.chains.send([row for row, _ in again], "r")
    actors.declare(messages, working)
    worker = Worker(messages, queues={"index"}, worker_timeout=20, worker_threads=2)
    worker.start()
    try:
        settle(stores)
    finally:
        worker.stop()
        messages.close()
        notices.close()
