import json

from auth.login import local, lockout
from auth.login.lockout import Patience
from auth.login.recording import MOST, SPAN_S, Failed, record_failure
from storage.catalog import Catalog, audit
from storage.catalog.audit import Filter, Recorded
from storage.errors import TooMany, Unauthorized
from tests.auth.login.builders import ADA, NOW, local_of, tried

HERE = lockout.address("192.0.2.1")


def told(catalog: Catalog, what: str = "login_failed") -> list[Recorded]:
    """The oldest first."""
    with catalog.read() as tx:
        return audit.listing(tx, Filter(what=what), before_id=None, limit=1_000)[::-1]


def fail(catalog: Catalog, *of: str, times: int = 1, at: float = 0.0) -> None:
    for _ in range(times):
        with catalog.write() as tx:
            record_failure(tx, "login_failed", Failed(ADA, NOW + at, "id"), of=of, address="x")


def test_failures_without_end_are_told_a_number_of_times_an_hour(catalog: Catalog) -> None:
    fail(catalog, HERE, times=MOST + 37)
    assert len(told(catalog)) == MOST
    fail(catalog, HERE, at=SPAN_S - 1)
    assert len(told(catalog)) == MOST
    fail(catalog, HERE, at=SPAN_S, times=2)
    said = [json.loads(one.after or "") for one in told(catalog)]
    assert len(said) == MOST + 2
    assert said[-2:] == [{"address": "x", "untold": 38}, {"address": "x"}]
    assert not any("untold" in one for one in said[:-2])


def test_an_account_is_told_of_as_often_from_wherever_it_is_tried(catalog: Catalog) -> None:
    for number in range(MOST + 10):
        fail(catalog, lockout.account(ADA), lockout.address(f"192.0.2.{number}"))
    assert len(told(catalog)) == MOST
    fail(catalog, lockout.account("bob@example.org"), HERE)
    assert len(told(catalog)) == MOST + 1


def test_a_quiet_hour_owes_nothing(catalog: Catalog) -> None:
    fail(catalog, HERE, times=MOST)
    fail(catalog, HERE, at=SPAN_S)
    assert "untold" not in (told(catalog)[-1].after or "")


def test_guessing_without_a_lock_out_does_not_fill_the_log(catalog: Catalog) -> None:
    provider = local_of(catalog, Patience(pair=10_000, address=10_000, account=10_000))
    for number in range(MOST * 2):
        try:
            local.check(provider, tried(email=f"{number}@example.org"), "a wrong password")
        except Unauthorized:
            continue
    assert len(told(catalog)) == MOST


def test_lock_outs_are_told_beside_failures_that_are_not(catalog: Catalog) -> None:
    """The lock-out of an address comes after more failures than are told."""
    provider = local_of(catalog, Patience(pair=10_000, address=MOST + 5, account=10_000, cap_s=60))
    for number in range(MOST + 6):
        try:
            local.check(provider, tried(email=f"{number}@example.org"), "a wrong password")
        except (Unauthorized, TooMany):
            continue
    assert len(told(catalog)) == MOST
    (locked,) = told(catalog, "locked_out")
    assert json.loads(locked.after or "") == {"locked": HERE, "wait_s": 1}
