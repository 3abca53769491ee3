"""Login sessions and their expiry."""

from dataclasses import replace

import pytest

from auth.login import sessions
from auth.login.sessions import SessionLifetimes
from storage.catalog import Catalog, login

pytestmark = pytest.mark.spec("LOG-07")

NOW = 1_700_000_000.0
LIFETIMES = SessionLifetimes(whole_s=43_200, idle_s=3_600)


def begun(catalog: Catalog, email: str = "ada@example.org") -> str:
    with catalog.write() as tx:
        return sessions.create_session(tx, email, "local", now=NOW, lifetimes=LIFETIMES)[0]


def test_session_is_found_by_cookie_only(catalog: Catalog) -> None:
    cookie = begun(catalog)
    found = sessions.find_session(catalog, cookie, NOW + 1)
    assert found is not None
    assert (found.email, found.provider, found.at_s) == ("ada@example.org", "local", NOW)
    for other in (None, "", found.id, cookie + "x", cookie[:-1], "\ud800", found.csrf):
        assert sessions.find_session(catalog, other, NOW + 1) is None


def test_each_login_creates_new_session(catalog: Catalog) -> None:
    first, second = begun(catalog), begun(catalog)
    one, other = (sessions.find_session(catalog, cookie, NOW) for cookie in (first, second))
    assert one is not None
    assert other is not None
    assert len({first, second, one.id, other.id, one.csrf, other.csrf}) == 6


def test_stored_digest_opens_no_session(catalog: Catalog) -> None:
    cookie = begun(catalog)
    found = sessions.find_session(catalog, cookie, NOW)
    assert found is not None
    with catalog.read() as tx:
        row = login.find_session(tx, found.id)
    assert row is not None
    assert cookie not in str(row)
    assert found.csrf not in str(row)


def test_idle_session_expires_and_used_one_does_not(catalog: Catalog) -> None:
    idle, used = begun(catalog), begun(catalog)
    for step in range(1, 5):
        assert sessions.find_session(catalog, used, NOW + step * 1_800)
    assert sessions.find_session(catalog, idle, NOW + 3_601) is None
    assert sessions.find_session(catalog, used, NOW + 4 * 1_800 + 3_599)


def test_used_session_expires_at_its_limit(catalog: Catalog) -> None:
    cookie = begun(catalog)
    for step in range(1, 24):
        assert sessions.find_session(catalog, cookie, NOW + step * 1_800)
    assert sessions.find_session(catalog, cookie, NOW + 43_200) is None


def test_ended_session_is_ended_everywhere(catalog: Catalog) -> None:
    mine, other, stranger = begun(catalog), begun(catalog), begun(catalog, "bob@example.org")
    with catalog.write() as tx:
        assert sessions.delete_session(tx, mine)
        assert not sessions.delete_session(tx, mine)
        assert not sessions.delete_session(tx, None)
    assert sessions.find_session(catalog, mine, NOW) is None
    with catalog.write() as tx:
        login.end_logins(tx, "ada@example.org")
    assert sessions.find_session(catalog, other, NOW) is None
    assert sessions.find_session(catalog, stranger, NOW)


def test_new_sessions_remove_expired_ones(catalog: Catalog) -> None:
    cookie = begun(catalog)
    found = sessions.find_session(catalog, cookie, NOW)
    assert found is not None
    with catalog.write() as tx:
        sessions.create_session(tx, "b@example.org", "local", now=NOW + 43_201, lifetimes=LIFETIMES)
    with catalog.read() as tx:
        assert login.find_session(tx, found.id) is None


def test_cookies_of_https_are_bound_to_their_host() -> None:
    assert (
        sessions.host_cookie_name(sessions.SESSION_COOKIE, "https://auth.example")
        == "__Host-store-session"
    )
    assert (
        sessions.host_cookie_name(sessions.SESSION_COOKIE, "http://127.0.0.1:8001")
        == "store-session"
    )


def test_ended_row_is_not_live() -> None:
    row = login.SessionRow("1", "a@b", "local", 0, 0, 10, 100)
    assert row.is_live(9)
    assert not row.is_live(10)
    assert replace(row, seen_us=95).is_live(99)
    assert not replace(row, seen_us=95).is_live(100)


def test_live_sessions_of_a_user_are_listed_by_last_use(catalog: Catalog) -> None:
    first, second = begun(catalog), begun(catalog)
    begun(catalog, "bob@example.org")
    sessions.find_session(catalog, first, NOW + 120)
    listed = sessions.list_browser_sessions(catalog, "ada@example.org", NOW + 200)
    assert [(row.seen_us, row.provider) for row in listed] == [
        (int((NOW + 120) * 1e6), "local"),
        (int(NOW * 1e6), "local"),
    ]
    later = NOW + 120 + LIFETIMES.idle_s
    assert sessions.list_browser_sessions(catalog, "ada@example.org", later) == []
    assert sessions.find_session(catalog, second, NOW + 1)
