"""One contract for every pub/sub engine, and specifics of Redis."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from config import SettingsError
from storage.datagrams import open_socket_folder
from storage.protocols import TopicSubscription
from storage.pubsub import MAX_TOPICS, LocalPubSub, MemoryPubSub
from storage.redis_engines import CHANNEL, RedisPubSub
from tests.redis_server import fake
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spec("CON-15")

Board = MemoryPubSub | LocalPubSub | RedisPubSub


@contextmanager
def in_memory() -> Iterator[Board]:
    yield MemoryPubSub()


@contextmanager
def over_redis() -> Iterator[Board]:
    with fake() as port:
        notices = RedisPubSub(f"redis://127.0.0.1:{port}/0")
        try:
            yield notices
        finally:
            notices.close()


@contextmanager
def over_sockets() -> Iterator[Board]:
    """One process that waits, another that publishes would be the same."""
    with TemporaryDirectory() as home:
        notices = LocalPubSub(open_socket_folder(Path(home)))
        yield notices
        notices.close()


BOARDS = {"memory": in_memory, "local": over_sockets, "redis": over_redis}


@pytest.fixture(params=BOARDS)
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with BOARDS[request.param]() as notices:
        yield notices


def test_notice_wakes_waiters_of_topic(board: Board) -> None:
    with board.listen("file:1", "file:2") as listening:
        board.publish("file:2")
        assert listening.wait(5)


def test_notice_of_other_topic_wakes_no_waiter(board: Board) -> None:
    with board.listen("file:1") as listening:
        board.publish("file:2")
        assert not listening.wait(0.1)


def test_notices_before_the_block_are_not_seen(board: Board) -> None:
    with board.listen("topic") as before:
        board.publish("topic")
        assert before.wait(5)  # else it may still be on its way here
    with board.listen("topic", "last") as listening:
        board.publish("last")
        assert listening.wait(5)
        assert not listening.wait(0.05)


def test_each_notice_is_seen_once(board: Board) -> None:
    with board.listen("topic") as listening:
        board.publish("topic")
        assert listening.wait(5)
        assert not listening.wait(0.05)
        board.publish("topic")
        assert listening.wait(5)


def test_wakes_all_waiters(board: Board) -> None:
    with board.listen("topic") as one, board.listen("topic", "topic") as two:
        board.publish("topic")
        assert one.wait(5)
        assert two.wait(5)


def test_a_sleeper_is_woken_while_it_sleeps(board: Board) -> None:
    with board.listen("topic") as listening:
        threading.Timer(0.05, board.publish, ["topic"]).start()
        began = time.monotonic()
        assert listening.wait(600)
        assert time.monotonic() - began < PATIENCE_S


def test_topics_may_be_any_text(board: Board) -> None:
    with board.listen("file:ü b\n\x00") as listening:
        board.publish("file:ü b\n\x00")
        assert listening.wait(5)


def test_publishes_many_topics_at_once(board: Board) -> None:
    topics = [f"file:{number}" for number in range(2 * MAX_TOPICS + 1)]
    with (
        board.listen(topics[0]) as first,
        board.listen(topics[-1]) as last,
        board.listen("file:other") as other,
    ):
        board.publish(*topics)
        assert first.wait(5)
        assert last.wait(5)
        assert not other.wait(0.05)


def test_a_plain_topic_of_an_earlier_release_is_heard() -> None:
    with fake() as port:
        url = f"redis://127.0.0.1:{port}/0"
        notices = RedisPubSub(url)
        with redis.Redis.from_url(url) as before, notices.listen("file:1") as listening:
            before.publish(CHANNEL, "file:1")
            assert listening.wait(5)
        notices.close()


def test_publishing_without_subscribers_succeeds(board: Board) -> None:
    board.publish("topic")


def test_boards_on_one_redis_are_connected() -> None:
    with fake() as port:
        one, two = (RedisPubSub(f"redis://127.0.0.1:{port}/0") for _ in range(2))
        with one.listen("topic") as listening:
            two.publish("topic")
            assert listening.wait(5)
        one.close()
        two.close()


def test_waiters_share_a_connection_and_a_thread() -> None:
    with fake() as port:
        notices = RedisPubSub(f"redis://127.0.0.1:{port}/0")
        before = threading.active_count()
        listeners = [notices.listen(f"topic:{n}") for n in range(50)]
        opened = [listener.__enter__() for listener in listeners]
        named = [thread for thread in threading.enumerate() if thread.name == "notices"]
        assert threading.active_count() - before <= 2  # ours, and the server's for our connection
        assert len(named) == 1
        for n in range(50):
            notices.publish(f"topic:{n}")
        assert all(listening.wait(5) for listening in opened)
        for listener in listeners:
            listener.__exit__(None, None, None)
        notices.close()


def test_without_a_redis_publishing_is_silent_and_waiting_times_out() -> None:
    with fake() as port:
        pass
    notices = RedisPubSub(f"redis://127.0.0.1:{port}/0")
    notices.publish("topic")
    with notices.listen("topic") as listening:
        assert not listening.wait(0.05)
    notices.close()


def test_a_redis_that_returns_is_heard_again() -> None:
    with fake() as port:
        notices = RedisPubSub(f"redis://127.0.0.1:{port}/0")
        with notices.listen("topic") as listening:
            notices.publish("topic")
            assert listening.wait(5)
    with fake(port), notices.listen("topic") as listening:
        until(lambda: heard(notices, listening))
    notices.close()


def test_waiter_is_woken_after_restart() -> None:
    with fake() as port:
        notices = RedisPubSub(f"redis://127.0.0.1:{port}/0")
        listener = notices.listen("topic")
        listening = listener.__enter__()
    with fake(port):
        until(lambda: heard(notices, listening))
        listener.__exit__(None, None, None)
    notices.close()


def heard(notices: RedisPubSub, listening: TopicSubscription) -> bool:
    notices.publish("topic")
    return listening.wait(0.1)


@pytest.mark.parametrize("url", ["http://127.0.0.1:6379/0", "redis://h:port/0", "redis://h/0?on=1"])
def test_invalid_redis_url_is_a_settings_error(url: str) -> None:
    with pytest.raises(SettingsError, match="STORE_REDIS_URL"):
        RedisPubSub(url)
