"""Login with an external identity provider, honest or hostile."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey
from werkzeug.test import TestResponse

from auth.login import sessions, users
from config.parsing import ProviderSettings
from storage.catalog import Catalog, accounts, audit
from storage.catalog.accounts import AccountKey
from storage.catalog.audit import AuditFilter
from tests.api.authz.login.browser import ADA, BACK, BASE, Browser, browser_of, links, query
from tests.api.authz.login.conftest import Make
from tests.auth.builders import NOW, Clock
from tests.auth.login.issuer import CLIENT, SECRET, Issuer, running

pytestmark = pytest.mark.spec("LOG-09")

CALLBACK = "/login/callback/idp"


@pytest.fixture(scope="session")
def rsa() -> RSAKey:
    return RSAKey.generate_key(2048, auto_kid=True)


@pytest.fixture
def issuer(rsa: RSAKey, clock: Clock) -> Iterator[Issuer]:
    with running(Issuer(rsa, clock)) as made:
        yield made


@pytest.fixture
def browser(make: Make, issuer: Issuer) -> Browser:
    return browser_of(make(**of(issuer.url)))


def of(url: str, **more: object) -> dict[str, object]:
    """Settings with this provider alone."""
    return {
        "local_logins": False,
        "providers": {"idp": ProviderSettings(url, CLIENT, "The institute", **more)},
        "provider_secrets": {"idp": SECRET},
    }


def sent_away(browser: Browser) -> dict[str, str]:
    """What the provider is told, after following the way there."""
    first = browser.get(f"/login?redirect_uri={BACK}&state=s")
    answer = browser.get(first.headers["Location"])
    assert answer.status_code == 302, answer.text
    return query(answer.headers["Location"])


def come_back(
    browser: Browser, issuer: Issuer, told: dict[str, str], more: str = ""
) -> TestResponse:
    """From the provider, with what it was told and a code."""
    issuer.nonce = told["nonce"]
    return browser.get(f"{CALLBACK}?code=the-code&state={told['state']}{more}")


@pytest.mark.spec("LOG-01")
def test_redirects_to_only_provider(browser: Browser, issuer: Issuer) -> None:
    told = sent_away(browser)
    assert told["redirect_uri"] == BASE + CALLBACK
    assert told["code_challenge_method"] == "S256"
    assert len(told["nonce"]) >= 43
    again = sent_away(browser)
    for name in ("state", "nonce", "code_challenge"):
        assert told[name] != again[name]


@pytest.mark.spec("LOG-13")
def test_head_request_neither_redirects_nor_logs_in(
    browser: Browser, issuer: Issuer, catalog: Catalog
) -> None:
    away = browser.get(f"/login?redirect_uri={BACK}&state=s").headers["Location"]
    assert browser.head(away).status_code == 405
    assert browser.cookie("store-login") is None
    told = sent_away(browser)
    issuer.nonce = told["nonce"]
    back = f"{CALLBACK}?code=the-code&state={told['state']}"
    refused = browser.head(back)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, OPTIONS")
    assert browser.cookie("store-session") is None
    # Nothing of it is used up.
    assert browser.get(back).status_code == 303


def test_provider_login_creates_record_and_session(
    browser: Browser, issuer: Issuer, catalog: Catalog
) -> None:
    told = sent_away(browser)
    answer = come_back(browser, issuer, told)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{BACK}?state=s")
    found = sessions.find_session(catalog, browser.cookie("store-session"), NOW)
    assert found is not None
    assert (found.email, found.provider) == (ADA, "idp")
    with catalog.read() as tx:
        assert accounts.find(tx, AccountKey("user", ADA)) is not None
        done = [one.what for one in audit.list_records(tx, AuditFilter(), before_id=None, limit=9)]
    assert done[0] == "login"
    assert "The institute" in browser.get("/login/account").text


@pytest.mark.spec("LOG-01")
def test_a_choice_lists_every_provider(make: Make, issuer: Issuer) -> None:
    settings = of(issuer.url)
    providers = {
        "idp": ProviderSettings(issuer.url, CLIENT, "The <b>institute</b>"),
        "other": ProviderSettings(issuer.url, "x"),
    }
    browser = browser_of(make(**{**settings, "providers": providers, "local_logins": True}))
    first = browser.get(f"/login?redirect_uri={BACK}")
    assert urlsplit(first.headers["Location"]).path == "/login/select"
    page = browser.get(first.headers["Location"])
    assert "The &lt;b&gt;institute&lt;/b&gt;" in page.text
    paths = [urlsplit(link).path for link in links(page)]
    assert paths == ["/login/upstream/idp", "/login/upstream/other", "/login/local"]


def test_provider_state_is_valid_once(browser: Browser, issuer: Issuer) -> None:
    told = sent_away(browser)
    bound = browser.cookie("store-login") or ""
    assert come_back(browser, issuer, told).status_code == 303
    browser.get("/logout")
    browser.set_cookie("store-login", bound)
    again = come_back(browser, issuer, told)
    assert (again.status_code, again.headers.get("Location")) == (400, None)
    assert issuer.paths().count("/token") == 1


def test_rejects_state_of_another_browser(make: Make, browser: Browser, issuer: Issuer) -> None:
    told = sent_away(browser)
    victim = browser_of(make(**of(issuer.url)))
    for prepared in (False, True):
        if prepared:
            sent_away(victim)
        answer = come_back(victim, issuer, told)
        assert (answer.status_code, victim.cookie("store-session")) == (400, None)
    # The one that it belongs to is not hurt by the attempt.
    assert come_back(browser, issuer, told).status_code == 303


def test_rejects_state_of_another_provider(make: Make, issuer: Issuer) -> None:
    settings = of(issuer.url)
    one = ProviderSettings(issuer.url, CLIENT)
    browser = browser_of(make(**{**settings, "providers": {"idp": one, "evil": one}}))
    first = browser.get(f"/login?redirect_uri={BACK}")
    page = browser.get(first.headers["Location"])
    told = query(browser.get(links(page)[1]).headers["Location"])
    assert come_back(browser, issuer, told).status_code == 400


@pytest.mark.parametrize("state", ["", "x", "AAAA", "é", "A" * 9000, "%00"])
def test_rejects_forged_state(browser: Browser, issuer: Issuer, state: str) -> None:
    sent_away(browser)
    answer = browser.get(f"{CALLBACK}?code=x&state={state}")
    assert answer.status_code == 400
    assert "/token" not in issuer.paths()


def test_rejects_expired_state(browser: Browser, issuer: Issuer, clock: Clock) -> None:
    told = sent_away(browser)
    clock.now += 901
    assert come_back(browser, issuer, told).status_code == 400


def test_rejects_response_of_another_issuer(browser: Browser, issuer: Issuer) -> None:
    told = sent_away(browser)
    answer = come_back(browser, issuer, told, "&iss=https://evil.example")
    assert (answer.status_code, browser.cookie("store-session")) == (403, None)
    assert "/token" not in issuer.paths()
    told = sent_away(browser)
    assert come_back(browser, issuer, told, f"&iss={issuer.url}").status_code == 303


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"nonce": "another"}, 403),
        ({"iss": "https://evil.example"}, 403),
        ({"aud": "another"}, 403),
        ({"email_verified": False}, 403),
        ({"email": "none"}, 403),
    ],
)
def test_rejects_hostile_provider_responses(
    browser: Browser, issuer: Issuer, catalog: Catalog, claims: dict[str, object], status: int
) -> None:
    issuer.claims = claims
    answer = come_back(browser, issuer, sent_away(browser))
    assert (answer.status_code, browser.cookie("store-session")) == (status, None)
    assert "another" not in answer.text
    with catalog.read() as tx:
        (last,) = audit.list_records(tx, AuditFilter(), before_id=None, limit=1)
    assert last.what == "login_failed"


def test_shows_provider_refusal_without_its_text(browser: Browser) -> None:
    told = sent_away(browser)
    evil = "error=access_denied&error_description=<script>call+0900</script>"
    answer = browser.get(f"{CALLBACK}?{evil}&state={told['state']}")
    assert answer.status_code == 403
    assert "The institute did not log you in" in answer.text
    assert "0900" not in answer.text
    (again,) = links(answer)
    shown = browser.get(again)
    assert (shown.status_code, "The institute" in shown.text) == (200, True)
    # The provider asks who it is once more, else it would name the same person again.
    (there,) = [link for link in links(shown) if "/login/upstream/" in link]
    assert query(browser.get(there).headers["Location"])["prompt"] == "login"


def test_shows_unreachable_provider(browser: Browser, issuer: Issuer) -> None:
    issuer.answers["/.well-known/openid-configuration"] = (500, {}, b"")
    first = browser.get(f"/login?redirect_uri={BACK}")
    answer = browser.get(first.headers["Location"])
    assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)
    assert int(answer.headers["Retry-After"]) > 0
    assert issuer.url not in answer.text
    assert "/login/select?next=" in links(answer)[0]
    assert browser.get("/login/upstream/nobody?next=x").status_code == 404


def test_rejects_disabled_user_of_any_provider(
    browser: Browser, issuer: Issuer, catalog: Catalog
) -> None:
    assert come_back(browser, issuer, sent_away(browser)).status_code == 303
    users.set_user_status(catalog, ADA, enabled=False)
    answer = come_back(browser, issuer, sent_away(browser))
    assert (answer.status_code, "disabled" in answer.text) == (403, True)


@pytest.mark.spec("LOG-02")
def test_makes_no_state_for_invalid_target(browser: Browser, catalog: Catalog) -> None:
    assert browser.get("/login/upstream/idp?next=https://evil.example").status_code == 400
    with catalog.read() as tx:
        assert not tx.exec_driver_sql("SELECT * FROM upstream_logins").all()


def test_catalog_stores_no_state_or_verifier(
    browser: Browser, issuer: Issuer, catalog: Catalog
) -> None:
    told = sent_away(browser)
    with catalog.read() as tx:
        kept = str(tx.exec_driver_sql("SELECT * FROM upstream_logins").all())
    assert come_back(browser, issuer, told).status_code == 303
    for secret in (
        told["state"],
        told["nonce"],
        issuer.form()["code_verifier"],
        browser.cookie("store-login") or "x" * 99,
    ):
        assert secret not in kept


@pytest.mark.spec("OID-14")
def test_passes_login_hint_to_provider(browser: Browser) -> None:
    first = browser.get(f"/login?redirect_uri={BACK}&login_hint={ADA}")
    assert query(browser.get(first.headers["Location"]).headers["Location"])["login_hint"] == ADA


@pytest.mark.spec("LOG-03")
def test_a_log_out_goes_by_the_provider_and_on(browser: Browser, issuer: Issuer) -> None:
    issuer.metadata["end_session_endpoint"] = f"{issuer.url}/end"
    come_back(browser, issuer, sent_away(browser))
    answer = browser.get(f"/logout?client_id=portal&post_logout_redirect_uri={BACK}&state=z")
    assert answer.headers["Location"].startswith(f"{issuer.url}/end?")
    told = query(answer.headers["Location"])
    assert told["post_logout_redirect_uri"] == f"{BASE}/logout/done"
    assert browser.get("/login/account").status_code == 302
    done = browser.get(f"/logout/done?state={told['state']}")
    assert (done.status_code, done.headers["Location"]) == (302, f"{BACK}?state=z")


def test_a_secret_may_be_a_file_beside_ours(make: Make, issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(exist_ok=True)
    (tmp_path / "secrets" / "provider-idp").write_text("from a file\n")
    browser = browser_of(make(**{**of(issuer.url), "provider_secrets": {}}))
    come_back(browser, issuer, sent_away(browser))
    sent = next(headers for path, headers, _ in issuer.asked if path == "/token")
    basic = httpx.BasicAuth(CLIENT, "from a file")._auth_header
    assert sent["Authorization"] == basic


def test_providers_inside_are_out_of_reach_by_default_on_an_open_host(
    make: Make, issuer: Issuer
) -> None:
    browser = browser_of(make(**of(issuer.url), host="0.0.0.0", allow_private_callbacks=None))
    first = browser.get(f"/login?redirect_uri={BACK}")
    assert browser.get(first.headers["Location"]).status_code == 503
    assert issuer.asked == []


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    """A provider that others wrote, in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    claims = '{"sub": "ada", "email": "Ada@Example.org", "email_verified": true}'
    words = ["-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), "--user-claims", claims]
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url)
        yield url
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(10)


def _wait(url: str) -> None:
    for _ in range(400):
        with suppress(httpx.HTTPError):
            httpx.get(f"{url}/.well-known/openid-configuration", trust_env=False)
            return
        time.sleep(0.05)
    raise TimeoutError(url)


def test_real_provider_logs_user_in_and_out(
    make: Make, foreign: str, catalog: Catalog, clock: Clock
) -> None:
    clock.now = time.time()
    browser = browser_of(make(**of(foreign)))
    first = browser.get(f"/login?redirect_uri={BACK}&state=s")
    away = browser.get(first.headers["Location"]).headers["Location"]
    answer = httpx.post(away, data={"sub": "ada"}, trust_env=False)
    assert answer.status_code == 302, answer.text
    back = browser.get(answer.headers["Location"])
    assert (back.status_code, back.headers["Location"]) == (303, f"{BACK}?state=s")
    found = sessions.find_session(catalog, browser.cookie("store-session"), clock.now)
    assert found is not None
    assert found.email == ADA
    out = browser.get("/logout").headers["Location"]
    assert out.startswith(f"{foreign}/")
    shown = httpx.get(out, trust_env=False)
    assert re.search(r"/logout/done\?state=", shown.text)


def test_a_foreign_providers_unverified_user_is_refused(
    make: Make, foreign: str, clock: Clock
) -> None:
    clock.now = time.time()
    browser = browser_of(make(**of(foreign)))
    first = browser.get(f"/login?redirect_uri={BACK}&state=s")
    away = browser.get(first.headers["Location"]).headers["Location"]
    answer = httpx.post(away, data={"sub": "eve@example.org"}, trust_env=False)
    back = browser.get(answer.headers["Location"])
    assert (back.status_code, browser.cookie("store-session")) == (403, None)
    assert "has not verified" in back.text
