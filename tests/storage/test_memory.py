"""The memory budget holds for the reservations of all threads."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from storage.errors import Unavailable
from storage.json_codec import SMALL_BYTES, MemoryBudget
from tests.waiting import PATIENCE_S

BIG = 10 * SMALL_BYTES


@pytest.mark.long
def test_threads_together_stay_within_the_budget() -> None:
    budget, lock = MemoryBudget(3 * BIG, timeout_s=PATIENCE_S), threading.Lock()
    now, most = 0, 0

    def use(_number: int) -> None:
        nonlocal now, most
        with budget.reserve(BIG):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.002)
            with lock:
                now -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(use, range(60)))
    assert (now, most) == (0, 3)


def test_refuses_with_retry_after_when_wait_is_over() -> None:
    budget = MemoryBudget(BIG, timeout_s=0.01)
    with (
        budget.reserve(BIG),
        pytest.raises(Unavailable) as refused,
        budget.reserve(BIG),
    ):
        pass
    assert refused.value.retry_after_s
    with budget.reserve(BIG):
        pass


def test_small_values_do_not_wait() -> None:
    budget = MemoryBudget(BIG, timeout_s=0)
    with budget.reserve(BIG), budget.reserve(SMALL_BYTES):
        pass


def test_oversized_value_runs_alone() -> None:
    budget = MemoryBudget(BIG, timeout_s=0)
    with budget.reserve(100 * BIG), pytest.raises(Unavailable), budget.reserve(BIG):
        pass


def test_small_requests_do_not_overtake_a_large_one_for_ever() -> None:
    budget, order = MemoryBudget(2 * BIG, timeout_s=PATIENCE_S), list[str]()

    def use(name: str, size: int) -> None:
        with budget.reserve(size):
            order.append(name)

    with budget.reserve(BIG):
        threads = [
            threading.Thread(target=use, args=("large", 2 * BIG)),
            threading.Thread(target=use, args=("small", BIG)),
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["large", "small"]


def test_a_wait_is_surrounded_and_a_reservation_without_one_is_not() -> None:
    waits: list[str] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append("began")
        yield
        waits.append("ended")

    budget = MemoryBudget(BIG, timeout_s=5, waiting=waiting)
    with budget.reserve(BIG):
        assert waits == []
        other = threading.Thread(target=lambda: budget.reserve(BIG).__enter__())
        other.start()
        time.sleep(0.05)
    other.join()
    assert waits == ["began", "ended"]
