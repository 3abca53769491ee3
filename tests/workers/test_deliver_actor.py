"""The deliver actor on a real worker: messages, shutdown, watchdog."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dramatiq
import pytest
from dramatiq.asyncio import get_event_loop_thread
from sqlalchemy import text

from config import Settings
from pipelines.flow import DELIVER, delivery_jobs
from storage.metrics import REGISTRY
from storage.stores import Stores
from tests.subscription_builders import states, subscribe, tell
from tests.waiting import PATIENCE_S, until
from workers import deliver
from workers.broker import MemoryBroker
from workers.deliver import Watchdog
from workers.messages import MessageSender
from workers.scheduler import Scheduler


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def working(settings: Settings, stores: Stores, broker: MemoryBroker) -> Iterator[MessageSender]:
    """A worker of the queue, and beside it another worker of the same process."""
    chains = MessageSender(broker)
    loopback = replace(settings, allow_private_callbacks=True)
    other = dramatiq.Worker(broker, queues={"index"}, worker_timeout=10, worker_threads=1)
    workers = [deliver.build_worker(broker, stores, chains, loopback, threads=2), other]
    for worker in workers:
        worker.start()
    try:
        yield chains
    finally:
        for worker in workers:
            worker.stop(timeout=5_000)


def test_a_message_has_what_is_due_delivered(
    settings: Settings, stores: Stores, receiver: str
) -> None:
    subscription = subscribe(stores.catalog, receiver)
    tell(stores.catalog, [subscription], times=3)
    broker = MemoryBroker()
    with working(settings, stores, broker) as chains:
        chains.send(delivery_jobs([subscription.endpoint_id]))
        until(lambda: states(stores.catalog, subscription) == ["delivered"] * 3)
    assert get_event_loop_thread() is None, "the event loop ends with the last worker"
    with stores.catalog.read() as tx:
        assert tx.execute(text("SELECT count(token) FROM endpoints")).scalar_one() == 0


def test_the_clock_sends_a_message_for_each_endpoint_with_something_due(
    settings: Settings, stores: Stores
) -> None:
    broker = MemoryBroker()
    clock = Scheduler(settings, stores, MessageSender(broker))
    several = [subscribe(stores.catalog, f"http://127.0.0.1:1/{n}") for n in range(3)]
    clock.refill_queues()
    assert broker.depth(DELIVER) == 0
    tell(stores.catalog, several, times=5)
    clock.refill_queues()
    assert broker.depth(DELIVER) == 3


def test_the_actor_states_its_queue_and_is_not_retried_by_dramatiq() -> None:
    actor = deliver.deliver
    assert (actor.actor_name, actor.queue_name) == (DELIVER, deliver.QUEUE)
    assert actor.options["max_retries"] == 0
    assert actor.options["time_limit"] == deliver.TIME_LIMIT_MS


def test_stuck_event_loop_ends_process() -> None:
    bitten = threading.Event()

    async def scene() -> None:
        dog = Watchdog(asyncio.get_running_loop(), check_s=0.04, bite=bitten.set)
        dog.start()
        assert bitten.wait(PATIENCE_S)
        dog.stop()

    asyncio.run(scene())


def test_running_event_loop_does_not_end_process() -> None:
    bitten = threading.Event()

    async def scene() -> None:
        dog = Watchdog(asyncio.get_running_loop(), check_s=0.2, bite=bitten.set)
        dog.start()
        await asyncio.sleep(0.2 * (deliver.STUCK_CHECKS + 2))
        await asyncio.to_thread(dog.stop)

    asyncio.run(scene())
    assert not bitten.is_set()


def test_lag_grows_while_event_loop_is_blocked_and_ends_with_it() -> None:
    def lag_s() -> float:
        return (
            REGISTRY.get_sample_value("store_event_loop_lag_seconds", {"process": "worker"}) or 0.0
        )

    async def scene() -> None:
        dog = Watchdog(asyncio.get_running_loop(), check_s=0.1, bite=lambda: None)
        dog.start()
        # These wait in the thread of the loop.
        until(lambda: lag_s() > 0.25)
        seen = lag_s()
        until(lambda: lag_s() > seen)
        await asyncio.to_thread(until, lambda: lag_s() < 0.1)
        await asyncio.to_thread(dog.stop)

    asyncio.run(scene())
