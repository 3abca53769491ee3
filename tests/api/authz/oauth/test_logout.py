"""OpenID Connect RP-initiated logout, and its effect on tokens."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api.app import build_verifier, create_app
from api.authz import create_auth_app
from auth.oauth.clients import NewOAuthClient, add_client
from auth.tokens.issuance import sign_claims
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.catalog import Catalog
from storage.stores import Stores
from tests.api.authz.oauth.builders import ADA, BASE, Browser, hidden, of_portal, query
from tests.auth.builders import Clock
from tests.conftest import Outbox

pytestmark = pytest.mark.spec("OID-13", "OID-14")

BACK = "https://portal.example/back"


@pytest.fixture
def hint(browser: Browser, portal: str) -> str:
    """An ID token of the portal about the person who is logged in."""
    browser.log_in()
    answer = browser.redeem(
        browser.code(**of_portal()), client_id="portal", redirect_uri=BACK, client_secret=portal
    )
    return str((answer.json or {})["id_token"])


def log_out(browser: Browser, **given: str) -> TestResponse:
    return browser.get(f"/logout?{urlencode(given)}")


def is_logged_in(browser: Browser) -> bool:
    return browser.get("/login/account").status_code == 200


def refused(response: TestResponse, named: str) -> None:
    assert (response.status_code, response.mimetype) == (400, "text/html")
    assert named in response.text
    assert "Location" not in response.headers


def test_a_hint_names_the_client_and_is_enough(browser: Browser, hint: str) -> None:
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    answer = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BACK, state="a&b")
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{BACK}?state=a%26b")
    assert not is_logged_in(browser)
    # The redirect is honoured although nobody is logged in any more.
    again = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert (again.status_code, again.headers["Location"]) == (302, BACK)


def test_a_hint_may_have_expired(browser: Browser, hint: str, clock: Clock) -> None:
    clock.now += 30_000
    answer = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert (answer.status_code, answer.headers["Location"]) == (302, BACK)


def test_a_request_may_be_a_form_of_another_site(browser: Browser, hint: str) -> None:
    cookie, browser.cookie = browser.cookie, ""
    form = {"id_token_hint": hint, "post_logout_redirect_uri": BACK, "state": "s"}
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    answer = browser.post("/logout", form)
    assert answer.status_code == 303
    browser.cookie = cookie
    assert is_logged_in(browser)
    gone = browser.get(answer.headers["Location"].removeprefix(BASE))
    assert gone.headers["Location"] == f"{BACK}?state=s"
    assert not is_logged_in(browser)
    assert browser.get("/logout?continue=forged").status_code == 400


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"client_id": "store-cli"}, "client_id"),
        ({"client_id": "nobody"}, "client_id"),
        ({"post_logout_redirect_uri": "https://evil.example"}, "post_logout_redirect_uri"),
        ({"post_logout_redirect_uri": f"{BACK}/"}, "post_logout_redirect_uri"),
        ({"post_logout_redirect_uri": f"{BACK}?x=1"}, "post_logout_redirect_uri"),
        ({"post_logout_redirect_uri": "https://store.example/back"}, "post_logout_redirect_uri"),
        ({"id_token_hint": "a.b.c"}, "id_token_hint"),
        ({"id_token_hint": "x" * 70_000}, "id_token_hint"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_rejects_unregistered_logout_redirect(
    browser: Browser, hint: str, changed: dict[str, str], named: str, method: str
) -> None:
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    given = {"id_token_hint": hint, "post_logout_redirect_uri": BACK, **changed}
    if method == "GET":
        refused(log_out(browser, **given), named)
    elif len(given["id_token_hint"]) < 64_000:
        refused(browser.post("/logout", given), named)
    else:
        assert browser.post("/logout", given).status_code in (400, 413)
    assert is_logged_in(browser)


def test_accepts_only_own_id_tokens_as_hint(
    browser: Browser, hint: str, settings: Settings
) -> None:
    keys = SigningKeyFile(settings.home, settings.secret_key)
    head, body, signature = hint.split(".")
    access = browser.tokens()["access_token"]
    claims: dict[str, Any] = {"iss": BASE, "aud": "portal", "sub": ADA, "exp": 1, "iat": 1}
    for bad in (
        access,
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body}.",
        sign_claims(keys.read(), claims, kind="JWT"),
        sign_claims(
            keys.read(), {**claims, "at_hash": "x", "iss": "https://evil.example"}, kind="JWT"
        ),
        sign_claims(keys.read(), {**claims, "at_hash": "x", "aud": ["portal"]}, kind="JWT"),
        sign_claims(keys.read(), {**claims, "at_hash": "x", "sub": 1}, kind="JWT"),
    ):
        browser.log_in()
        refused(log_out(browser, id_token_hint=bad, post_logout_redirect_uri=BACK), "id_token_hint")


def test_confirms_logout_requested_by_another_site_without_hint(
    browser: Browser, portal: str, hint: str
) -> None:
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    page = log_out(browser, client_id="portal", post_logout_redirect_uri=BACK)
    assert page.status_code == 200
    assert "Do you want to log out?" in page.text
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert is_logged_in(browser)
    assert browser.post("/logout/confirm", {**hidden(page), "decision": "leave"}).status_code == 403
    browser.headers.clear()
    other = {**hidden(page), "csrf": "x", "decision": "leave"}
    assert browser.post("/logout/confirm", other).status_code == 403
    stay = browser.post("/logout/confirm", {**hidden(page), "decision": "stay"})
    assert urlsplit(stay.headers["Location"]).path == "/login/account"
    assert is_logged_in(browser)
    gone = browser.post("/logout/confirm", {**hidden(page), "decision": "leave"})
    assert (gone.status_code, gone.headers["Location"]) == (303, BACK)
    assert not is_logged_in(browser)


def test_confirms_logout_with_hint_about_another_user(browser: Browser, hint: str) -> None:
    browser.log_in("eve@example.org")
    page = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BACK)
    assert "eve@example.org" in page.text
    assert is_logged_in(browser)


def test_the_persons_own_page_logs_out(browser: Browser) -> None:
    browser.log_in()
    page = browser.get("/login/account")
    gone = browser.post("/logout/confirm", {"csrf": hidden(page)["csrf"]})
    assert (gone.status_code, "You are logged out." in gone.text) == (200, True)
    assert not is_logged_in(browser)
    assert browser.get("/logout/confirm").status_code == 302


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("port", ["", ":1", ":65535"])
def test_a_loopback_address_matches_on_any_port(
    browser: Browser, catalog: Catalog, port: str, public: bool
) -> None:
    new = NewOAuthClient("viewer", "Viewer", ("http://127.0.0.1/out",), public=public)
    with catalog.write() as tx:
        add_client(tx, new, 1)
    uri = f"http://127.0.0.1{port}/out"
    browser.log_in()
    gone = log_out(browser, client_id="viewer", post_logout_redirect_uri=uri)
    assert (gone.status_code, gone.headers["Location"]) == (302, uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1.evil.example/out",
        "http://127.0.0.1:1@evil.example/out",
        "http://127.0.0.1:65536/out",
    ],
)
def test_rejects_other_hosts_as_loopback(browser: Browser, catalog: Catalog, uri: str) -> None:
    with catalog.write() as tx:
        add_client(
            tx, NewOAuthClient("viewer", "Viewer", ("http://127.0.0.1/out",), public=True), 1
        )
    answer = log_out(browser, client_id="viewer", post_logout_redirect_uri=uri)
    refused(answer, "post_logout_redirect_uri")


def test_a_login_hint_is_handed_to_the_login(browser: Browser) -> None:
    away = browser.authorize(login_hint=ADA)
    assert query(away)["login_hint"] == ADA
    posted = browser.post("/oauth/authorize", {"response_type": "code", "login_hint": ADA})
    assert posted.status_code == 303


@pytest.fixture
def both(
    settings: Settings, stores: Stores, catalog: Catalog, job_queue: Outbox, clock: Clock
) -> list[tuple[FlaskClient, str]]:
    """A store and a service on one catalog, each with something that wants a token."""
    verify = build_verifier(settings, clock, grants=GrantChecker(catalog, clock)).verify
    reached = replace(settings, external_url="https://store.example")
    store = create_app(reached, stores, job_queue=job_queue, verify=verify).test_client()
    service = create_auth_app(settings, catalog, verify=verify, clock=clock).test_client()
    return [(store, "/v1/subscriptions?replica=aws"), (service, f"/v1/user/{ADA}")]


def asked(client: FlaskClient, path: str, token: str) -> TestResponse:
    return client.get(path, base_url=BASE, headers={"Authorization": f"Bearer {token}"})


def test_revoked_token_is_rejected_everywhere_at_once(
    both: list[tuple[FlaskClient, str]], browser: Browser
) -> None:
    browser.log_in()
    tokens = browser.tokens()
    before = [asked(client, path, tokens["access_token"]).status_code for client, path in both]
    assert before == [200, 200]
    form = {"token": tokens["refresh_token"], "client_id": "store-cli"}
    assert browser.post("/oauth/revoke", form).status_code == 200
    for client, path in both:
        answer = asked(client, path, tokens["access_token"])
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (answer.json or {})["code"] == "unauthorized"
        assert tokens["access_token"] not in answer.text
    assert asked(*both[1], browser.tokens()["access_token"]).status_code == before[1]
