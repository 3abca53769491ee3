import threading
import time
from dataclasses import replace

import pytest

from auth.login import passwords
from auth.login.passwords import Checked, Passwords
from storage.errors import Invalid, Unavailable
from tests.auth.login.builders import CHEAP, RIGHT


def test_a_password_is_kept_as_argon2id_and_differently_each_time() -> None:
    made = Passwords(CHEAP)
    one, other = made.hash(RIGHT), made.hash(RIGHT)
    assert one.startswith("$argon2id$")
    assert one != other
    assert RIGHT not in one
    assert made.check(one, RIGHT) == Checked(True)
    assert made.check(one, RIGHT + " ") == Checked(False)
    assert made.check(one, "") == Checked(False)


def test_a_hash_of_other_costs_is_made_anew_when_its_password_comes() -> None:
    old = Passwords(CHEAP).hash(RIGHT)
    now = Passwords(replace(CHEAP, memory_kib=128))
    found = now.check(old, RIGHT)
    assert found.renewed is not None
    assert "m=128" in found.renewed
    assert now.check(found.renewed, RIGHT) == Checked(True)
    assert now.check(old, "another password") == Checked(False)


@pytest.mark.parametrize("stored", [None, "", "broken", "$argon2id$v=19$m=64"])
def test_without_a_usable_hash_no_password_is_right(stored: str | None) -> None:
    assert Passwords(CHEAP).check(stored, RIGHT) == Checked(False)


def test_who_is_unknown_costs_as_much_as_who_is_known() -> None:
    made = Passwords(replace(CHEAP, memory_kib=8192, passes=4))
    stored = made.hash(RIGHT)
    made.check(None, RIGHT)

    def seconds(kept: str | None) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            made.check(kept, "wrong password")
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(None) > seconds(stored) / 3


def test_keyboards_may_spell_one_password_differently() -> None:
    made = Passwords(CHEAP)
    assert made.check(made.hash("pass\u00e9word twelve"), "passe\u0301word twelve").right


@pytest.mark.parametrize(
    "bad",
    ["", "short", "a" * 40, "eleven char", "x" * 2000, "é" * 600, RIGHT + "\x00", "\t" + RIGHT],
)
def test_what_is_no_password_is_not_taken_as_one(bad: str) -> None:
    with pytest.raises(Invalid) as caught:
        Passwords(CHEAP).hash(bad)
    assert bad == "" or bad not in caught.value.detail


def test_a_password_that_is_too_long_is_wrong_and_is_not_cut() -> None:
    made = Passwords(CHEAP)
    longest = ("abcdefgh" * 200)[: passwords.MAX_BYTES]
    stored = made.hash(longest)
    assert made.check(stored, longest).right
    assert not made.check(stored, longest + "x").right


def test_odd_texts_are_wrong_and_nothing_else() -> None:
    made = Passwords(CHEAP)
    stored = made.hash(RIGHT)
    for odd in ("\x00", "\ud800", "\uffff" * 12, RIGHT + "\x00"):
        assert made.check(stored, odd) == Checked(False)


def test_no_more_are_hashed_at_once_than_there_is_memory_for() -> None:
    made = Passwords(replace(CHEAP, at_once=1, patience_s=0.05))
    stored = made.hash(RIGHT)
    made.check(None, "")
    inside, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with made._turn():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=occupy)
    other.start()
    inside.wait(10)
    try:
        with pytest.raises(Unavailable) as caught:
            made.check(stored, RIGHT)
        assert caught.value.retry_after_s
    finally:
        leave.set()
        other.join()
    assert made.check(stored, RIGHT).right


def test_no_more_wait_for_their_turn_than_are_served() -> None:
    made = Passwords(replace(CHEAP, at_once=1, patience_s=30))
    made.check(None, "")
    began = time.monotonic()
    with made._turn():
        waiting = threading.Thread(target=made.check, args=(None, RIGHT))
        waiting.start()
        while made._places._value:
            time.sleep(0.001)
        with pytest.raises(Unavailable):
            made.check(None, RIGHT)
    waiting.join()
    assert time.monotonic() - began < 20
    assert made.check(made.hash(RIGHT), RIGHT).right
