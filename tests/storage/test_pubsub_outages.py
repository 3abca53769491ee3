"""Pub/sub over a real Redis that is killed, frozen, replaced or behind TLS."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.redis_engines import RedisPubSub
from tests.redis_server import RedisServer, needed, serving
from tests.waiting import PATIENCE_S, until

pytestmark = [needed, pytest.mark.spec("OPS-19")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with serving(tmp_path) as found:
        yield found


@pytest.fixture
def board(server: RedisServer) -> Iterator[RedisPubSub]:
    notices = RedisPubSub(server.url)
    yield notices
    notices.close()


def hears(board: RedisPubSub, topic: str) -> bool:
    with board.listen(topic) as listening:
        board.publish(topic)
        return listening.wait(0.2)


def test_killed_subscription_reconnects_at_once(server: RedisServer, board: RedisPubSub) -> None:
    with server.client() as client:
        for _ in range(5):
            until(lambda: hears(board, "topic"), 3.0)
            client.client_kill_filter(_type="pubsub")
    until(lambda: hears(board, "topic"), 3.0)


def test_waiters_read_again_after_outage(server: RedisServer, board: RedisPubSub) -> None:
    with board.listen("said while nobody heard") as listening:
        assert not listening.wait(0.1)
        server.kill()
        assert not listening.wait(0.3)
        server.start()
        assert listening.wait(PATIENCE_S)


def test_a_frozen_board_costs_a_publisher_seconds_once_and_is_heard_afterwards(
    server: RedisServer, board: RedisPubSub
) -> None:
    assert hears(board, "topic")
    with server.frozen():
        began = time.monotonic()
        for _ in range(100):
            board.publish("topic")
        assert time.monotonic() - began < 4.0
        with board.listen("other") as listening:
            assert not listening.wait(0.1)
    until(lambda: hears(board, "topic"))


def test_a_listener_that_was_never_answered_tries_again(server: RedisServer) -> None:
    with server.frozen():
        board = RedisPubSub(server.url)
        with board.listen("topic") as listening:
            assert not listening.wait(0.1)
    until(lambda: hears(board, "topic"))
    board.close()


def test_a_board_behind_tls_and_a_password_is_used(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = subprocess.run(
        [*request, *names, "-keyout", key, "-out", certificate], capture_output=True
    )
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    options = {
        "--tls-cert-file": str(certificate),
        "--tls-key-file": str(key),
        "--tls-auth-clients": "no",
        "--requirepass": "secret",
    }
    link = f"rediss://:secret@{{}}/0?ssl_ca_certs={certificate}"
    with serving(tmp_path, options, link=link, tls=True) as server:
        board = RedisPubSub(server.url)
        assert hears(board, "topic")
        board.close()
