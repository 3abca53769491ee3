"""Fixity reports are counted by one thread at a time, and cached."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines import fixity
from pipelines.fixity import FRESH_FACTOR, FRESH_S, FixityReport, FixityReportCache
from storage.stores import Stores

pytestmark = pytest.mark.spec("INT-01")


class Count:
    """Counts that take as long as they are told to."""

    def __init__(self) -> None:
        self.now = self.took_s = 0.0
        self.made = 0

    def __call__(self, *_: object, **__: object) -> FixityReport:
        self.now += self.took_s
        self.made += 1
        return FixityReport(self.made, {}, [])


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    made = Count()
    monkeypatch.setattr(fixity, "build_report", made)
    return made


def test_counts_for_a_tenth_of_the_time_at_most(stores: Stores, count: Count) -> None:
    reports = FixityReportCache(stores, 30, clock=lambda: count.now)
    assert reports.report().at_us == 1
    count.now += FRESH_S
    count.took_s = 5.0
    assert reports.report().at_us == 2
    count.now += 5.0 * FRESH_FACTOR - 0.1
    assert reports.report().at_us == 2
    count.now += 0.1
    assert reports.report().at_us == 3


def test_answers_at_once_while_another_thread_counts(
    stores: Stores, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = FixityReportCache(stores, 30, clock=lambda: count.now)
    reports.report()
    count.now += FRESH_S
    began, end = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> FixityReport:
        began.set()
        end.wait(20)
        return count()

    monkeypatch.setattr(fixity, "build_report", hang)
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(reports.report)
        assert began.wait(20)
        assert reports.report().at_us == 1
        end.set()
        assert counting.result(20).at_us == 2
    assert reports.report().at_us == 2


def test_a_count_that_fails_is_made_again(
    stores: Stores, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = FixityReportCache(stores, 30, clock=lambda: count.now)
    with monkeypatch.context() as patch:
        patch.setattr(fixity, "build_report", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reports.report()
    assert reports.report().at_us == 1
