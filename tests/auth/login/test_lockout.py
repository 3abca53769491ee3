from concurrent.futures import ThreadPoolExecutor

import pytest

from auth.login import lockout
from auth.login.lockout import Patience, delay_s
from storage.catalog import Catalog, tries
from storage.errors import TooMany

NOW = 1_700_000_000.0
PATIENCE = Patience(pair=3, address=6, account=10, cap_s=60)
ADA, BOB = lockout.pair("ada@example.org", "192.0.2.1"), lockout.pair("bob@example.org", "x")
HERE, THERE = lockout.address("192.0.2.1"), lockout.address("192.0.2.2")
EVERYWHERE = lockout.account("ada@example.org")


def enter(catalog: Catalog, *whose: str, at: float = 0.0) -> lockout.Counted:
    return lockout.enter(catalog, whose, PATIENCE, NOW + at)


def waits(catalog: Catalog, *whose: str, at: float = 0.0) -> int:
    with pytest.raises(TooMany) as caught:
        enter(catalog, *whose, at=at)
    return caught.value.retry_after_s or 0


def test_waits_double_up_to_the_longest() -> None:
    assert [delay_s(failures, 3, 60) for failures in range(1, 12)] == [
        *(0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60)
    ]
    assert delay_s(10_000, 3, 60) == 60


def test_failures_at_an_address_make_the_next_try_there_wait(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    assert waits(catalog, ADA, HERE) == 1
    enter(catalog, BOB, HERE)
    enter(catalog, ADA, HERE, at=1)
    assert waits(catalog, ADA, HERE, at=2) == 1
    assert waits(catalog, ADA, THERE, at=2) == 1


def test_an_address_waits_whatever_accounts_it_tries(catalog: Catalog) -> None:
    for number in range(6):
        enter(catalog, lockout.account(f"{number}@example.org"), HERE)
    assert waits(catalog, BOB, HERE) == 1
    enter(catalog, BOB, THERE)


def test_refused_tries_do_not_prolong_the_wait(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    for _ in range(20):
        waits(catalog, ADA, HERE, at=0.5)
    enter(catalog, ADA, HERE, at=1)


def test_a_refused_try_counts_for_nobody(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    for _ in range(20):
        waits(catalog, ADA, THERE)
    with catalog.read() as tx:
        assert tries.find(tx, THERE) is None


def test_who_knows_the_password_is_never_locked_out_for_long(catalog: Catalog) -> None:
    at = 0.0
    for _ in range(50):
        try:
            enter(catalog, ADA, HERE, at=at)
        except TooMany as error:
            at += error.retry_after_s or 0
    assert waits(catalog, ADA, THERE, at=at - 0.5) <= 60
    counted = enter(catalog, ADA, THERE, at=at + 60)
    with catalog.write() as tx:
        lockout.passed(tx, counted)
    for _ in range(3):
        enter(catalog, ADA, THERE, at=at + 60)


def test_a_right_password_takes_its_try_back_and_leaves_the_address_its_others(
    catalog: Catalog,
) -> None:
    for number in range(5):
        enter(catalog, lockout.account(f"{number}@example.org"), HERE)
    for _ in range(10):
        # An attacker's own account, again and again, does not wash his address clean.
        counted = enter(catalog, BOB, HERE)
        with catalog.write() as tx:
            lockout.passed(tx, counted)
    enter(catalog, ADA, HERE)
    assert waits(catalog, BOB, HERE) == 1


def test_strangers_do_not_lock_out_a_browser_that_is_known(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, THERE)
    assert waits(catalog, ADA, THERE) == 1
    known = lockout.browser("xyz")
    enter(catalog, known, HERE)
    for _ in range(2):
        enter(catalog, known, HERE)
    assert waits(catalog, known, HERE) == 1


def test_failures_are_forgotten_after_a_day(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA)
    for _ in range(3):
        enter(catalog, ADA, at=86_401)
    assert waits(catalog, ADA, at=86_401) == 1
    with catalog.write() as tx:
        tries.forget(tx, int((NOW + 3 * 86_400) * 1e6))
    with catalog.read() as tx:
        assert tries.find(tx, ADA) is None


def test_an_operator_unlocks_at_once(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA)
    waits(catalog, ADA)
    with catalog.write() as tx:
        assert tries.forgive(tx, ADA)
        assert not tries.forgive(tx, ADA)
    enter(catalog, ADA)


def test_tries_that_come_together_are_all_counted(catalog: Catalog) -> None:
    def guess(_: int) -> bool:
        try:
            enter(catalog, ADA, HERE)
        except TooMany:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(guess, range(40))) == 3


def guess(catalog: Catalog, address: str, at: float) -> None:
    whose = (lockout.pair("ada@example.org", address), EVERYWHERE, lockout.address(address))
    enter(catalog, *whose, at=at)


def test_an_attacker_is_locked_out_and_the_user_elsewhere_is_not(catalog: Catalog) -> None:
    for _ in range(3):
        guess(catalog, "198.51.100.9", 0)
    with pytest.raises(TooMany):
        guess(catalog, "198.51.100.9", 0)
    guess(catalog, "192.0.2.1", 0)


def test_distributed_guessing_is_slowed_down_to_one_try_a_minute(catalog: Catalog) -> None:
    told_s: list[int] = []
    for second in range(3_600):
        try:
            guess(catalog, f"2001:db8:{second:x}::/64", second)
        except TooMany as error:
            told_s.append(error.retry_after_s or 0)
    assert max(told_s) <= 60
    assert 3_600 - len(told_s) <= 10 + 6 + 60
    enter(catalog, lockout.browser("known"), at=3_600)


def test_a_right_password_does_not_forget_what_others_tried(catalog: Catalog) -> None:
    for number in range(9):
        guess(catalog, f"198.51.100.{number}", 0)
    counted = enter(catalog, ADA, EVERYWHERE, HERE)
    with catalog.write() as tx:
        lockout.passed(tx, counted)
    guess(catalog, "198.51.100.99", 0)
    with pytest.raises(TooMany):
        guess(catalog, "198.51.100.100", 0)


def test_names_of_any_length_are_counted(catalog: Catalog) -> None:
    long = lockout.account("x" * 10_000), lockout.address("y" * 10_000)
    assert enter(catalog, *long).failures == dict.fromkeys(long, 1)
    assert enter(catalog, *long).failures == dict.fromkeys(long, 2)
