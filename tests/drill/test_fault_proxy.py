"""The fault proxy closes all of its sockets."""

import asyncio
import gc
import socket
import sys
import time
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from tests.drill.fault_proxy import Proxy, before


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


@pytest.mark.parametrize("turns", range(12))
def test_closes_both_ends_if_cancelled_while_they_end(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, hears = Mock(asyncio.StreamWriter), Mock(asyncio.StreamWriter)

    async def connect(*_target: object) -> tuple[asyncio.StreamReader, Mock]:
        return ended_reader(), told

    async def cancel_after_turns() -> bool:
        proxy = Proxy("127.0.0.1", 1, Random(1))
        passing = asyncio.ensure_future(proxy._pass(ended_reader(), hears))
        for _ in range(turns):
            await asyncio.sleep(0)
        passing.cancel()
        await asyncio.wait([passing])
        proxy._loop.close()
        return passing.cancelled()

    monkeypatch.setattr(asyncio, "open_connection", connect)
    cancelled = asyncio.run(cancel_after_turns())
    if turns > 0:  # else it never began
        assert told.transport.abort.called
        assert hears.close.called or cancelled


def ended_reader() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_eof()
    return reader
