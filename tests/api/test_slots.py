"""Slots: few for all, fewer for one client, and given back."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from api.slots import Slots
from storage.errors import TooMany, Unavailable


def test_one_client_holds_so_many_and_all_together_no_more_than_there_are() -> None:
    slots = Slots("streams", 3, 2)
    release = slots.take("a")
    slots.take("a")
    with pytest.raises(TooMany) as refused:
        slots.take("a")
    assert refused.value.retry_after_s
    slots.take("b")
    with pytest.raises(Unavailable) as refused_too:
        slots.take("c")
    assert refused_too.value.retry_after_s
    release()
    slots.take("c")


def test_without_a_share_one_client_may_hold_all_and_there_is_always_one() -> None:
    slots = Slots("streams", 0)
    release = slots.take("a")
    with pytest.raises(Unavailable):
        slots.take("a")
    release()
    slots.take("a")


def test_whoever_holds_none_is_forgotten() -> None:
    slots = Slots("streams", 8, 1)
    for client in range(100):
        slots.take(f"{client}")()
    assert not slots._held


def test_threads_take_no_more_than_there_are() -> None:
    slots = Slots("streams", 5, 3)

    def take(place: int) -> int:
        try:
            slots.take(f"{place % 4}")
        except (TooMany, Unavailable):
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        # The last slot is for a fifth client.
        assert sum(pool.map(take, range(200))) == 4
    slots.take("newcomer")


def test_busy_clients_leave_slots_for_the_next_one() -> None:
    slots = Slots("waiting requests", 256, 128)
    held = {client: take_all(slots, client) for client in ("a", "b", "c", "d")}
    assert held["a"] == 128
    assert min(held.values()) >= 8
    assert take_all(slots, "newcomer") >= 4


def test_clients_that_come_together_get_equal_shares() -> None:
    slots = Slots("waiting requests", 512, 128)
    clients = [f"{number}" for number in range(7)]
    for client in clients * 64:
        slots.take(client)
    assert take_all(slots, "newcomer") == 32


def test_a_client_has_room_for_64_beside_a_busy_one() -> None:
    slots = Slots("waiting requests", 512, 128)
    for client in ("a", "b", "c"):
        assert take_all(slots, client) >= 64


def take_all(slots: Slots, client: str) -> int:
    """Take slots until the client is refused; how many it got."""
    for count in range(1000):
        try:
            slots.take(client)
        except (TooMany, Unavailable):
            return count
    raise AssertionError("never refused")
