"""Reports are built by one thread at a time, and cached."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.report_cache import ReportCache

pytestmark = pytest.mark.spec("INT-01")

FRESH_S, FRESH_FACTOR = 2.0, 10


class Count:
    """Builds a report, its number, in a given time."""

    def __init__(self) -> None:
        self.now = self.took_s = 0.0
        self.made = 0

    def __call__(self) -> int:
        self.now += self.took_s
        self.made += 1
        return self.made


@pytest.fixture
def count() -> Count:
    return Count()


def cached(count: Count, build: Callable[[], int]) -> ReportCache[int]:
    """A cache of what this builds, with a clock that the test moves."""
    return ReportCache(build, fresh_s=FRESH_S, fresh_factor=FRESH_FACTOR, clock=lambda: count.now)


def test_counts_for_a_tenth_of_the_time_at_most(count: Count) -> None:
    reports = cached(count, count)
    assert reports.read() == 1
    count.now += FRESH_S
    count.took_s = 5.0
    assert reports.read() == 2
    count.now += 5.0 * FRESH_FACTOR - 0.1
    assert reports.read() == 2
    count.now += 0.1
    assert reports.read() == 3


def test_answers_at_once_while_another_thread_counts(count: Count) -> None:
    began, end, hangs = threading.Event(), threading.Event(), False

    def build() -> int:
        if hangs:
            began.set()
            assert end.wait(20)
        return count()

    reports = cached(count, build)
    reports.read()
    count.now += FRESH_S
    hangs = True
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(reports.read)
        assert began.wait(20)
        assert reports.read() == 1
        end.set()
        assert counting.result(20) == 2
    assert reports.read() == 2


def test_a_count_that_fails_is_made_again(count: Count) -> None:
    fails = True

    def build() -> int:
        return 1 // 0 if fails else count()

    reports = cached(count, build)
    with pytest.raises(ZeroDivisionError):
        reports.read()
    fails = False
    assert reports.read() == 1
