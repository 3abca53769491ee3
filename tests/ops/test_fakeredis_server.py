"""The in-memory queue: everything that the store needs of a Redis server, and nothing else."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops.procfile import ROOT
from ops.queue_server import PrivateQueue
from storage.rates import Rate, RedisRates
from tests.patience import until

NEVER = Retry(NoBackoff(), 0)


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateQueue]:
    found = PrivateQueue(tmp_path_factory.mktemp("a home"), "secret")
    process = subprocess.Popen(
        [sys.executable, "-m", "ops.fakeredis_server"],
        cwd=ROOT,
        env={**os.environ, "STORE_REDIS_URL": found.url},
    )
    try:
        until(found.listens)
        yield found
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def client(queue: PrivateQueue) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(queue.url, retry=NEVER) as client:
        yield client


def test_messages_are_sent_and_worked_on(queue: PrivateQueue) -> None:
    broker = RedisBroker(url=queue.url)  # type: ignore[no-untyped-call]
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


def test_a_published_notice_reaches_who_listens(client: redis.Redis) -> None:
    with client.pubsub() as board:  # type: ignore[no-untyped-call]
        board.subscribe("topic")
        until(lambda: (board.get_message(timeout=0.1) or {}).get("type") == "subscribe")
        client.publish("topic", "now")
        until(lambda: (board.get_message(timeout=0.1) or {}).get("data") == b"now")


def test_an_error_reply_leaves_the_connection_open(queue: PrivateQueue) -> None:
    with redis.Redis.from_url(queue.url, single_connection_client=True, retry=NEVER) as client:
        for _ in range(5):
            with pytest.raises(redis.exceptions.NoScriptError):
                client.evalsha("0" * 40, 0)
        assert client.ping()


def test_a_subscriber_that_went_away_does_not_disturb_the_others(client: redis.Redis) -> None:
    gone = client.pubsub()  # type: ignore[no-untyped-call]
    gone.subscribe("topic")
    gone.close()
    assert client.publish("topic", "now") in (0, 1)
    assert client.publish("topic", "again") == 0


def test_large_values_pass_whole(client: redis.Redis) -> None:
    value = bytes(range(256)) * 10_000
    client.set("large", value)
    assert client.get("large") == value
    client.delete("large")


def test_an_emptied_server_goes_on_serving(client: redis.Redis) -> None:
    client.set("a", "b")
    client.flushall()
    assert client.get("a") is None
    assert client.ping()


# Access ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_refuses_commands_without_the_password(queue: PrivateQueue, protocol: int) -> None:
    path = str(queue.socket)
    with (
        redis.Redis(unix_socket_path=path, protocol=protocol, retry=NEVER) as client,
        pytest.raises(redis.AuthenticationError, match="Authentication required"),
    ):
        client.ping()
    with (
        redis.Redis(
            unix_socket_path=path, password="wrong", protocol=protocol, retry=NEVER
        ) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    with redis.Redis(unix_socket_path=path, password="secret", protocol=protocol) as client:
        assert client.ping()


def test_a_failed_authentication_ends_an_earlier_one(queue: PrivateQueue) -> None:
    commands = b"AUTH secret", b"PING", b"AUTH wrong", b"PING", b"HELLO 2 AUTH default wrong"
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(5)
        raw.connect(str(queue.socket))
        answers = []
        for command in commands:
            words = command.split()
            raw.sendall(b"*%d\r\n" % len(words))
            raw.sendall(b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            answers.append(raw.recv(100)[:7])
    assert answers == [b"+OK\r\n", b"+PONG\r\n", b"-WRONGP", b"-NOAUTH", b"-WRONGP"]


def test_only_the_owner_may_connect(queue: PrivateQueue) -> None:
    assert queue.socket.stat().st_mode & 0o777 == 0o600


MODULES = ["os", "io", "python", "debug", "package", "require", "load", "loadstring", "dofile"]


@pytest.mark.parametrize("name", [*MODULES, "loadfile", "getfenv", "setfenv", "getmetatable"])
def test_scripts_have_no_such_module(client: redis.Redis, name: str) -> None:
    assert client.eval(f"return type({name})", 0) == b"nil"


@pytest.mark.parametrize(
    "script",
    [
        "os.execute('touch {}')",
        "io.open('{}', 'w')",
        'python.eval(\'open("{}", "w")\')',
        "redis.call.__globals__.os.system('touch {}')",
        "redis.call['__globals__']['os'].system('touch {}')",
        "local _, e = pcall(redis.call, 'no'); e.__traceback__.tb_frame.f_globals.os.system('{}')",
        "local _, e = pcall(redis.call, 'no'); return tostring(e.__class__)",
        "return cjson.encode.__globals__",
        "cjson.null.__class__.__base__.__subclasses__()",
        "redis.log.func.__globals__.os.system('touch {}')",
        "_G['os'].execute('touch {}')",
        "getfenv(0).os.execute('touch {}')",
        "string.dump(function() end)",
        "('').dump(function() end)",
    ],
)
def test_scripts_cannot_leave_the_sandbox(client: redis.Redis, tmp_path: Path, script: str) -> None:
    made = tmp_path / "made"
    with pytest.raises(redis.ResponseError):
        client.eval(script.format(made), 0)
    assert not made.exists()


def test_compiled_scripts_and_functions_are_refused(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match="compiled"):
        client.eval(b"\x1bLuaQ", 0)  # type: ignore[arg-type]
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.function_load("#!lua name=a\nredis.register_function('f', function() end)")


def test_rate_limits_are_counted_in_the_sandbox(queue: PrivateQueue) -> None:
    rates = RedisRates(queue.url)
    try:
        taken = [rates.take("someone", Rate(per_minute=1, burst=2)) for _ in range(3)]
    finally:
        rates.close()
    assert [found and found.allowed for found in taken] == [True, True, False]
