"""The in-memory queue, asked for everything that the store needs of a Redis server."""

import subprocess
import sys
from collections.abc import Iterator

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops import ports
from ops.procfile import ROOT
from tests.patience import until


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = ports.free()
    process = subprocess.Popen(
        [sys.executable, "-m", "ops.fakeredis_server", "127.0.0.1", str(port)], cwd=ROOT
    )
    try:
        until(lambda: not ports.is_free("127.0.0.1", port))
        yield port
    finally:
        process.kill()
        process.wait(10)


def test_messages_are_sent_and_worked_on(port: int) -> None:
    broker = RedisBroker(  # type: ignore[no-untyped-call]
        url=f"redis://127.0.0.1:{port}/0"
    )
    done: list[int] = []
    declare = dramatiq.actor(broker=broker, actor_name="note", max_retries=0)
    actor = declare(done.append)
    for number in range(20):
        actor.send(number)
    worker = dramatiq.Worker(broker, worker_timeout=20, worker_threads=2)
    worker.start()
    try:
        until(lambda: len(done) == 20)
    finally:
        worker.stop()
        broker.client.close()
    assert sorted(done) == list(range(20))


def test_a_published_notice_reaches_who_listens(port: int) -> None:
    with redis.Redis(port=port) as client, client.pubsub() as board:
        board.subscribe("topic")
        until(lambda: (board.get_message(timeout=0.1) or {}).get("type") == "subscribe")
        client.publish("topic", "now")
        until(lambda: (board.get_message(timeout=0.1) or {}).get("data") == b"now")


def test_an_error_reply_leaves_the_connection_open(port: int) -> None:
    never = Retry(NoBackoff(), 0)
    with redis.Redis(port=port, single_connection_client=True, retry=never) as client:
        for _ in range(5):
            with pytest.raises(redis.exceptions.NoScriptError):
                client.evalsha("0" * 40, 0)
        assert client.ping()


def test_a_subscriber_that_went_away_does_not_disturb_the_others(port: int) -> None:
    with redis.Redis(port=port) as client:
        gone = client.pubsub()
        gone.subscribe("topic")
        gone.close()
        assert client.publish("topic", "now") in (0, 1)
        assert client.publish("topic", "again") == 0


def test_large_values_pass_whole(port: int) -> None:
    value = bytes(range(256)) * 10_000
    with redis.Redis(port=port) as client:
        client.set("large", value)
        assert client.get("large") == value
        client.delete("large")


def test_an_emptied_server_goes_on_serving(port: int) -> None:
    with redis.Redis(port=port) as client:
        client.set("a", "b")
        client.flushall()
        assert client.get("a") is None
        assert client.ping()
