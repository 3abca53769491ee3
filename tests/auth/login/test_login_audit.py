"""Logins are recorded in the audit log."""

import json

import pytest

from auth.login import lockout, passwords
from auth.login.lockout import LockoutPolicy
from auth.login.sessions import (
    AUDIT_WINDOW_S,
    MAX_AUDITED_FAILURES,
    LoginFailure,
    record_login_failure,
)
from storage.catalog import Catalog, audit
from storage.catalog.audit import AuditFilter, AuditRecord
from storage.errors import TooManyRequests, Unauthorized
from tests.auth.login.builders import ADA, NOW, local_of, tried

pytestmark = pytest.mark.spec("LOG-10")

HERE = lockout.address_key("192.0.2.1")


def told(catalog: Catalog, what: str = "login_failed") -> list[AuditRecord]:
    """The oldest first."""
    with catalog.read() as tx:
        return audit.list_records(tx, AuditFilter(what=what), before_id=None, limit=1_000)[::-1]


def fail(catalog: Catalog, *keys: str, times: int = 1, at: float = 0.0) -> None:
    for _ in range(times):
        with catalog.write() as tx:
            record_login_failure(
                tx, "login_failed", LoginFailure(ADA, NOW + at, "id"), keys=keys, address="x"
            )


def test_limits_logged_failures_per_hour(catalog: Catalog) -> None:
    fail(catalog, HERE, times=MAX_AUDITED_FAILURES + 37)
    assert len(told(catalog)) == MAX_AUDITED_FAILURES
    fail(catalog, HERE, at=AUDIT_WINDOW_S - 1)
    assert len(told(catalog)) == MAX_AUDITED_FAILURES
    fail(catalog, HERE, at=AUDIT_WINDOW_S, times=2)
    said = [json.loads(one.after or "") for one in told(catalog)]
    assert len(said) == MAX_AUDITED_FAILURES + 2
    assert said[-2:] == [{"address": "x", "untold": 38}, {"address": "x"}]
    assert not any("untold" in one for one in said[:-2])


def test_limits_logged_failures_per_account_over_all_addresses(catalog: Catalog) -> None:
    for number in range(MAX_AUDITED_FAILURES + 10):
        fail(catalog, lockout.account_key(ADA), lockout.address_key(f"192.0.2.{number}"))
    assert len(told(catalog)) == MAX_AUDITED_FAILURES
    fail(catalog, lockout.account_key("bob@example.org"), HERE)
    assert len(told(catalog)) == MAX_AUDITED_FAILURES + 1


def test_quiet_hour_resets_limit(catalog: Catalog) -> None:
    fail(catalog, HERE, times=MAX_AUDITED_FAILURES)
    fail(catalog, HERE, at=AUDIT_WINDOW_S)
    assert "untold" not in (told(catalog)[-1].after or "")


def test_guessing_without_a_lock_out_does_not_fill_the_log(catalog: Catalog) -> None:
    provider = local_of(catalog, LockoutPolicy(pair=10_000, address=10_000, account=10_000))
    for number in range(MAX_AUDITED_FAILURES * 2):
        try:
            passwords.check_login(
                provider, tried(email=f"{number}@example.org"), "a wrong password"
            )
        except Unauthorized:
            continue
    assert len(told(catalog)) == MAX_AUDITED_FAILURES


def test_logs_lockouts_beyond_limit_of_failures(catalog: Catalog) -> None:
    """The lock-out of an address comes after more failures than are told."""
    provider = local_of(
        catalog,
        LockoutPolicy(pair=10_000, address=MAX_AUDITED_FAILURES + 5, account=10_000, cap_s=60),
    )
    for number in range(MAX_AUDITED_FAILURES + 6):
        try:
            passwords.check_login(
                provider, tried(email=f"{number}@example.org"), "a wrong password"
            )
        except (Unauthorized, TooManyRequests):
            continue
    assert len(told(catalog)) == MAX_AUDITED_FAILURES
    (locked,) = told(catalog, "locked_out")
    assert json.loads(locked.after or "") == {"locked": HERE, "wait_s": 1}
