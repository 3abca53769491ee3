"""OAuth endpoints over HTTP: token, introspection, revocation, user info, discovery."""

import base64
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.app import build_verifier
from api.authz import create_auth_app
from api.authz.oauth.endpoints import MAX_BODY_BYTES
from auth.oauth.clients import NewOAuthClient, add_client
from auth.tokens.signing_keys import SigningKeyFile, rotate_key_file
from config import Settings
from storage.catalog import Catalog
from tests.api.authz.oauth.builders import ADA, BASE, Browser, of_portal
from tests.auth.builders import Clock

pytestmark = pytest.mark.spec("OID-05", "OID-12")


def error_of(response: Any) -> tuple[int, str]:
    assert response.content_type == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert (response.json or {}).keys() == {"error", "error_description"}
    return response.status_code, response.json["error"]


@pytest.mark.spec("OID-01")
def test_discovery_lists_what_works(browser: Browser) -> None:
    found = browser.get("/.well-known/openid-configuration").json or {}
    assert found["issuer"] == BASE
    assert found["response_types_supported"] == ["code"]
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["authorization_response_iss_parameter_supported"] is True
    assert found["request_uri_parameter_supported"] is False
    required = {
        "issuer",
        "authorization_endpoint",
        "token_endpoint",
        "jwks_uri",
        "response_types_supported",
        "subject_types_supported",
        "id_token_signing_alg_values_supported",
    }
    assert required <= found.keys()
    assert browser.get("/.well-known/oauth-authorization-server").json == found


@pytest.mark.spec("OID-01")
def test_every_end_point_of_discovery_is_there(browser: Browser) -> None:
    found = browser.get("/.well-known/openid-configuration").json or {}
    addresses = {name: found[name] for name in found if name.endswith(("_endpoint", "_uri"))}
    assert len(addresses) == 7
    for name, address in addresses.items():
        assert address.startswith(BASE + "/")
        path = address.removeprefix(BASE)
        answered = {browser.get(path).status_code, browser.post(path, {}).status_code}
        assert answered & {200, 303, 400, 401}, name


@pytest.mark.spec("OID-01")
def test_every_grant_of_discovery_is_understood(browser: Browser) -> None:
    found = browser.get("/.well-known/openid-configuration").json or {}
    for grant_type in found["grant_types_supported"]:
        answer = browser.token({"grant_type": grant_type, "client_id": "store-cli"})
        assert error_of(answer) == (400, "invalid_request")
    for grant_type in ("password", "client_credentials", "implicit"):
        answer = browser.token({"grant_type": grant_type, "client_id": "store-cli"})
        assert error_of(answer) == (400, "unsupported_grant_type")


def test_tokens_are_not_cached(browser: Browser) -> None:
    browser.log_in()
    response = browser.redeem(browser.code())
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Pragma"] == "no-cache"
    assert response.content_type == "application/json"


def test_accepts_json_bodies_with_extra_members(browser: Browser) -> None:
    browser.log_in()
    tokens = browser.tokens()
    form = {
        "grant_type": "refresh_token",
        "client_id": "store-cli",
        "refresh_token": tokens["refresh_token"],
        "unknown": {"deep": [1, None]},
        "scope": None,
        "code": "",
    }
    response = browser.client.post("/oauth/token", base_url=BASE, json=form)
    assert response.status_code == 200
    repeated = {"client_id": "store-cli", "unknown": ["a", "b"], "grant_type": "refresh_token"}
    assert error_of(browser.token(repeated)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"grant_type": 5}', "application/json"),
        (b'{"grant_type": ["a"]}', "application/json"),
        (b"[" * 1000, "application/json"),
        (b"grant_type=a&grant_type=b", "application/x-www-form-urlencoded"),
        (b"grant_type=%ff", "application/x-www-form-urlencoded"),
        (b"\xff", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=b" for _ in range(200)), "application/x-www-form-urlencoded"),
        (b"a", "multipart/form-data; boundary=x"),
        (b"a", "text/plain"),
        (b"", ""),
    ],
)
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke", "/oauth/device_authorization"])
def test_a_body_that_cannot_be_read_is_refused_as_oauth_does(
    browser: Browser, path: str, body: bytes, kind: str
) -> None:
    response = browser.client.post(path, base_url=BASE, data=body, content_type=kind)
    assert error_of(response)[1] in ("invalid_request", "invalid_client")
    assert response.status_code in (400, 401, 413, 415)


@pytest.mark.spec("ACC-20")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"client_id": "other", "client_id": "store-cli"}', "application/json"),
        (b"client_id=other&client_id=store-cli", "application/x-www-form-urlencoded"),
    ],
)
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke", "/oauth/device_authorization"])
def test_rejects_duplicate_members(browser: Browser, path: str, body: bytes, kind: str) -> None:
    response = browser.client.post(path, base_url=BASE, data=body, content_type=kind)
    assert error_of(response) == (400, "invalid_request")
    assert "more than once" in response.text


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_a_body_that_is_too_large_is_not_read(browser: Browser, kind: str) -> None:
    body = b'"' + b"a" * MAX_BODY_BYTES + b'"'
    response = browser.client.post("/oauth/token", base_url=BASE, data=body, content_type=kind)
    assert error_of(response) == (413, "invalid_request")


def basic(name: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


def test_unauthenticated_client_gets_www_authenticate(browser: Browser, portal: str) -> None:
    form = {"grant_type": "refresh_token", "refresh_token": "x"}
    for headers in ({}, basic("portal", "wrong"), basic("nobody", portal)):
        response = browser.token(form, headers=headers)
        assert error_of(response) == (401, "invalid_client")
        assert response.headers["WWW-Authenticate"].startswith("Basic ")
    assert error_of(browser.token(form, headers=basic("portal", portal))) == (400, "invalid_grant")


def test_ignores_parameters_in_query(browser: Browser) -> None:
    response = browser.client.post(
        "/oauth/token?grant_type=refresh_token&refresh_token=x&client_id=store-cli", base_url=BASE
    )
    assert error_of(response)[0] in (400, 401)


def test_code_reuse_revokes_its_tokens(browser: Browser) -> None:
    browser.log_in()
    code = browser.code()
    tokens = browser.redeem(code).json or {}
    assert error_of(browser.redeem(code)) == (400, "invalid_grant")
    assert info(browser, tokens["access_token"]).status_code == 401


def info(browser: Browser, token: str, method: str = "GET") -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return browser.client.open("/oauth/userinfo", method=method, base_url=BASE, headers=headers)


@pytest.mark.spec("OID-08")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_userinfo_names_owner_of_token(browser: Browser, method: str) -> None:
    browser.log_in()
    response = info(browser, browser.tokens()["access_token"], method)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert response.json == {
        "sub": ADA,
        "email": ADA,
        "email_verified": True,
        "groups": ["user_default"],
    }


def test_a_token_may_be_in_a_body_and_not_in_the_query(browser: Browser) -> None:
    browser.log_in()
    token = browser.tokens()["access_token"]
    assert browser.post("/oauth/userinfo", {"access_token": token}).status_code == 200
    told = browser.client.post(
        "/oauth/userinfo", base_url=BASE, json={"access_token": token, "unknown": [1]}
    )
    assert (told.status_code, (told.json or {})["sub"]) == (200, ADA)
    assert browser.get(f"/oauth/userinfo?access_token={token}").status_code == 401
    twice = browser.client.post(
        "/oauth/userinfo",
        base_url=BASE,
        data={"access_token": token},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert error_of(twice) == (400, "invalid_request")


def test_invalid_token_gets_reason(browser: Browser, clock: Clock) -> None:
    bare = browser.get("/oauth/userinfo")
    assert (bare.status_code, bare.headers["WWW-Authenticate"]) == (401, "Bearer")
    browser.log_in()
    token = browser.tokens()["access_token"]
    id_token = browser.tokens()["id_token"]
    clock.now += 3600 + 31
    for bad in (token, id_token, "x", token + "x"):
        response = info(browser, bad)
        assert error_of(response) == (401, "invalid_token")
        assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]
    other = {"Authorization": "Basic eDp5"}
    refused = browser.client.get("/oauth/userinfo", base_url=BASE, headers=other)
    assert error_of(refused) == (401, "invalid_token")


def test_a_token_for_something_else_is_not_enough(browser: Browser) -> None:
    browser.log_in()
    response = info(browser, browser.tokens(scope="groups")["access_token"])
    assert error_of(response) == (403, "insufficient_scope")


@pytest.mark.spec("OID-09")
def test_a_disabled_persons_tokens_end_at_once(
    browser: Browser, disable: Callable[[str], None]
) -> None:
    browser.log_in()
    tokens = browser.tokens()
    disable(ADA)
    assert info(browser, tokens["access_token"]).status_code == 401
    form = {
        "grant_type": "refresh_token",
        "client_id": "store-cli",
        "refresh_token": tokens["refresh_token"],
    }
    assert error_of(browser.token(form)) == (400, "invalid_grant")


@pytest.mark.spec("OID-08")
def test_revokes_token(browser: Browser) -> None:
    browser.log_in()
    tokens = browser.tokens()
    form = {"token": tokens["refresh_token"], "client_id": "store-cli"}
    response = browser.post("/oauth/revoke", form)
    assert (response.status_code, response.json) == (200, {})
    assert info(browser, tokens["access_token"]).status_code == 401
    assert browser.post("/oauth/revoke", form).status_code == 200
    assert browser.post("/oauth/revoke", {**form, "token": "never one"}).status_code == 200
    assert error_of(browser.post("/oauth/revoke", {"token": "x"})) == (401, "invalid_client")


def test_store_accepts_token(browser: Browser, settings: Settings, clock: Clock) -> None:
    # `app` verifies as the store does: an operation that wants a token lets it in.
    browser.log_in()
    token = browser.tokens()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    answer = browser.client.get("/v1/users", base_url=BASE, headers=headers)
    assert answer.status_code == 403


@pytest.mark.spec("OID-02")
def test_tokens_of_retired_key_are_valid_until_expiry(
    browser: Browser, settings: Settings, keys: SigningKeyFile, clock: Clock
) -> None:
    browser.log_in()
    token = browser.tokens()["access_token"]
    for _ in range(4):
        rotate_key_file(
            settings.home, "ES256", now=clock.now, life_s=3600, given=settings.secret_key
        )
        clock.now += 600
    assert info(browser, token).status_code == 200
    found = browser.get("/.well-known/jwks.json").json or {}
    assert len(found["keys"]) == 5
    assert browser.tokens()["id_token"].split(".")[0] != token.split(".")[0]


def test_logs_no_secrets(browser: Browser, portal: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        browser.log_in()
        code = browser.code()
        tokens = browser.redeem(code).json or {}
        browser.redeem(code)
        browser.token({"refresh_token": tokens["refresh_token"]}, headers=basic("portal", portal))
        info(browser, tokens["access_token"])
        browser.authorize(**of_portal())
    said = caplog.text + json.dumps([str(vars(one)) for one in caplog.records])
    for secret in (code, portal, browser.cookie, *tokens.values()):
        assert not isinstance(secret, str) or len(secret) < 20 or secret not in said


def allowed_origin(browser: Browser, path: str, origin: str, method: str = "GET") -> str | None:
    asks = {"Origin": origin, "Access-Control-Request-Method": method}
    asked = browser.client.options(path, base_url=BASE, headers=asks)
    answer = browser.client.open(path, method=method, base_url=BASE, headers={"Origin": origin})
    found = answer.headers.get("Access-Control-Allow-Origin")
    assert asked.headers.get("Access-Control-Allow-Origin") == found
    assert "Access-Control-Allow-Credentials" not in answer.headers
    return found


@pytest.mark.spec("OID-15")
def test_discovery_and_keys_are_for_pages_of_all_origins(browser: Browser) -> None:
    for path in ("/.well-known/openid-configuration", "/.well-known/jwks.json"):
        assert allowed_origin(browser, path, "https://anywhere.example") == "*"


@pytest.mark.spec("OID-15")
def test_pages_of_public_clients_call_the_token_end_points(
    browser: Browser, catalog: Catalog, portal: str
) -> None:
    new = NewOAuthClient("spa", "Page", ("https://spa.example/back",), public=True)
    with catalog.write() as tx:
        add_client(tx, new, 1)
    for path, method in (
        ("/oauth/token", "POST"),
        ("/oauth/revoke", "POST"),
        ("/oauth/userinfo", "GET"),
    ):
        for origin in ("https://spa.example", "https://store.example", "http://127.0.0.1:5173"):
            assert allowed_origin(browser, path, origin, method) == origin
        for origin in (
            "https://evil.example",
            "https://spa.example.evil.example",
            "http://spa.example",
            "https://portal.example",
            "null",
        ):
            assert allowed_origin(browser, path, origin, method) is None
    for path in ("/oauth/authorize", "/login/account", "/device", "/v1/users"):
        assert allowed_origin(browser, path, "https://spa.example") is None


@pytest.mark.spec("OID-15")
def test_browsers_get_error_pages(browser: Browser) -> None:
    chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
    for path, status in (
        ("/nowhere", 404),
        ("/login?redirect_uri=https://evil.example", 400),
        ("/login", 400),
        ("/v1/users", 401),
        ("/oauth/token", 405),
    ):
        shown = browser.client.get(path, base_url=BASE, headers={"Accept": chrome})
        assert (shown.status_code, shown.mimetype) == (status, "text/html"), path
        assert shown.headers["X-Frame-Options"] == "DENY"
        assert shown.headers["X-Request-Id"] in shown.text
        for accept in ("*/*", "application/json", "application/json, text/html;q=0.5", ""):
            told = browser.client.get(path, base_url=BASE, headers={"Accept": accept})
            assert (told.status_code, told.mimetype) == (status, "application/problem+json"), path
            assert "Accept" in told.headers["Vary"]
    # What applications call is answered as RFC 6749 has it, whoever asks.
    refused = browser.token({}, headers={"Accept": chrome})
    assert (refused.status_code, refused.mimetype) == (401, "application/json")


def test_rejects_other_methods(browser: Browser) -> None:
    for path in ("/oauth/token", "/oauth/revoke", "/oauth/device_authorization"):
        response = browser.get(path)
        assert response.status_code == 405
        assert "POST" in response.headers["Allow"]


def test_limits_rate_of_token_requests(settings: Settings, catalog: Catalog, clock: Clock) -> None:
    limited = replace(settings, token_rate_per_minute=60, token_rate_burst=3)
    accepted = build_verifier(limited, clock).verify
    app = create_auth_app(limited, catalog, verify=accepted, clock=clock)
    browser = Browser(app.test_client(use_cookies=False), catalog, clock)
    form = {"grant_type": "refresh_token", "client_id": "store-cli", "refresh_token": "x"}
    assert [browser.token(form).status_code for _ in range(4)] == [400, 400, 400, 429]
    refused = browser.token(form)
    assert (refused.json or {})["error"] == "temporarily_unavailable"
    assert int(refused.headers["Retry-After"]) >= 1
    # Keys are for everybody who verifies a token.
    assert browser.client.get("/.well-known/jwks.json", base_url=BASE).status_code == 200
    clock.now += 2
    assert browser.token(form).status_code == 400
