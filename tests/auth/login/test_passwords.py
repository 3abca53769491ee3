"""Password hashing, and what a password change or a disabled account ends."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from auth import accounts
from auth.accounts import AuditContext, admit_at_login
from auth.login import passwords, sessions, users
from auth.login.passwords import PasswordCheck, PasswordHashing, change_own_password
from auth.login.sessions import SessionLifetimes
from storage.catalog import Catalog, oauth
from storage.catalog.oauth import APPROVED, DeviceCodeRow, GrantRow
from storage.errors import Invalid, Unavailable
from tests.auth.login.builders import ADA, CHEAP, NOW, RIGHT, local_of, tried, with_password

pytestmark = pytest.mark.spec("LOG-04", "LOG-12")


def test_stores_salted_argon2id_hash() -> None:
    made = PasswordHashing(CHEAP)
    one, other = made.hash(RIGHT), made.hash(RIGHT)
    assert one.startswith("$argon2id$")
    assert one != other
    assert RIGHT not in one
    assert made.check(one, RIGHT) == PasswordCheck(True)
    assert made.check(one, RIGHT + " ") == PasswordCheck(False)
    assert made.check(one, "") == PasswordCheck(False)


def test_rehashes_password_of_other_cost_at_login() -> None:
    old = PasswordHashing(CHEAP).hash(RIGHT)
    now = PasswordHashing(replace(CHEAP, password_memory_kib=128))
    found = now.check(old, RIGHT)
    assert found.new_hash is not None
    assert "m=128" in found.new_hash
    assert now.check(found.new_hash, RIGHT) == PasswordCheck(True)
    assert now.check(old, "another password") == PasswordCheck(False)


@pytest.mark.parametrize("stored", [None, "", "broken", "$argon2id$v=19$m=64"])
def test_no_password_matches_without_usable_hash(stored: str | None) -> None:
    assert PasswordHashing(CHEAP).check(stored, RIGHT) == PasswordCheck(False)


def test_unknown_user_costs_as_much_as_known_one() -> None:
    made = PasswordHashing(replace(CHEAP, password_memory_kib=8192, password_passes=4))
    stored = made.hash(RIGHT)
    made.check(None, RIGHT)

    def seconds(kept: str | None) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.thread_time()
            made.check(kept, "wrong password")
            best = min(best, time.thread_time() - began)
        return best

    assert seconds(None) > seconds(stored) / 3


def test_keyboards_may_spell_one_password_differently() -> None:
    made = PasswordHashing(CHEAP)
    assert made.check(made.hash("pass\u00e9word twelve"), "passe\u0301word twelve").right


@pytest.mark.parametrize(
    "bad",
    ["", "short", "a" * 40, "eleven char", "x" * 2000, "é" * 600, RIGHT + "\x00", "\t" + RIGHT],
)
def test_rejects_invalid_new_passwords(bad: str) -> None:
    with pytest.raises(Invalid) as caught:
        PasswordHashing(CHEAP).hash(bad)
    assert bad == "" or bad not in caught.value.detail


def test_a_password_that_is_too_long_is_wrong_and_is_not_cut() -> None:
    made = PasswordHashing(CHEAP)
    longest = ("abcdefgh" * 200)[: passwords.MAX_PASSWORD_BYTES]
    stored = made.hash(longest)
    assert made.check(stored, longest).right
    assert not made.check(stored, longest + "x").right


def test_odd_texts_are_wrong_and_nothing_else() -> None:
    made = PasswordHashing(CHEAP)
    stored = made.hash(RIGHT)
    for odd in ("\x00", "\ud800", "\uffff" * 12, RIGHT + "\x00"):
        assert made.check(stored, odd) == PasswordCheck(False)


def test_limits_concurrent_hashes() -> None:
    made = PasswordHashing(replace(CHEAP, passwords_at_once=1), patience_s=0.05)
    stored = made.hash(RIGHT)
    made.check(None, "")
    inside, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with made._limit_concurrency():
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


def test_limits_waiting_hashes() -> None:
    made = PasswordHashing(replace(CHEAP, passwords_at_once=1), patience_s=30)
    made.check(None, "")
    began = time.monotonic()
    with made._limit_concurrency():
        waiting = threading.Thread(target=made.check, args=(None, RIGHT))
        waiting.start()
        while made._places._value:
            time.sleep(0.001)
        with pytest.raises(Unavailable):
            made.check(None, RIGHT)
    waiting.join()
    assert time.monotonic() - began < 20
    assert made.check(made.hash(RIGHT), RIGHT).right


BOB = "bob@example.org"
LATER_US = 2**60
BY = AuditContext("admin@example.org", "a_test")


def disabled_and_enabled(catalog: Catalog) -> None:
    for status in ("disabled", "enabled"):
        accounts.set_account_status(catalog, ADA, status, BY)


def by_command(catalog: Catalog) -> None:
    users.change_user_password(catalog, PasswordHashing(CHEAP), ADA, "another long password", NOW)


def by_the_user(catalog: Catalog) -> None:
    change_own_password(local_of(catalog), tried(at=time.time()), RIGHT, "another long password")


def removed(catalog: Catalog) -> None:
    users.remove_password(catalog, ADA)


def _logged_in(catalog: Catalog, email: str) -> str:
    grant = GrantRow(
        id=f"grant of {email}",
        client="store-cli",
        email=email,
        scope="openid",
        auth_us=0,
        code=None,
        code_ends_us=None,
        redirect_uri=None,
        challenge=None,
        nonce=None,
        created_us=0,
        redeemed_us=1,
        revoked_us=None,
        ends_us=LATER_US,
    )
    device = DeviceCodeRow(
        id=f"device of {email}",
        user_code=f"code of {email}",
        client="store-cli",
        scope="openid",
        state=APPROVED,
        email=email,
        auth_us=0,
        interval_s=5,
        polled_us=None,
        ends_us=LATER_US,
    )
    with catalog.write() as tx:
        admit_at_login(tx, email)
        oauth.insert_grant(tx, grant)
        oauth.insert_device_code(tx, device, 0)
        return sessions.create_session(
            tx, email, "local", now=NOW, lifetimes=SessionLifetimes(10**6, 10**6)
        )[0]


@pytest.mark.parametrize("act", [disabled_and_enabled, by_command, by_the_user, removed])
def test_new_password_ends_sessions_and_grants(
    catalog: Catalog, act: Callable[[Catalog], None]
) -> None:
    with_password(catalog)
    cookies = {email: _logged_in(catalog, email) for email in (ADA, BOB)}
    act(catalog)
    for email, stands in ((ADA, False), (BOB, True)):
        assert (sessions.find_session(catalog, cookies[email], NOW + 1) is not None) is stands
        with catalog.write() as tx:
            assert oauth.is_grant_valid(tx, f"grant of {email}", 2) is stands
            assert (oauth.lock_device_code(tx, f"device of {email}") is not None) is stands
