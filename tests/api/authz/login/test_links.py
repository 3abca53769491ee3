"""One-time login links: the page, the login, and links that are used, expired or replaced."""

import html

import pytest
from flask import Flask

from auth.accounts import AuditContext, set_account_status
from auth.decisions import load_permissions
from auth.login import sessions
from auth.login.links import LINK_ERRORS, create_login_link
from config import Settings
from storage.catalog import Catalog, audit
from storage.catalog.audit import OPERATOR, AuditFilter
from storage.errors import Forbidden
from tests.api.authz.login.browser import ADA, Browser, browser_of, fields
from tests.api.authz.login.conftest import Make
from tests.auth.builders import NOW, Clock

pytestmark = pytest.mark.spec("LOG-16")

STORE = "https://store.example"


@pytest.fixture
def app(make: Make) -> Flask:
    return make(external_url=STORE)


@pytest.fixture
def link(app: Flask, catalog: Catalog, settings: Settings) -> str:
    return create_login_link(catalog, settings, ADA, now=NOW).url


def test_link_logs_in_once_and_leads_to_the_web_pages(
    browser: Browser, link: str, catalog: Catalog
) -> None:
    page = browser.get(link)
    assert page.status_code == 200
    assert ADA in page.text
    answer = browser.send(page)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{STORE}/login?next=/")
    found = sessions.find_session(catalog, browser.cookie("store-session"), NOW)
    assert found is not None
    assert (found.email, found.provider) == (ADA, "link")


def test_previews_of_a_link_do_not_use_it_up(app: Flask, browser: Browser, link: str) -> None:
    for _ in range(3):
        assert browser_of(app).get(link).status_code == 200
        assert browser_of(app).head(link).status_code == 200
    assert browser.send(browser.get(link)).status_code == 303


def test_used_link_says_so_and_logs_nobody_in(app: Flask, browser: Browser, link: str) -> None:
    other = browser_of(app)
    waiting = other.get(link)
    browser.send(browser.get(link))
    for answer in (other.get(link), other.send(waiting)):
        assert answer.status_code == 400
        assert LINK_ERRORS["used"] in html.unescape(answer.text)
    assert other.cookie("store-session") is None


def test_expired_link_says_so(browser: Browser, link: str, clock: Clock) -> None:
    page = browser.get(link)
    clock.now += 86_400
    for answer in (browser.get(link), browser.send(page)):
        assert answer.status_code == 400
        assert LINK_ERRORS["expired"] in html.unescape(answer.text)
    assert browser.cookie("store-session") is None


@pytest.mark.parametrize("query", ["", "?token=", "?token=%00", "?token=" + "x" * 43])
def test_rejects_unknown_link(browser: Browser, query: str) -> None:
    answer = browser.get(f"/login/link{query}")
    assert answer.status_code == 400
    assert LINK_ERRORS["unknown"] in html.unescape(answer.text)


def test_new_link_replaces_earlier_one(
    browser: Browser, link: str, catalog: Catalog, settings: Settings
) -> None:
    newer = create_login_link(catalog, settings, ADA, now=NOW).url
    assert browser.get(link).status_code == 400
    assert browser.get(newer).status_code == 200


def test_rejects_form_of_another_browser_or_site(app: Flask, browser: Browser, link: str) -> None:
    form = fields(browser_of(app).get(link))
    browser.get(link)
    assert browser.post("/login/link", form).status_code == 403
    page = browser.get(link)
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    assert browser.send(page).status_code == 403
    assert browser.cookie("store-session") is None


def test_disabling_a_user_ends_the_link(browser: Browser, link: str, catalog: Catalog) -> None:
    page = browser.get(link)
    set_account_status(catalog, ADA, "disabled", AuditContext("root@example.org", "test"))
    assert browser.send(page).status_code == 400
    assert browser.cookie("store-session") is None


def test_no_link_for_disabled_user(app: Flask, catalog: Catalog, settings: Settings) -> None:
    set_account_status(catalog, ADA, "disabled", AuditContext("root@example.org", "test"))
    with pytest.raises(Forbidden, match="disabled"):
        create_login_link(catalog, settings, ADA, now=NOW)


def test_default_link_is_of_the_administrator(catalog: Catalog, settings: Settings) -> None:
    link = create_login_link(catalog, settings, None, now=NOW)
    assert link.email == "admin@local"
    with catalog.read() as tx:
        assert "store_admin" in load_permissions(tx, "admin@local", (), settings).roles


def test_links_of_others_give_no_role(link: str, catalog: Catalog, settings: Settings) -> None:
    with catalog.read() as tx:
        assert load_permissions(tx, ADA, (), settings).roles == ("user_default",)


def test_creation_and_login_are_audited_without_the_token(
    browser: Browser, link: str, catalog: Catalog
) -> None:
    browser.send(browser.get(link))
    token = link.partition("token=")[2]
    with catalog.read() as tx:
        records = audit.list_records(
            tx, AuditFilter(target=f"user/{ADA}"), before_id=None, limit=10
        )
    assert [(one.who, one.what) for one in records][:2] == [
        (ADA, "login"),
        (OPERATOR, "create_login_link"),
    ]
    assert '"link"' in (records[0].after or "")
    assert token not in repr(records)


def test_link_page_has_a_rate(make: Make) -> None:
    browser = browser_of(make(login_rate_per_minute=2, login_rate_burst=2))
    codes = [browser.get("/login/link?token=x").status_code for _ in range(3)]
    assert codes == [400, 400, 429]


def test_page_allows_the_redirect_and_sends_no_referrer(browser: Browser, link: str) -> None:
    page = browser.get(link)
    assert f"form-action 'self' {STORE}" in page.headers["Content-Security-Policy"]
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
