"""Lockout after failed logins, and the rate limit of logins."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from auth.login import lockout
from auth.login.lockout import LockoutPolicy, check_rate_limit, lockout_delay_s
from storage.catalog import Catalog, login
from storage.errors import TooManyRequests
from storage.rate_limits import Rate

pytestmark = pytest.mark.spec("LOG-05", "LOG-06")

NOW = 1_700_000_000.0
PATIENCE = LockoutPolicy(pair=3, address=6, account=10, cap_s=60)
ADA, BOB = (
    lockout.pair_key("ada@example.org", "192.0.2.1"),
    lockout.pair_key("bob@example.org", "x"),
)
HERE, THERE = lockout.address_key("192.0.2.1"), lockout.address_key("192.0.2.2")
EVERYWHERE = lockout.account_key("ada@example.org")


def enter(catalog: Catalog, *whose: str, at: float = 0.0) -> lockout.CountedAttempt:
    return lockout.count_attempt(catalog, whose, PATIENCE, NOW + at)


def waits(catalog: Catalog, *whose: str, at: float = 0.0) -> int:
    with pytest.raises(TooManyRequests) as caught:
        enter(catalog, *whose, at=at)
    return caught.value.retry_after_s or 0


def test_waits_double_up_to_the_longest() -> None:
    assert [lockout_delay_s(failures, 3, 60) for failures in range(1, 12)] == [
        *(0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60)
    ]
    assert lockout_delay_s(10_000, 3, 60) == 60


def test_failures_at_address_delay_next_attempt(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    assert waits(catalog, ADA, HERE) == 1
    enter(catalog, BOB, HERE)
    enter(catalog, ADA, HERE, at=1)
    assert waits(catalog, ADA, HERE, at=2) == 1
    assert waits(catalog, ADA, THERE, at=2) == 1


def test_address_is_delayed_for_all_accounts(catalog: Catalog) -> None:
    for number in range(6):
        enter(catalog, lockout.account_key(f"{number}@example.org"), HERE)
    assert waits(catalog, BOB, HERE) == 1
    enter(catalog, BOB, THERE)


def test_refused_tries_do_not_prolong_the_wait(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    for _ in range(20):
        waits(catalog, ADA, HERE, at=0.5)
    enter(catalog, ADA, HERE, at=1)


def test_refused_attempt_is_not_counted(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, HERE)
    for _ in range(20):
        waits(catalog, ADA, THERE)
    with catalog.read() as tx:
        assert login.find_failures(tx, THERE) is None


def test_user_with_right_password_is_never_locked_out_long(catalog: Catalog) -> None:
    at = 0.0
    for _ in range(50):
        try:
            enter(catalog, ADA, HERE, at=at)
        except TooManyRequests as error:
            at += error.retry_after_s or 0
    assert waits(catalog, ADA, THERE, at=at - 0.5) <= 60
    counted = enter(catalog, ADA, THERE, at=at + 60)
    with catalog.write() as tx:
        lockout.forgive_attempt(tx, counted)
    for _ in range(3):
        enter(catalog, ADA, THERE, at=at + 60)


def test_right_password_uncounts_only_its_own_attempt(
    catalog: Catalog,
) -> None:
    for number in range(5):
        enter(catalog, lockout.account_key(f"{number}@example.org"), HERE)
    for _ in range(10):
        # An attacker's own account, again and again, does not wash his address clean.
        counted = enter(catalog, BOB, HERE)
        with catalog.write() as tx:
            lockout.forgive_attempt(tx, counted)
    enter(catalog, ADA, HERE)
    assert waits(catalog, BOB, HERE) == 1


def test_strangers_do_not_lock_out_a_browser_that_is_known(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA, THERE)
    assert waits(catalog, ADA, THERE) == 1
    known = lockout.browser_key("xyz")
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
        login.expire_failures(tx, int((NOW + 3 * 86_400) * 1e6))
    with catalog.read() as tx:
        assert login.find_failures(tx, ADA) is None


def test_an_operator_unlocks_at_once(catalog: Catalog) -> None:
    for _ in range(3):
        enter(catalog, ADA)
    waits(catalog, ADA)
    with catalog.write() as tx:
        assert login.clear_failures(tx, ADA)
        assert not login.clear_failures(tx, ADA)
    enter(catalog, ADA)


def test_concurrent_attempts_are_all_counted(catalog: Catalog) -> None:
    def guess(_: int) -> bool:
        try:
            enter(catalog, ADA, HERE)
        except TooManyRequests:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(guess, range(40))) == 3


def guess(catalog: Catalog, address: str, at: float) -> None:
    whose = (lockout.pair_key("ada@example.org", address), EVERYWHERE, lockout.address_key(address))
    enter(catalog, *whose, at=at)


def test_attacker_is_locked_out_and_user_elsewhere_is_not(catalog: Catalog) -> None:
    for _ in range(3):
        guess(catalog, "198.51.100.9", 0)
    with pytest.raises(TooManyRequests):
        guess(catalog, "198.51.100.9", 0)
    guess(catalog, "192.0.2.1", 0)


def test_distributed_guessing_is_slowed_down_to_one_try_a_minute(catalog: Catalog) -> None:
    told_s: list[int] = []
    for second in range(3_600):
        try:
            guess(catalog, f"2001:db8:{second:x}::/64", second)
        except TooManyRequests as error:
            told_s.append(error.retry_after_s or 0)
    assert max(told_s) <= 60
    assert 3_600 - len(told_s) <= 10 + 6 + 60
    enter(catalog, lockout.browser_key("known"), at=3_600)


def test_right_password_keeps_failures_of_others(catalog: Catalog) -> None:
    for number in range(9):
        guess(catalog, f"198.51.100.{number}", 0)
    counted = enter(catalog, ADA, EVERYWHERE, HERE)
    with catalog.write() as tx:
        lockout.forgive_attempt(tx, counted)
    guess(catalog, "198.51.100.99", 0)
    with pytest.raises(TooManyRequests):
        guess(catalog, "198.51.100.100", 0)


def test_names_of_any_length_are_counted(catalog: Catalog) -> None:
    long = lockout.account_key("x" * 10_000), lockout.address_key("y" * 10_000)
    assert enter(catalog, *long) == dict.fromkeys(long, 1)
    assert enter(catalog, *long) == dict.fromkeys(long, 2)


RATE = Rate(per_minute=60, burst=3)


def taken(catalog: Catalog, who: str, at: float, rate: Rate = RATE) -> int:
    """0, or the seconds to wait."""
    try:
        check_rate_limit(catalog, who, rate, NOW + at)
    except TooManyRequests as error:
        return error.retry_after_s or 0
    return 0


def test_allows_burst_then_rate(catalog: Catalog) -> None:
    assert [taken(catalog, "a", 0) for _ in range(5)] == [0, 0, 0, 1, 1]
    assert [taken(catalog, "a", 1) for _ in range(2)] == [0, 1]
    assert taken(catalog, "b", 0) == 0
    assert [taken(catalog, "a", 100) for _ in range(4)] == [0, 0, 0, 1]


def test_without_rate_everything_is_allowed(catalog: Catalog) -> None:
    assert {taken(catalog, "a", 0, Rate(0, 0)) for _ in range(50)} == {0}


def test_forgets_full_buckets(catalog: Catalog) -> None:
    taken(catalog, "a", 0)
    taken(catalog, "b", 1_000)
    with catalog.read() as tx:
        found = tx.exec_driver_sql("SELECT who FROM rates").scalars().all()
    assert found == ["b"]
