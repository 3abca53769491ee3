"""The device authorization grant over HTTP."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.authz.oauth.builders import ADA, BASE, Browser, hidden, query
from tests.auth.builders import Clock

pytestmark = pytest.mark.spec("OID-10")

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def begun(browser: Browser, **form: str) -> dict[str, Any]:
    sent = {"client_id": "store-cli", "scope": "openid email", **form}
    response = browser.client.post("/oauth/device_authorization", base_url=BASE, data=sent)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json or {}
    return found


def poll(browser: Browser, device: dict[str, Any]) -> dict[str, Any]:
    form = {"grant_type": GRANT, "client_id": "store-cli", "device_code": device["device_code"]}
    found: dict[str, Any] = browser.token(form).json or {}
    return found


def entered(browser: Browser, code: str) -> Any:
    form = hidden(browser.get("/device"))
    return browser.post("/device", {**form, "user_code": code})


def test_a_person_connects_a_device(browser: Browser, clock: Clock) -> None:
    device = begun(browser)
    assert poll(browser, device)["error"] == "authorization_pending"
    browser.log_in()
    page = browser.get(device["verification_uri_complete"].removeprefix(BASE))
    assert f'value="{device["user_code"]}"' in page.text
    asking = browser.post("/device", {**hidden(page), "user_code": device["user_code"]})
    assert device["user_code"] in asking.text
    hurried = device["user_code"].replace("-", " ").lower()
    again = browser.post("/device", {**hidden(page), "user_code": hurried})
    # As the device shows it, whatever was typed: it is to be compared.
    assert device["user_code"] in again.text
    assert "command-line client" in asking.text
    assert ADA in asking.text
    done = browser.post("/device/confirm", {**hidden(asking), "decision": "allow"})
    assert (done.status_code, "Done" in done.text) == (200, True)
    clock.now += 5
    tokens = poll(browser, device)
    assert tokens["token_type"] == "Bearer"
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    told = browser.client.get("/oauth/userinfo", base_url=BASE, headers=headers)
    assert (told.json or {})["email"] == ADA
    again = browser.post("/device/confirm", {**hidden(asking), "decision": "allow"})
    assert again.status_code == 400


@pytest.mark.spec("LOG-15")
def test_redirects_after_device_form_to_allowed_address(browser: Browser) -> None:
    assert browser.get("/device/confirm").location == "/device"
    page = browser.get("/oauth/consent")
    assert (page.status_code, "Go back to the application" in page.text) == (400, True)


def test_login_keeps_device_code(browser: Browser) -> None:
    away = browser.get("/device?user_code=BCDF-GHJK")
    assert query(away) == {"redirect_uri": "/device?user_code=BCDF-GHJK"}
    assert browser.get(away.headers["Location"]).status_code == 302
    strange = browser.get("/device?user_code=a%26b%3Dc")
    assert query(strange) == {"redirect_uri": "/device"}


def test_user_denies_device(browser: Browser) -> None:
    device = begun(browser)
    browser.log_in()
    asking = entered(browser, device["user_code"])
    browser.post("/device/confirm", {**hidden(asking), "decision": "deny"})
    assert poll(browser, device)["error"] == "access_denied"


def test_guessing_codes_is_stopped(browser: Browser, clock: Clock) -> None:
    device = begun(browser)
    browser.log_in()
    for _ in range(5):
        wrong = entered(browser, "BCDF-GHJK")
        assert (wrong.status_code, "Unknown code" in wrong.text) == (400, True)
        assert re.search(
            r'<input id="user_code"[^>]*"error"[^>]*>\s*<p [^>]*id="error"', wrong.text
        )
    stopped = entered(browser, device["user_code"])
    assert stopped.status_code == 429
    assert int(stopped.headers["Retry-After"]) >= 1
    clock.now += 2
    assert "Allow" in entered(browser, device["user_code"]).text


def test_a_form_of_another_session_decides_nothing(browser: Browser) -> None:
    device = begun(browser)
    browser.log_in("eve@example.org")
    theirs = entered(browser, device["user_code"])
    browser.log_in()
    own = hidden(browser.get("/device"))
    forged = [
        hidden(theirs),
        {**hidden(theirs), **own},
        {**own, "carried": "forged"},
        own,
        {},
    ]
    for form in forged:
        response = browser.post("/device/confirm", {**form, "decision": "allow"})
        assert response.status_code == 400
    assert browser.post("/device", {"user_code": device["user_code"]}).text.count("Allow") == 0
    assert poll(browser, device)["error"] == "authorization_pending"


def test_a_form_that_another_site_sent_decides_nothing(browser: Browser) -> None:
    device = begun(browser)
    browser.log_in()
    asking = hidden(entered(browser, device["user_code"]))
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    response = browser.post("/device/confirm", {**asking, "decision": "allow"})
    assert response.status_code == 400
    browser.headers["Sec-Fetch-Site"] = "same-origin"
    assert (
        "You can close this page"
        in browser.post("/device/confirm", {**asking, "decision": "allow"}).text
    )


def test_a_disabled_person_connects_nothing(
    browser: Browser, disable: Callable[[str], None]
) -> None:
    device = begun(browser)
    browser.log_in()
    asking = hidden(entered(browser, device["user_code"]))
    disable(ADA)
    response = browser.post("/device/confirm", {**asking, "decision": "allow"})
    assert response.status_code == 400
    assert poll(browser, device)["error"] == "authorization_pending"


@pytest.mark.parametrize("code", ["", "é" * 40, "<b>", "'; DROP TABLE grants; --", "A" * 9000])
def test_rejects_invalid_user_codes(browser: Browser, code: str) -> None:
    browser.log_in()
    response = entered(browser, code)
    assert response.status_code == 400
    assert "<b>" not in response.text


def test_a_client_that_is_not_known_has_no_devices(browser: Browser) -> None:
    response = browser.client.post(
        "/oauth/device_authorization", base_url=BASE, data={"client_id": "nobody"}
    )
    assert (response.status_code, (response.json or {})["error"]) == (401, "invalid_client")
    bad = browser.client.post(
        "/oauth/device_authorization", base_url=BASE, data={"client_id": "store-cli", "scope": '"'}
    )
    assert (bad.status_code, (bad.json or {})["error"]) == (400, "invalid_scope")
