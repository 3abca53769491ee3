"""Semaphores for concurrent requests, in total and per client."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.http.limits import FairSemaphore
from api.http.permits import Permits, suspend_permit
from storage.errors import TooManyRequests, Unavailable

pytestmark = pytest.mark.spec("EVT-15", "CON-15")

LIMIT_S = 20


def test_running_requests_never_exceed_permits() -> None:
    permits, lock = Permits(2), threading.Lock()
    now = most = 0

    def run() -> None:
        nonlocal now, most
        with permits.acquire():
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


def test_waiting_request_releases_and_regains_permit() -> None:
    permits, waiting, finish = Permits(1), threading.Event(), threading.Event()

    def wait() -> bool:
        with permits.acquire(), suspend_permit():
            waiting.set()
            return finish.wait(LIMIT_S)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(wait)
        assert waiting.wait(LIMIT_S)
        with permits.acquire():
            finish.set()
            assert not first.done()
        assert first.result(LIMIT_S)


def test_nested_waits_release_one_permit() -> None:
    permits = Permits(1)
    with permits.acquire() as permit, permit.suspend(), suspend_permit():
        pass
    with ThreadPoolExecutor(2) as pool:
        inside = threading.Event()

        def run() -> bool:
            with permits.acquire():
                alone = not inside.is_set()
                inside.set()
                threading.Event().wait(0.05)
                inside.clear()
                return alone

        assert all(done.result(LIMIT_S) for done in [pool.submit(run), pool.submit(run)])


def test_without_a_permit_waiting_changes_nothing() -> None:
    with suspend_permit():
        pass


def test_client_share_and_total_are_bounded() -> None:
    slots = FairSemaphore("streams", 3, 2)
    release = slots.acquire("a")
    slots.acquire("a")
    with pytest.raises(TooManyRequests) as refused:
        slots.acquire("a")
    assert refused.value.retry_after_s
    slots.acquire("b")
    with pytest.raises(Unavailable) as refused_too:
        slots.acquire("c")
    assert refused_too.value.retry_after_s
    release()
    slots.acquire("c")


def test_without_share_one_client_may_use_all_slots() -> None:
    slots = FairSemaphore("streams", 0)
    release = slots.acquire("a")
    with pytest.raises(Unavailable):
        slots.acquire("a")
    release()
    slots.acquire("a")


def test_forgets_clients_without_slots() -> None:
    slots = FairSemaphore("streams", 8, 1)
    for client in range(100):
        slots.acquire(f"{client}")()
    assert not slots._held


def test_threads_never_exceed_slots() -> None:
    slots = FairSemaphore("streams", 5, 3)

    def take(place: int) -> int:
        try:
            slots.acquire(f"{place % 4}")
        except (TooManyRequests, Unavailable):
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        # The last slot is for a fifth client.
        assert sum(pool.map(take, range(200))) == 4
    slots.acquire("newcomer")


def test_busy_clients_leave_slots_for_others() -> None:
    slots = FairSemaphore("waiting requests", 256, 128)
    held = {client: take_all(slots, client) for client in ("a", "b", "c", "d")}
    assert held["a"] == 128
    assert min(held.values()) >= 8
    assert take_all(slots, "newcomer") >= 4


def test_concurrent_clients_get_equal_shares() -> None:
    slots = FairSemaphore("waiting requests", 512, 128)
    clients = [f"{number}" for number in range(7)]
    for client in clients * 64:
        slots.acquire(client)
    assert take_all(slots, "newcomer") == 32


def test_a_client_has_room_for_64_beside_a_busy_one() -> None:
    slots = FairSemaphore("waiting requests", 512, 128)
    for client in ("a", "b", "c"):
        assert take_all(slots, client) >= 64


def take_all(slots: FairSemaphore, client: str) -> int:
    """Take slots until the client is refused; how many it got."""
    for count in range(1000):
        try:
            slots.acquire(client)
        except (TooManyRequests, Unavailable):
            return count
    raise AssertionError("never refused")
