"""The authorization endpoint, with its login and consent pages."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from storage.catalog import Catalog, accounts
from storage.catalog.sql import parse
from tests.api.authz.oauth.builders import (
    ADA,
    BASE,
    URI,
    Browser,
    hidden,
    of_portal,
    query,
    request,
)
from tests.auth.builders import NOW, Clock

pytestmark = pytest.mark.spec("OID-03")


def grants(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return int(tx.execute(parse("SELECT count(*) FROM grants")).scalar_one())


def test_logged_in_user_with_consent_gets_code_at_once(browser: Browser) -> None:
    browser.log_in()
    browser.code()
    response = browser.authorize()
    assert response.status_code == 302
    assert response.headers["Location"].startswith(URI + "?")
    told = query(response)
    assert told.keys() == {"code", "state", "iss"}
    assert (told["state"], told["iss"]) == ("the state", BASE)
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.spec("LOG-13")
def test_head_request_gets_no_code(browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    refused = browser.head("/oauth/authorize?" + urlencode(request()))
    assert (refused.status_code, refused.headers.get("Location")) == (405, None)
    assert refused.headers["Allow"] == "GET, OPTIONS, POST"
    assert grants(catalog) == 0
    options = browser.client.options("/oauth/authorize", base_url=BASE)
    assert options.headers["Allow"] == "GET, OPTIONS, POST"


def test_anonymous_user_logs_in_and_returns_to_request(browser: Browser) -> None:
    away = browser.authorize()
    assert away.status_code == 302
    assert away.headers["Location"].startswith("/login?")
    told = query(away)
    assert told.keys() == {"redirect_uri"}
    assert told["redirect_uri"].startswith("/oauth/authorize?continue=")
    assert URI not in away.headers["Location"]
    browser.log_in()
    assert query(browser.allow(browser.back(away)))["state"] == "the state"


def test_login_accepts_sealed_request(browser: Browser) -> None:
    response = browser.get(browser.authorize().headers["Location"])
    assert response.status_code == 302
    assert urlsplit(response.headers["Location"]).path.startswith("/login/")


def test_first_login_creates_user_record(browser: Browser, catalog: Catalog) -> None:
    browser.log_in("new@example.org")
    browser.code()
    with catalog.read() as tx:
        assert accounts.find(tx, accounts.AccountKey("user", "new@example.org")) is not None


@pytest.mark.spec("OID-04")
@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "nobody"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": ["https://evil.example/", URI]},
        {"redirect_uri": None},
    ],
)
@pytest.mark.parametrize("logged_in", [True, False])
def test_shows_errors_before_redirect_uri_is_known(
    browser: Browser, catalog: Catalog, changed: dict[str, Any], logged_in: bool
) -> None:
    if logged_in:
        browser.log_in()
    response = browser.authorize(**changed)
    assert response.status_code == 400
    assert "Location" not in response.headers
    assert response.content_type.startswith("text/html")
    assert "evil" not in response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert grants(catalog) == 0


def test_redirects_later_errors_to_client(browser: Browser) -> None:
    response = browser.authorize(code_challenge_method="plain")
    assert response.status_code == 302
    told = query(response)
    assert told.pop("error_description")
    assert told == {"error": "invalid_request", "state": "the state", "iss": BASE}


def test_prompt_none_never_shows_a_page(browser: Browser, portal: str) -> None:
    assert query(browser.authorize(prompt="none"))["error"] == "login_required"
    browser.log_in()
    assert query(browser.authorize(prompt="none"))["error"] == "consent_required"
    browser.code()
    assert "code" in query(browser.authorize(prompt="none"))
    asked = browser.authorize(**of_portal(prompt="none"))
    assert query(asked)["error"] == "consent_required"


@pytest.mark.parametrize("changed", [{"prompt": "login"}, {"max_age": "0"}])
def test_old_login_is_renewed_without_loop(
    browser: Browser, clock: Clock, changed: dict[str, str]
) -> None:
    browser.log_in()
    clock.now += 60
    away = browser.authorize(**changed)
    assert query(away)["prompt"] == "login"
    clock.now += 60
    # Came back without having logged in.
    assert browser.back(away).headers["Location"].startswith("/login?")
    browser.log_in()
    assert "code" in query(browser.allow(browser.back(away)))


def test_disabled_user_returns_without_code(
    browser: Browser, disable: Callable[[str], None], catalog: Catalog
) -> None:
    browser.log_in()
    page = browser.authorize()
    disable(ADA)
    assert "code" not in query(browser.authorize())
    assert browser.allow(page).status_code == 400
    assert grants(catalog) == 0


def test_a_request_that_waited_too_long_is_over(browser: Browser, clock: Clock) -> None:
    away = browser.authorize()
    browser.log_in()
    clock.now = NOW + 3601
    response = browser.back(away)
    assert response.status_code == 400
    assert "Location" not in response.headers


@pytest.mark.parametrize("forged", ["", "x", "A" * 2000, "é"])
def test_a_forged_request_is_shown_as_wrong(browser: Browser, forged: str) -> None:
    browser.log_in()
    assert browser.get("/oauth/authorize?" + urlencode({"continue": forged})).status_code == 400


def test_a_request_that_is_too_long_to_carry_is_not_carried(browser: Browser) -> None:
    long = browser.authorize(state="é" * 2000)
    assert long.status_code == 400
    browser.log_in()
    page = browser.authorize(state="é" * 2000)
    assert query(browser.allow(page))["state"] == "é" * 2000


def test_accepts_request_as_form(browser: Browser) -> None:
    browser.log_in()
    response = browser.post("/oauth/authorize", request())
    assert response.status_code == 303
    assert "code" in query(browser.allow(browser.get(response.headers["Location"])))


def asked(browser: Browser, **changed: Any) -> tuple[Any, dict[str, str]]:
    page = browser.authorize(**of_portal(**changed))
    assert page.status_code == 200, page.headers
    return page, hidden(page)


def test_third_party_client_asks_for_consent_once(browser: Browser, portal: str) -> None:
    browser.log_in()
    page, form = asked(browser)
    assert "Portal" in page.text
    assert ADA in page.text
    assert "portal.example" in page.text
    # Whatever the scopes are, its tokens may all of it, and are renewed.
    for said in ("everything you can do in the data store", "managing users", "while you are away"):
        assert said in page.text
    response = browser.post("/oauth/consent", {**form, "decision": "allow"})
    assert response.status_code == 303
    assert response.headers["Location"].startswith("https://portal.example/back?code=")
    assert query(response)["state"] == "the state"
    assert "code" in query(browser.authorize(**of_portal()))
    # More than was agreed to is asked about.
    asked(browser, scope="openid email groups offline_access")
    asked(browser, prompt="consent")


def test_the_command_line_client_shows_the_consent_page_once_in_a_session(
    browser: Browser, catalog: Catalog
) -> None:
    browser.log_in()
    page = browser.authorize()
    assert page.status_code == 200
    assert grants(catalog) == 0
    # Which app, what it may do, where the answer goes, and that nobody can tell which program asks.
    for said in (
        "the store&#39;s command-line client",
        "everything you can do in the data store",
        "a program on this computer (127.0.0.1, port 5000)",
        "Any program on this computer can use this name",
    ):
        assert said in page.text
    refused = query(browser.allow(page, "deny"))
    assert (refused["error"], refused["state"]) == ("access_denied", "the state")
    assert grants(catalog) == 0
    # A page in another tab is as good.
    tab = browser.authorize(state="another", redirect_uri="http://[::1]:6000/")
    assert query(browser.allow(page))["state"] == "the state"
    assert query(browser.allow(tab))["state"] == "another"
    assert "code" in query(browser.authorize(prompt="none"))
    assert browser.authorize(scope="openid profile").status_code == 200
    assert browser.authorize(prompt="consent").status_code == 200
    # The next login is another session, though the same person's: a form of the last is no consent.
    browser.log_in()
    assert query(browser.authorize(prompt="none"))["error"] == "consent_required"
    assert browser.allow(page).status_code == 400
    assert browser.authorize().status_code == 200


def test_rejects_consent_form_of_another_site(browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    page = browser.authorize()
    for site in ("cross-site", "same-site"):
        browser.headers["Sec-Fetch-Site"] = site
        assert browser.allow(page).status_code == 400
    assert grants(catalog) == 0


def test_denial_returns_to_client_and_is_not_remembered(browser: Browser, portal: str) -> None:
    browser.log_in()
    _, form = asked(browser)
    for decision in ({"decision": "deny"}, {}, {"decision": "Allow"}):
        response = browser.post("/oauth/consent", {**form, **decision})
        assert query(response)["error"] == "access_denied"
    asked(browser)


@pytest.mark.spec("OID-12")
def test_rejects_consent_of_another_user(browser: Browser, portal: str, catalog: Catalog) -> None:
    browser.log_in()
    _, form = asked(browser)
    browser.log_in("eve@example.org")
    _, other = asked(browser)
    allow = {"decision": "allow"}
    mixed = [
        {**form, **allow},
        {**other, "csrf": form["csrf"], **allow},
        {"csrf": other["csrf"], "carried": form["carried"], **allow},
        {"csrf": other["csrf"], "carried": "forged", **allow},
        {"carried": other["carried"], **allow},
        {**other, "csrf": "é", **allow},
        allow,
    ]
    for sent in mixed:
        response = browser.post("/oauth/consent", sent)
        assert response.status_code == 400, sent
        assert "Location" not in response.headers
    browser.log_out()
    assert browser.post("/oauth/consent", {**other, **allow}).status_code == 400
    assert grants(catalog) == 0


def test_rejects_consent_form_of_another_session(browser: Browser, portal: str) -> None:
    away = browser.authorize(**of_portal())
    carried = query(away)["redirect_uri"].partition("continue=")[2]
    browser.log_in()
    _, form = asked(browser)
    response = browser.post("/oauth/consent", {**form, "carried": carried, "decision": "allow"})
    assert response.status_code == 400


def test_consent_page_is_not_framed_or_scripted(browser: Browser, portal: str) -> None:
    browser.log_in()
    page, _ = asked(browser)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    # A browser would hold the redirect to the client to it.
    assert "form-action" not in policy
    assert "<script" not in page.text
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Cache-Control"] == "no-store"


def test_escapes_request_parameters(browser: Browser, portal: str, catalog: Catalog) -> None:
    browser.log_in('"><b>@example.org')
    page, form = asked(browser, state='"><script>')
    assert "<b>" not in page.text
    assert "<script>" not in page.text
    assert form.keys() == {"csrf", "carried"}
