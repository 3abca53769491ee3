"""The fault proxy closes all of its sockets."""

import gc
import socket
import sys
import time
from random import Random
from typing import Any

import pytest

from tests.drill.fault_proxy import before


def test_closes_connections_that_are_just_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    rng = Random(1)
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        for _ in range(40):
            with before("127.0.0.1", server.getsockname()[1], rng) as proxy:
                clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(5)]
                time.sleep(rng.random() / 100)
            for client in clients:
                client.close()
    gc.collect()
    assert left == []
