"""Reports of integrity are counted by one thread at a time, and no more often than they cost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.replicating import fixity
from pipelines.replicating.fixity import FRESH_S, REST, Report, Reports
from storage.stores import Stores


class Count:
    """Counts that take as long as they are told to."""

    def __init__(self) -> None:
        self.now = self.took_s = 0.0
        self.made = 0

    def __call__(self, *_: object, **__: object) -> Report:
        self.now += self.took_s
        self.made += 1
        return Report(self.made, {}, [])


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    made = Count()
    monkeypatch.setattr(fixity, "report", made)
    return made


def test_counts_for_a_tenth_of_the_time_at_most(stores: Stores, count: Count) -> None:
    reports = Reports(stores, 30, clock=lambda: count.now)
    assert reports.report().at_us == 1
    count.now += FRESH_S
    count.took_s = 5.0
    assert reports.report().at_us == 2
    count.now += 5.0 * REST - 0.1
    assert reports.report().at_us == 2
    count.now += 0.1
    assert reports.report().at_us == 3


def test_answers_at_once_while_another_thread_counts(
    stores: Stores, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports(stores, 30, clock=lambda: count.now)
    reports.report()
    count.now += FRESH_S
    began, end = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> Report:
        began.set()
        end.wait(20)
        return count()

    monkeypatch.setattr(fixity, "report", hang)
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
    reports = Reports(stores, 30, clock=lambda: count.now)
    with monkeypatch.context() as patch:
        patch.setattr(fixity, "report", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reports.report()
    assert reports.report().at_us == 1
