"""Password login in the browser: sessions, CSRF protection, lockout."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from auth.login import sessions, users
from auth.login.passwords import PasswordHashing
from config import Settings
from storage.catalog import Catalog, audit, login
from storage.catalog.audit import OPERATOR, AuditFilter
from tests.api.authz.login.browser import ADA, BACK, BASE, RIGHT, Browser, browser_of, fields, links
from tests.api.authz.login.conftest import Make
from tests.auth.builders import NOW, Clock

PAGES = ("/login/select", "/login/local", "/login/account", "/logout", "/logout/done")


@pytest.mark.spec("LOG-01")
def test_login_returns_to_client_with_state(browser: Browser, catalog: Catalog) -> None:
    state = "a b&c=d%C3%A4/?#\u00e4"
    first = browser.client.get(
        "/login", query_string={"redirect_uri": BACK, "state": state}, base_url=BASE
    )
    assert first.status_code == 302
    page = browser.get(first.headers["Location"])
    answer = browser.send(page, email=ADA, password=RIGHT)
    assert answer.status_code == 303
    assert answer.headers["Location"] == (BACK + "?state=a+b%26c%3Dd%25C3%25A4%2F%3F%23%C3%A4")
    found = sessions.find_session(catalog, browser.cookie("store-session"), NOW)
    assert found is not None
    assert (found.email, found.provider) == (ADA, "local")


@pytest.mark.spec("LOG-01")
def test_login_without_state_returns_without_state(browser: Browser) -> None:
    page = browser.get(browser.get(f"/login?redirect_uri={BACK}").headers["Location"])
    answer = browser.send(page, email=ADA.upper(), password=RIGHT)
    assert answer.headers["Location"] == BACK


@pytest.mark.spec("LOG-02")
@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/",
        "https://app.example/back/../evil",
        "https://app.example/back?more=1",
        "https://app.example/Back",
        "https://app.example/back#x",
        "//evil.example/",
        "https:evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "https://auth.example.evil.example/login/account",
        "https://auth.example@evil.example/login/account",
        "https://evil.example/https://auth.example/login/account",
        "/login/account\r\nX-A: b",
        "/login/account#https://evil.example",
        "/logout",
        "/login/accountx",
        "/oauth/authorize/../../logout",
        "login/account",
        "",
        " https://app.example/back",
    ],
)
def test_rejects_unregistered_redirect_uri(browser: Browser, uri: str) -> None:
    answer = browser.client.get("/login", query_string={"redirect_uri": uri}, base_url=BASE)
    assert answer.status_code == 400
    assert "Location" not in answer.headers
    assert "redirect_uri" in (answer.json or {})["errors"]


@pytest.mark.spec("LOG-01")
def test_requires_redirect_uri(browser: Browser) -> None:
    answer = browser.get("/login")
    assert answer.status_code == 400
    assert (answer.json or {})["detail"] == "Missing query parameter 'redirect_uri'"


@pytest.mark.spec("LOG-01")
def test_a_state_is_bounded(browser: Browser) -> None:
    answer = browser.client.get(
        "/login", query_string={"redirect_uri": BACK, "state": "x" * 2049}, base_url=BASE
    )
    assert answer.status_code == 400


@pytest.mark.spec("LOG-01")
@pytest.mark.parametrize("path", ["/login/account", "/device?user_code=ABCD", "/"])
def test_accepts_redirects_to_own_pages(browser: Browser, path: str) -> None:
    answer = browser.log_in(back=f"{BASE}{path}".replace("?", "%3F"), state="")
    assert answer.headers["Location"].startswith(BASE + path)


@pytest.mark.spec("LOG-01")
def test_keeps_sealed_authorization_request_unchanged(browser: Browser) -> None:
    carried = "AbC-_0123" * 20
    first = browser.get(f"/login?redirect_uri=/oauth/authorize?continue%3D{carried}")
    page = browser.get(first.headers["Location"])
    answer = browser.send(page, email=ADA, password=RIGHT)
    assert answer.headers["Location"] == f"{BASE}/oauth/authorize?continue={carried}"


@pytest.mark.spec("LOG-04")
@pytest.mark.parametrize(
    ("email", "password"),
    [
        (ADA, "wrong password"),
        ("nobody@example.org", RIGHT),
        ("", ""),
        ("x" * 5000, RIGHT),
        ("' OR 1=1 --", RIGHT),
        (ADA, RIGHT + " "),
        (ADA, "\x00"),
        (f"{ADA}\x00", RIGHT),
    ],
)
def test_gives_same_error_for_unknown_user_and_wrong_password(
    browser: Browser, email: str, password: str
) -> None:
    answer = browser.log_in(email, password)
    assert answer.status_code == 403
    assert "Wrong e-mail address or password." in answer.text
    assert browser.cookie("store-session") is None
    assert not password.strip("\x00") or f'value="{password}"' not in answer.text


@pytest.mark.spec("LOG-08")
def test_escapes_submitted_text(browser: Browser) -> None:
    answer = browser.log_in('"><script>alert(1)</script>', "wrong")
    assert "<script" not in answer.text


@pytest.mark.spec("LOG-07")
def test_login_replaces_earlier_session(app: Flask, browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    first = browser.cookie("store-session")
    again = browser.get(f"/login?redirect_uri={BACK}&prompt=login")
    page = browser.get(again.headers["Location"])
    browser.send(page, email=ADA, password=RIGHT)
    second = browser.cookie("store-session")
    assert first != second
    assert sessions.find_session(catalog, first, NOW) is None
    assert sessions.find_session(catalog, second, NOW) is not None


@pytest.mark.spec("LOG-07")
def test_ignores_planted_session_cookie(browser: Browser, catalog: Catalog) -> None:
    planted = "attackers-value"
    browser.set_cookie("store-session", planted)
    browser.log_in()
    assert browser.cookie("store-session") != planted
    assert sessions.find_session(catalog, planted, NOW) is None


@pytest.mark.spec("LOG-08")
def test_cookies_are_out_of_reach(browser: Browser) -> None:
    page = browser.form()
    answer = browser.send(page, email=ADA, password=RIGHT)
    set_cookies = [*page.headers.getlist("Set-Cookie"), *answer.headers.getlist("Set-Cookie")]
    assert len(set_cookies) == 4
    for one in set_cookies:
        assert one.startswith("__Host-")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(one.split("; "))
        assert "Domain" not in one


@pytest.mark.spec("LOG-08")
def test_over_plain_http_cookies_have_plain_names(make: Make) -> None:
    client = make(auth_external_url="http://127.0.0.1:8001").test_client()
    first = client.get("/login?redirect_uri=/login/account")
    cookie = client.get(first.headers["Location"].removeprefix("http://127.0.0.1:8001")).headers
    assert cookie["Set-Cookie"].startswith("store-login=")
    assert "Secure" not in cookie["Set-Cookie"]


@pytest.mark.spec("LOG-08")
def test_rejects_login_form_of_another_site(app: Flask, browser: Browser) -> None:
    theirs = fields(browser_of(app).form())
    page = browser.form()
    own = fields(page)
    for forged in (
        {**own, "csrf": theirs["csrf"]},
        {**own, "csrf": ""},
        {name: value for name, value in own.items() if name != "csrf"},
    ):
        answer = browser.post("/login/local", {**forged, "email": ADA, "password": RIGHT})
        assert answer.status_code == 403
        assert browser.cookie("store-session") is None
    cookieless = browser_of(app)
    answer = cookieless.post("/login/local", {**theirs, "email": ADA, "password": RIGHT})
    assert (answer.status_code, cookieless.cookie("store-session")) == (403, None)
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    answer = browser.send(page, email=ADA, password=RIGHT)
    assert (answer.status_code, browser.cookie("store-session")) == (403, None)


@pytest.mark.spec("LOG-02")
@pytest.mark.parametrize("target", ["", "t.", "t.AAAA", "x", "c", "https://evil.example", "t.é"])
def test_rejects_forged_login_target(browser: Browser, target: str) -> None:
    page = browser.form()
    form = {**fields(page), "next": target, "email": ADA, "password": RIGHT}
    answer = browser.post("/login/local", form)
    assert answer.status_code == 400
    assert "Location" not in answer.headers
    assert browser.cookie("store-session") is None


@pytest.mark.spec("LOG-02")
def test_rejects_expired_login_target(browser: Browser, clock: Clock) -> None:
    page = browser.form()
    clock.now += 86_401
    assert browser.send(page, email=ADA, password=RIGHT).status_code == 400


@pytest.mark.spec("LOG-05")
def test_failed_logins_delay_the_next_correct_one(
    app: Flask, browser: Browser, clock: Clock
) -> None:
    for _ in range(5):
        assert browser.log_in(password="wrong").status_code == 403
    refused = browser.log_in()
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) == 1
    assert "Try again in a second." in refused.text
    elsewhere = browser_of(app)
    elsewhere.address = "198.51.100.9"
    assert elsewhere.log_in().status_code == 303
    clock.now += 1
    assert browser.log_in().status_code == 303


@pytest.mark.spec("LOG-05")
def test_guesses_from_many_addresses_slow_down_all_but_known_browsers(
    make: Make, clock: Clock
) -> None:
    app = make(lockout_account_after=6)
    known = browser_of(app)
    known.log_in()
    known.get("/logout")
    strangers = [browser_of(app) for _ in range(7)]
    for number, stranger in enumerate(strangers):
        stranger.address = f"198.51.100.{number}"
    assert [stranger.log_in(password="wrong").status_code for stranger in strangers] == [
        *([403] * 6),
        429,
    ]
    assert known.log_in().status_code == 303
    clock.now += 1
    assert strangers[0].log_in().status_code == 303


@pytest.mark.spec("LOG-05")
def test_guesses_of_strangers_do_not_lock_out_a_browser_that_was_used_before(
    app: Flask, browser: Browser
) -> None:
    browser.log_in()
    browser.get("/logout")
    stranger = browser_of(app)
    stranger.address = "198.51.100.9"
    for _ in range(5):
        stranger.log_in(password="wrong")
    assert stranger.log_in().status_code == 429
    browser.address = stranger.address
    assert browser.log_in().status_code == 303
    stranger.set_cookie("store-browser", (browser.cookie("store-browser") or "")[:-4] + "AAAA")
    assert stranger.log_in().status_code == 429


@pytest.mark.spec("LOG-05")
def test_a_browser_that_was_used_by_another_is_not_known_to_this_account(
    browser: Browser, app: Flask, catalog: Catalog, settings: Settings
) -> None:
    users.add_user(catalog, PasswordHashing(settings), "eve@example.org", RIGHT, now=NOW)
    browser.log_in("eve@example.org")
    browser.get("/logout")
    for _ in range(5):
        browser.log_in(password="wrong")
    other = browser_of(app)
    assert other.log_in().status_code == 429


@pytest.mark.spec("LOG-05")
def test_counts_address_reported_by_proxy(make: Make) -> None:
    app = make(proxies=1, lockout_address_after=3)
    for number in range(3):
        guesser = browser_of(app)
        guesser.headers["X-Forwarded-For"] = f"203.0.113.{number}, 198.51.100.1"
        guesser.log_in(f"{number}@example.org", "wrong")
    guesser.headers["X-Forwarded-For"] = "203.0.113.99, 198.51.100.1"
    assert guesser.log_in("other@example.org").status_code == 429
    guesser.headers["X-Forwarded-For"] = "203.0.113.99, 198.51.100.2"
    assert guesser.log_in().status_code == 303


@pytest.mark.spec("LOG-06")
def test_login_pages_have_a_rate(make: Make, clock: Clock) -> None:
    app = make(login_rate_per_minute=60, login_rate_burst=3)
    browser = browser_of(app)
    statuses = [browser.get("/login/account").status_code for _ in range(4)]
    assert statuses == [302, 302, 302, 429]
    refused = browser.get(f"/login?redirect_uri={BACK}")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    clock.now += 1
    assert browser.get("/login/account").status_code == 302


@pytest.mark.spec("LOG-07")
def test_rejects_disabled_user_and_ends_session(browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    assert ADA in browser.get("/login/account").text
    users.set_user_status(catalog, ADA, enabled=False)
    assert browser.get("/login/account").status_code == 302
    answer = browser.log_in()
    assert (answer.status_code, "disabled" in answer.text) == (403, True)
    users.set_user_status(catalog, ADA, enabled=True)
    assert browser.get("/login/account").status_code == 302
    assert browser.log_in().status_code == 303


@pytest.mark.spec("LOG-07")
def test_password_change_ends_all_sessions(
    app: Flask, browser: Browser, catalog: Catalog, settings: Settings
) -> None:
    browser.log_in()
    users.change_user_password(catalog, PasswordHashing(settings), ADA, "another long one", NOW)
    assert browser.get("/login/account").status_code == 302
    assert browser.log_in().status_code == 403
    assert browser.log_in(password="another long one").status_code == 303


@pytest.mark.spec("LOG-07")
def test_user_changes_own_password(app: Flask, browser: Browser) -> None:
    other = browser_of(app)
    browser.log_in()
    other.log_in()
    before = browser.cookie("store-session")
    page = browser.get("/login/account")
    new = "a new and long one"
    typed = {"password": RIGHT, "new": new, "again": new}
    answer = browser.send(page, **typed)
    assert (answer.status_code, "is changed" in answer.text) == (200, True)
    assert browser.cookie("store-session") != before
    assert browser.get("/login/account").status_code == 200
    assert other.get("/login/account").status_code == 302
    assert other.log_in().status_code == 403
    assert other.log_in(password=new).status_code == 303


LONG = "a new and long one"


@pytest.mark.spec("LOG-07")
@pytest.mark.parametrize(
    ("typed", "status", "beside"),
    [
        ({"password": "wrong", "new": LONG, "again": LONG}, 403, ["password"]),
        ({"password": RIGHT, "new": LONG, "again": "another"}, 400, ["again"]),
        ({"password": RIGHT, "new": "short", "again": "short"}, 400, ["new"]),
        ({"password": RIGHT, "new": LONG, "again": LONG, "csrf": "x"}, 403, []),
    ],
)
def test_rejects_invalid_new_password_and_names_field(
    browser: Browser, typed: dict[str, str], status: int, beside: list[str]
) -> None:
    browser.log_in()
    answer = browser.send(browser.get("/login/account"), **typed)
    assert answer.status_code == status
    assert faulty(answer) == beside
    assert answer.text.count('role="alert"') == 1
    assert browser.get("/login/account").status_code == 200
    browser.get("/logout")
    assert browser.log_in().status_code == 303


def faulty(page: TestResponse) -> list[str]:
    """The fields that are wrong, each with what is wrong right behind it."""
    found = re.findall(
        r'<input id="(\w+)"[^>]*aria-invalid[^>]*"error"[^>]*>\s*<p [^>]*"error"', page.text
    )
    assert found == re.findall(r'<input id="(\w+)"[^>]*aria-invalid', page.text)
    return found


@pytest.mark.spec("LOG-15")
@pytest.mark.parametrize("path", ["/login/password", "/login/applications", "/login/everywhere"])
def test_redirects_after_form_to_allowed_address(browser: Browser, path: str) -> None:
    browser.log_in()
    answer = browser.get(path)
    assert (answer.status_code, answer.location) == (302, f"{BASE}/login/account")


@pytest.mark.spec("LOG-03")
def test_logout_ends_login_everywhere(browser: Browser, catalog: Catalog) -> None:
    browser.log_in()
    cookie = browser.cookie("store-session") or ""
    answer = browser.get("/logout")
    assert (answer.status_code, "logged out" in answer.text) == (200, True)
    assert links(answer) == [f"{BASE}/login/account"]
    assert not browser.cookie("store-session")
    assert sessions.find_session(catalog, cookie, NOW) is None
    assert browser.get("/logout").status_code == 200


@pytest.mark.spec("LOG-13")
def test_viewing_logout_page_keeps_login(browser: Browser) -> None:
    browser.log_in()
    refused = browser.head("/logout")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, OPTIONS, POST")
    assert browser.get("/login/account").status_code == 200
    assert browser.head("/login/account").data == b""


@pytest.mark.spec("LOG-02", "LOG-03")
def test_logout_redirects_to_registered_addresses_only(browser: Browser, make: Make) -> None:
    browser.log_in()
    told = f"/logout?client_id=portal&post_logout_redirect_uri={BACK}&state=x%26y"
    answer = browser.get(told)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{BACK}?state=x%26y")
    for bad in (
        "client_id=portal&post_logout_redirect_uri=https://evil.example",
        f"client_id=nobody&post_logout_redirect_uri={BACK}",
        f"post_logout_redirect_uri={BACK}",
        "client_id=nobody",
    ):
        assert browser.log_in().status_code == 303
        answer = browser.get(f"/logout?{bad}")
        assert (answer.status_code, "Location" in answer.headers) == (400, False)
        assert browser.get("/login/account").status_code == 302
    default = browser_of(make(default_client="portal"))
    answer = default.get(f"/logout?post_logout_redirect_uri={BACK}")
    assert answer.headers["Location"] == BACK
    assert browser.get("/logout/done?state=AAAA").status_code == 200


def filled_in(page: TestResponse) -> str:
    (email,) = re.findall(r'name="email"[^>]* value="([^"]*)"', page.text)
    return html.unescape(email)


@pytest.mark.spec("OID-14")
def test_fills_in_login_hint(browser: Browser) -> None:
    for hint, shown in ((ADA, ADA), ('"><script>', '"><script>'), ("\n", "")):
        first = browser.get(f"/login?{urlencode({'redirect_uri': BACK, 'login_hint': hint})}")
        page = browser.get(first.headers["Location"])
        assert filled_in(page) == shown
        assert "<script>" not in page.text
    assert browser.get(f"/login?redirect_uri={BACK}&login_hint={'x' * 257}").status_code == 400


@pytest.mark.spec("LOG-01")
def test_logged_in_user_may_continue(browser: Browser) -> None:
    browser.log_in()
    first = browser.get(f"/login?redirect_uri={BACK}&state=again")
    page = browser.get(first.headers["Location"])
    assert f"Continue as {ADA}" in page.text
    assert f"{BACK}?state=again" in links(page)
    anew = browser.get(f"/login?redirect_uri={BACK}&prompt=login")
    assert "Continue as" not in browser.get(anew.headers["Location"]).text


@pytest.mark.spec("LOG-08")
def test_pages_are_not_cached_framed_or_scripted(browser: Browser) -> None:
    shown = [browser.form(), browser.log_in(password="wrong"), browser.log_in()]
    shown += [browser.get(path) for path in PAGES]
    for answer in shown:
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "<script" not in answer.text
        assert not re.search(r"\son\w+=|style=", answer.text)


@pytest.mark.spec("LOG-08")
def test_content_policy_allows_forms_to_redirect_to_login_target(browser: Browser) -> None:
    # Browsers hold what a form is redirected to against the page's policy.
    assert (
        "form-action 'self' https://app.example"
        in browser.form().headers["Content-Security-Policy"]
    )
    own = browser.form(back="/login/account", state="").headers["Content-Security-Policy"]
    assert own.endswith("form-action 'self'")


class Labels(HTMLParser):
    """Which fields a page has, and which of them have a label."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: set[str] = set()
        self.labels: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "input" and said.get("type") != "hidden":
            self.fields.add(said.get("id") or "")
        if tag == "label":
            self.labels.add(said.get("for") or "")


@pytest.mark.spec("LOG-08")
def test_every_field_has_a_label_and_every_page_a_language_and_a_title(browser: Browser) -> None:
    pages = [browser.form(), browser.log_in(password="wrong")]
    browser.log_in()
    pages.append(browser.get("/login/account"))
    for page in pages:
        found = Labels()
        found.feed(page.text)
        assert found.fields
        assert found.fields == found.labels
        assert '<html lang="en">' in page.text
        assert re.search(r"<title>[^<]+</title>", page.text)
    assert 'role="alert"' in pages[1].text


@pytest.mark.spec("LOG-10")
def test_audits_logins_without_passwords(
    browser: Browser, catalog: Catalog, settings: Settings, clock: Clock
) -> None:
    for _ in range(5):
        browser.log_in(password="a wrong secret")
    clock.now += 1
    browser.log_in()
    browser.get("/logout")
    users.change_user_password(catalog, PasswordHashing(settings), ADA, "another long one", NOW)
    with catalog.read() as tx:
        found = audit.list_records(tx, AuditFilter(), before_id=None, limit=100)
        kept = tx.exec_driver_sql("SELECT hash FROM passwords").scalars().all()
    done = [one.what for one in reversed(found) if one.target == f"user/{ADA}"]
    assert done == [
        *("add_user", "password_added"),
        *["login_failed"] * 5,
        *("locked_out", "login", "logout", "password_changed"),
    ]
    assert {one.who for one in found if one.what in ("add_user", "password_added")} == {OPERATOR}
    locked = next(one for one in found if one.what == "locked_out")
    assert json.loads(locked.after or "") == {"locked": f"pair:{ADA} 192.0.2.7", "wait_s": 1}
    told = str(found)
    assert all(secret not in told for secret in (RIGHT, "a wrong secret", "another long", *kept))


@pytest.mark.spec("LOG-10")
def test_logs_no_passwords_or_sessions(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        browser.log_in(password="a wrong secret")
        browser.log_in()
    logged = " ".join(str(vars(one)) for one in caplog.records)
    assert "a wrong secret" not in logged
    assert RIGHT not in logged
    assert (browser.cookie("store-session") or "x") not in logged


@pytest.mark.spec("LOG-04")
def test_hides_form_without_local_logins(make: Make) -> None:
    browser = browser_of(make(local_logins=False))
    first = browser.get(f"/login?redirect_uri={BACK}")
    page = browser.get(first.headers["Location"])
    assert "No identity provider is configured" in page.text
    target = first.headers["Location"].partition("next=")[2]
    assert browser.get(f"/login/local?next={target}").status_code == 403


@pytest.mark.spec("LOG-04")
def test_rehashes_password_of_other_cost(make: Make, catalog: Catalog) -> None:
    browser_of(make(password_memory_kib=128)).log_in()
    with catalog.read() as tx:
        row = login.find_password(tx, ADA)
    assert row is not None
    assert "m=128" in row.hash


@pytest.mark.spec("LOG-08")
def test_a_large_form_is_refused(browser: Browser) -> None:
    page = browser.form()
    answer = browser.send(page, email=ADA, password="x" * 100_000)
    assert answer.status_code == 413


@pytest.mark.spec("LOG-08")
def test_the_style_of_a_page_is_the_one_that_its_policy_lets_in(browser: Browser) -> None:
    page = browser.form()
    style = page.text.partition("<style>")[2].partition("</style>")[0]
    made = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{made}'" in page.headers["Content-Security-Policy"]
