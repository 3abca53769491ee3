"""Which forwarded host and scheme the API believes."""

import pytest

from api.http.operation import is_trusted_host

pytestmark = pytest.mark.spec("CON-13")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "a.localhost"]
)
def test_loopback_is_believed(host) -> None:
    assert is_trusted_host(host, ())


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "127.0.0.1.example.org",
        "localhost.example.org",
        "[::2]",
        "10.0.0.1",
        "a b",
    ],
)
def test_rejects_unknown_hosts(host) -> None:
    assert not is_trusted_host(host, ())


def test_a_listed_host_is_believed_with_and_without_its_port() -> None:
    assert is_trusted_host("store.example", ("Store.Example",))
    assert is_trusted_host("store.example:8000", ("store.example",))
    assert is_trusted_host("store.example:8000", ("store.example:8000",))
    assert not is_trusted_host("store.example:8001", ("store.example:8000",))


@pytest.mark.parametrize(
    "host", ["store.example/x", "store.example@evil", "store.example:x", "a\r\nb"]
)
def test_rejects_invalid_hosts_with_loopback_prefix(host) -> None:
    assert not is_trusted_host(host, ("store.example", "a"))
