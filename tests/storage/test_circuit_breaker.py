"""The circuit breaker: two failures open it, one success closes it."""

import threading
import time
from collections.abc import Callable

import pytest

from storage.circuit_breaker import (
    CHECK_INTERVAL_S,
    MAX_WAIT_S,
    PROBE_TIMEOUT_S,
    RECHECK_INTERVAL_S,
    CircuitBreaker,
)

pytestmark = pytest.mark.spec("REP-08")


class Engine:
    """Something that answers or not, and counts how often it was asked."""

    def __init__(self) -> None:
        self.well, self.asked = True, 0

    def probe(self) -> None:
        self.asked += 1
        if not self.well:
            raise OSError("no route to host")


class World:
    """A clock that is set, and probes that run at once, or when the test says so."""

    def __init__(self, *, at_once: bool = True, watched: bool = True) -> None:
        self.now, self.engine = 0.0, Engine()
        self.started: list[Callable[[], None]] = []
        probes = {"part": self.engine.probe}
        self.parts = CircuitBreaker(
            probes if watched else {},
            {} if watched else probes,
            clock=lambda: self.now,
            start=(lambda work: work()) if at_once else self.started.append,
        )

    def is_down(self, after: float = 0.0) -> bool:
        self.now += after
        return self.parts.is_down("part")


def test_unprobed_part_is_up() -> None:
    assert not CircuitBreaker().is_down("bucket.aws")
    CircuitBreaker().record_failure("bucket.aws")


def test_many_checks_cause_one_probe() -> None:
    world = World()
    assert not any(world.is_down(0.001) for _ in range(1000))
    assert world.engine.asked == 1
    world.is_down(CHECK_INTERVAL_S)
    assert world.engine.asked == 2


def test_two_failures_open_and_one_success_closes() -> None:
    world = World()
    world.is_down()
    world.engine.well = False
    assert not world.is_down(CHECK_INTERVAL_S / 2)
    assert world.is_down(CHECK_INTERVAL_S)
    assert world.engine.asked == 3, "the first failure is looked into at once"
    assert world.is_down(CHECK_INTERVAL_S)
    assert world.engine.asked == 4
    world.engine.well = True
    assert world.is_down(CHECK_INTERVAL_S / 2)
    assert not world.is_down(CHECK_INTERVAL_S)


def test_a_single_failure_is_forgotten_with_the_next_success() -> None:
    world = World()
    world.parts.record_failure("part")
    assert not world.is_down(RECHECK_INTERVAL_S)
    world.parts.record_failure("part")
    assert not world.is_down()


def test_failed_calls_count_as_probes_that_failed() -> None:
    world = World()
    world.parts.record_failure("part")
    world.parts.record_failure("part")
    assert world.is_down()
    assert world.engine.asked == 0


def test_silent_probe_fails_early_and_is_not_repeated() -> None:
    world = World(at_once=False)
    assert not world.is_down()
    assert not world.is_down(PROBE_TIMEOUT_S / 2)
    assert world.is_down(PROBE_TIMEOUT_S)
    assert world.is_down(10 * CHECK_INTERVAL_S)
    assert len(world.started) == 1
    world.started.pop()()
    assert not world.is_down()


def test_a_part_that_is_not_watched_is_probed_only_after_a_failure() -> None:
    world = World(watched=False)
    assert not world.is_down(100)
    assert world.engine.asked == 0
    world.parts.record_failure("part")
    world.parts.record_failure("part")
    assert world.is_down()
    assert not world.is_down(CHECK_INTERVAL_S)
    assert world.engine.asked == 1


def test_only_the_probing_caller_waits() -> None:
    world = World()
    world.engine.well = False
    assert world.is_down(), "the first request after a long silence knows"
    slow, asking = threading.Event(), threading.Event()

    def hang() -> None:
        asking.set()
        slow.wait(30)

    parts = CircuitBreaker({"part": hang})
    began = time.monotonic()
    assert not parts.is_down("part")
    assert asking.is_set()
    assert MAX_WAIT_S <= time.monotonic() - began < PROBE_TIMEOUT_S
    again = time.monotonic()
    assert not any(parts.is_down("part") for _ in range(100))
    assert time.monotonic() - again < MAX_WAIT_S
    slow.set()


def test_a_part_that_fails_once_only_is_up() -> None:
    engine = Engine()
    tries = [False, True]

    def probe() -> None:
        engine.well = tries.pop(0)
        engine.probe()

    assert not CircuitBreaker({"part": probe}, start=lambda work: work()).is_down("part")
    assert engine.asked == 2
