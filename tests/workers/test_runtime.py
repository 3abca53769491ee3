"""Stop signals of a worker process."""

import signal
from collections.abc import Iterator

import pytest

from workers.runtime import install_stop_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test run, put back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_end_process(number: signal.Signals) -> None:
    stop = install_stop_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()
