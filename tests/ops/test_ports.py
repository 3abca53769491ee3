"""Finding free ports."""

import socket
from collections.abc import Iterator

import pytest

from ops import ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_listened_on_is_not_free(taken: int) -> None:
    assert not ports.is_free("127.0.0.1", taken)


def test_next_port_must_be_free_too() -> None:
    first = ports.find_free_port_pair()  # the port below one that the system chose may be another's
    with (
        socket.create_server(("127.0.0.1", first + 1)),
        pytest.raises(ports.PortTaken, match="authorization service"),
    ):
        ports.require_free_ports("127.0.0.1", first)


def test_operators_port_must_be_free_too(taken: int) -> None:
    with pytest.raises(ports.PortTaken, match=f"port {taken} .* another with STORE_OPS_PORT"):
        ports.require_free_ports("127.0.0.1", ports.find_free_port_pair(), taken)


def test_a_free_pair_can_be_listened_on() -> None:
    ports.require_free_ports("127.0.0.1", ports.find_free_port_pair())
