"""Consents of a user, listed and withdrawn in the browser."""

import re
from urllib.parse import urlencode

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from auth.login import users
from auth.login.passwords import PasswordHashing
from auth.oauth import clients
from auth.oauth.clients import NewOAuthClient
from auth.secret_values import pkce_challenge
from config import Settings
from storage.catalog import Catalog, audit, oauth
from storage.catalog.audit import AuditFilter
from tests.api.authz.login.browser import ADA, BACK, RIGHT, Browser, browser_of, fields, query
from tests.api.authz.login.conftest import Make
from tests.auth.builders import NOW, Clock

pytestmark = pytest.mark.spec("LOG-14")

EVE = "eve@example.org"
ACCOUNT, END, EVERYWHERE = "/login/account", "/login/applications", "/login/everywhere"
LOOPBACK = "http://127.0.0.1:5000/callback"
VERIFIER = "a-verifier-of-43-characters-and-more-aaaaaaaaaaa"
HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
def app(make: Make, catalog: Catalog, settings: Settings) -> Flask:
    with catalog.write() as tx:
        new = NewOAuthClient("hostile", HOSTILE, (BACK,), public=True, first_party=True)
        clients.add_client(tx, new, int(NOW * 1e6))
    users.add_user(catalog, PasswordHashing(settings), EVE, RIGHT, now=NOW)
    return make()


def asking(client: str = "store-cli", back: str = LOOPBACK) -> str:
    """An application's request."""
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": back,
        "scope": "openid groups",
        "code_challenge": pkce_challenge(VERIFIER),
        "code_challenge_method": "S256",
    }
    return f"/oauth/authorize?{urlencode(asked)}"


def let_in(browser: Browser, client: str = "store-cli", back: str = LOOPBACK) -> dict[str, str]:
    """An application's tokens, of who is logged in."""
    gone = browser.get(asking(client, back))
    if gone.status_code == 200:
        gone = browser.post("/oauth/consent", {**fields(gone), "decision": "allow"})
    assert gone.status_code in (302, 303), gone.text
    form = {
        "grant_type": "authorization_code",
        "client_id": client,
        "redirect_uri": back,
        "code": query(gone.headers["Location"])["code"],
        "code_verifier": VERIFIER,
    }
    answer = browser.post("/oauth/token", form)
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json or {}
    return found


def holds(client: FlaskClient, tokens: dict[str, str]) -> bool:
    """Whether the access token is good."""
    sent = {"Authorization": f"Bearer {tokens['access_token']}"}
    return client.get("/oauth/userinfo", headers=sent).status_code == 200


def refresh(browser: Browser, tokens: dict[str, str]) -> int:
    form = {
        "grant_type": "refresh_token",
        "client_id": "store-cli",
        "refresh_token": tokens["refresh_token"],
    }
    return browser.post("/oauth/token", form).status_code


def shown(page: TestResponse) -> list[str]:
    """The ids of the grants on a page."""
    return re.findall(r'name="grant" value="([^"]+)"', page.text)


def test_shows_no_applications_without_consents(browser: Browser) -> None:
    browser.log_in()
    page = browser.get(ACCOUNT)
    assert (shown(page), "No application has access." in page.text) == ([], True)


def test_user_lists_and_revokes_consents(app: Flask, browser: Browser, clock: Clock) -> None:
    browser.log_in()
    first = let_in(browser)
    clock.now += 600
    other = let_in(browser)
    page = browser.get(ACCOUNT)
    assert page.text.count("the store&#39;s command-line client</strong>") == 2
    assert "Since 2023-11-14 22:13 UTC, last used 2023-11-14 22:13 UTC" in page.text
    assert "Scopes: openid, groups." in page.text
    (newest, oldest) = shown(page)
    answer = browser.post(END, {"csrf": fields(page)["csrf"], "grant": oldest})
    assert (answer.status_code, shown(answer)) == (200, [newest])
    assert "Access revoked" in answer.text
    assert not holds(browser.client, first)
    assert refresh(browser, first) == 400
    assert holds(browser.client, other)
    again = browser.post(END, {"csrf": fields(page)["csrf"], "grant": oldest})
    assert "already revoked" in again.text


def test_last_use_is_time_of_last_token(browser: Browser, clock: Clock) -> None:
    browser.log_in()
    tokens = let_in(browser)
    clock.now += 600
    assert refresh(browser, tokens) == 200
    assert "last used 2023-11-14 22:23 UTC" in browser.get(ACCOUNT).text


def test_revoked_application_must_ask_again(browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    let_in(browser)
    assert browser.get(asking()).status_code == 302
    page = browser.get(ACCOUNT)
    browser.post(END, {"csrf": fields(page)["csrf"], "grant": shown(page)[0]})
    with catalog.read() as tx:
        assert oauth.find_consent(tx, ADA, "store-cli") == frozenset()
        told = audit.list_records(tx, AuditFilter(what="end_grant"), before_id=None, limit=9)
    assert [(one.who, one.target, one.before) for one in told] == [
        (ADA, "client/store-cli", '{"scope": ["groups", "openid"]}')
    ]
    assert "Allow access?" in browser.get(asking()).text


def test_rejects_consents_of_other_users(app: Flask, browser: Browser) -> None:
    browser.log_in()
    tokens = let_in(browser)
    (hers,) = shown(browser.get(ACCOUNT))
    other = browser_of(app)
    other.log_in(EVE)
    page = other.get(ACCOUNT)
    assert shown(page) == []
    answer = other.post(END, {"csrf": fields(page)["csrf"], "grant": hers})
    assert "already revoked" in answer.text
    other.post(EVERYWHERE, {"csrf": fields(page)["csrf"]})
    assert holds(browser.client, tokens)
    assert browser.get(ACCOUNT).status_code == 200


@pytest.mark.parametrize("path", [END, EVERYWHERE])
def test_rejects_revocation_by_foreign_form_or_link(browser: Browser, path: str) -> None:
    browser.log_in()
    tokens = let_in(browser)
    page = browser.get(ACCOUNT)
    form = {"grant": shown(page)[0]}
    for sent in (form, {**form, "csrf": ""}, {**form, "csrf": "x" * 64}):
        assert browser.post(path, sent).status_code == 403
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    assert browser.post(path, {**form, "csrf": fields(page)["csrf"]}).status_code == 403
    del browser.headers["Sec-Fetch-Site"]
    assert browser.get(path).location.endswith(ACCOUNT)
    assert holds(browser.client, tokens)
    assert browser.get(ACCOUNT).status_code == 200


@pytest.mark.parametrize("path", [END, EVERYWHERE])
def test_redirects_anonymous_user_to_login(browser: Browser, path: str) -> None:
    answer = browser.post(path, {"grant": "x", "csrf": "x"})
    assert (answer.status_code, "/login?redirect_uri=/login/account" in answer.location) == (
        303,
        True,
    )


def test_user_logs_out_everywhere(app: Flask, browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    tokens = let_in(browser)
    other, eve = browser_of(app), browser_of(app)
    other.log_in()
    eve.log_in(EVE)
    answer = browser.post(EVERYWHERE, {"csrf": fields(browser.get(ACCOUNT))["csrf"]})
    assert (answer.status_code, "logged out in all browsers" in answer.text) == (200, True)
    assert not browser.cookie("store-session")
    for gone in (browser, other):
        assert gone.get(ACCOUNT).status_code == 302
    assert not holds(browser.client, tokens)
    assert eve.get(ACCOUNT).status_code == 200
    with catalog.read() as tx:
        (told,) = audit.list_records(
            tx, AuditFilter(what="logout_everywhere"), before_id=None, limit=9
        )
    assert told.who == ADA


def test_the_name_of_an_application_is_text_and_the_page_runs_no_script(browser: Browser) -> None:
    browser.log_in()
    let_in(browser, "hostile", BACK)
    page = browser.get(ACCOUNT)
    assert "<script" not in page.text
    assert page.text.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;") == 2
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert page.headers["Cache-Control"] == "no-store"
