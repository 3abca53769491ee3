"""Permits: how many requests run at once, and that waiting ones do not count."""

import threading
from concurrent.futures import ThreadPoolExecutor

from api.concurrency import Permits, suspended

LIMIT_S = 20


def test_no_more_requests_run_than_there_are_permits() -> None:
    permits, lock = Permits(2), threading.Lock()
    now = most = 0

    def run() -> None:
        nonlocal now, most
        with permits.running():
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.01)
            with lock:
                now -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(run) for _ in range(16)]:
            done.result(LIMIT_S)
    assert most == 2


def test_a_waiting_request_lets_another_run_and_takes_its_turn_again() -> None:
    permits, waiting, finish = Permits(1), threading.Event(), threading.Event()

    def wait() -> bool:
        with permits.running(), suspended():
            waiting.set()
            return finish.wait(LIMIT_S)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(wait)
        assert waiting.wait(LIMIT_S)
        with permits.running():
            finish.set()
            assert not first.done()
        assert first.result(LIMIT_S)


def test_waits_within_a_wait_give_up_one_permit() -> None:
    permits = Permits(1)
    with permits.running() as permit, permit.suspended(), suspended():
        pass
    with ThreadPoolExecutor(2) as pool:
        inside = threading.Event()

        def run() -> bool:
            with permits.running():
                alone = not inside.is_set()
                inside.set()
                threading.Event().wait(0.05)
                inside.clear()
                return alone

        assert all(done.result(LIMIT_S) for done in [pool.submit(run), pool.submit(run)])


def test_without_a_permit_waiting_changes_nothing() -> None:
    with suspended():
        pass
