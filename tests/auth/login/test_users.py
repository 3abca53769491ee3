"""What ends when somebody is shut out, or their password changes: all that their logins gave."""

import time
from collections.abc import Callable

import pytest

from auth.accounts import records
from auth.accounts.admitting import first_login
from auth.accounts.changing import By
from auth.login import sessions, users
from auth.login.local import change
from auth.login.passwords import Passwords
from auth.login.sessions import Lifetimes
from storage.catalog import Catalog, device_codes, grants
from storage.catalog.device_codes import APPROVED, DeviceRow
from storage.catalog.grants import GrantRow
from tests.auth.login.builders import ADA, CHEAP, NOW, RIGHT, local_of, tried, with_password

BOB = "bob@example.org"
LATER_US = 2**60
BY = By("admin@example.org", "a_test")


def disabled_and_enabled(catalog: Catalog) -> None:
    for status in ("disabled", "enabled"):
        records.set_status(catalog, ADA, status, BY)


def by_command(catalog: Catalog) -> None:
    users.change(catalog, Passwords(CHEAP), ADA, "another long password", NOW)


def by_the_user(catalog: Catalog) -> None:
    change(local_of(catalog), tried(at=time.time()), RIGHT, "another long password")


def removed(catalog: Catalog) -> None:
    users.remove(catalog, ADA)


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
    device = DeviceRow(
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
        first_login(tx, email)
        grants.add(tx, grant)
        device_codes.add(tx, device, 0)
        return sessions.begin(tx, email, "local", now=NOW, lifetimes=Lifetimes(10**6, 10**6))[0]


@pytest.mark.parametrize("act", [disabled_and_enabled, by_command, by_the_user, removed])
def test_all_that_their_logins_gave_ends(catalog: Catalog, act: Callable[[Catalog], None]) -> None:
    with_password(catalog)
    cookies = {email: _logged_in(catalog, email) for email in (ADA, BOB)}
    act(catalog)
    for email, stands in ((ADA, False), (BOB, True)):
        assert (sessions.current(catalog, cookies[email], NOW + 1) is not None) is stands
        with catalog.write() as tx:
            assert grants.stands(tx, f"grant of {email}", 2) is stands
            assert (device_codes.hold(tx, f"device of {email}") is not None) is stands
