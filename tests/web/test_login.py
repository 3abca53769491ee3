"""Log in through the real authorization service, renew, and log out."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import build_auth_app, build_catalog_verifier
from api.authz.app import build_auth_services
from auth.login import sessions
from auth.login.sessions import SESSION_COOKIE as AUTH_COOKIE
from auth.login.sessions import SessionLifetimes
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.errors import Invalid, Unauthorized
from storage.model import Principal
from storage.stores import Stores
from tests.conftest import Outbox
from tests.web.conftest import BROWSER
from web.app import create_site_app
from web.login import SESSION_COOKIE, is_local_path
from web.pages import SITE_KEY, Site

ADA = "ada@example.org"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def auth_app(keyed_settings: Settings, stores: Stores) -> Flask:
    return build_auth_app(keyed_settings, stores.catalog)


@pytest.fixture
def app(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox, auth_app: Flask, clock: Clock
) -> Flask:
    """The pages, whose calls of the authorization service reach the application in this test."""
    verify = build_catalog_verifier(
        keyed_settings, stores.catalog, GrantChecker(stores.catalog, time.time)
    )

    def post_form(path: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        answer = auth_app.test_client().post(
            path, data=dict(form), base_url=keyed_settings.auth_url
        )
        if answer.status_code >= 400:
            raise Invalid(answer.text)
        return answer.get_json(silent=True) or {}

    return create_site_app(
        keyed_settings,
        stores,
        job_queue=job_queue,
        verify=verify,
        auth=build_auth_services(keyed_settings, stores.catalog, verify, None, time.time),
        post_form=post_form,
        clock=clock,
    )


def follow_login(
    client: FlaskClient, auth_app: Flask, settings: Settings, stores: Stores, target: str
) -> str:
    """Log in as Ada does who has a session at the authorization service; return the callback."""
    begun = client.get(target, base_url=settings.site_url, headers=BROWSER)
    assert begun.status_code == 303
    lasting = SessionLifetimes(43_200, 43_200)
    with stores.catalog.write() as tx:
        cookie, _ = sessions.create_session(tx, ADA, "local", now=time.time(), lifetimes=lasting)
    browser = auth_app.test_client()
    browser.set_cookie(AUTH_COOKIE, cookie, domain=urlsplit(settings.auth_url).hostname or "")
    url = begun.headers["Location"].removeprefix(settings.auth_url)
    granted = browser.get(url, base_url=settings.auth_url)
    assert granted.status_code == 302, granted.text
    return granted.headers["Location"].removeprefix(settings.site_url)


def test_login_needs_no_consent_and_leads_back(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores
) -> None:
    client = app.test_client()
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login?next=/docs%3Fa%3D1")
    done = client.get(callback, base_url=keyed_settings.site_url, headers=BROWSER)
    assert (done.status_code, done.headers["Location"]) == (303, "/docs?a=1")
    cookies = done.headers.getlist("Set-Cookie")
    session = next(line for line in cookies if line.startswith(SESSION_COOKIE + "="))
    assert "HttpOnly" in session
    assert "SameSite=Lax" in session
    page = client.get("/", base_url=keyed_settings.site_url, headers=BROWSER)
    assert ADA in page.text


def test_callback_in_another_browser_is_refused(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores
) -> None:
    callback = follow_login(app.test_client(), auth_app, keyed_settings, stores, "/login")
    page = app.test_client().get(callback, base_url=keyed_settings.site_url, headers=BROWSER)
    assert page.status_code == 400
    assert "another browser" in page.text


def test_callback_in_a_browser_with_its_own_login_is_refused(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores
) -> None:
    """Otherwise somebody could be logged in as another user; nothing is asked with their code."""
    base = keyed_settings.site_url
    victim = app.test_client()
    assert victim.get("/login", base_url=base, headers=BROWSER).status_code == 303
    mine = app.test_client()
    callback = follow_login(mine, auth_app, keyed_settings, stores, "/login")
    page = victim.get(callback, base_url=base, headers=BROWSER)
    assert page.status_code == 400
    assert "another browser" in page.text
    assert mine.get(callback, base_url=base, headers=BROWSER).status_code == 303


@pytest.mark.parametrize(
    "changed", [{"iss": "https://evil.example"}, {"code": "x"}, {"state": "x"}]
)
def test_callback_with_changed_parameter_is_refused(
    app: Flask,
    auth_app: Flask,
    keyed_settings: Settings,
    stores: Stores,
    changed: dict[str, str],
) -> None:
    client = app.test_client()
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login")
    query = {name: values[0] for name, values in parse_qs(urlsplit(callback).query).items()}
    page = client.get(
        "/login/callback",
        query_string={**query, **changed},
        base_url=keyed_settings.site_url,
        headers=BROWSER,
    )
    assert page.status_code == 400
    assert not any(c.startswith(SESSION_COOKIE) for c in page.headers.getlist("Set-Cookie"))


def test_session_is_renewed_before_its_token_expires(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores, clock: Clock
) -> None:
    client = app.test_client()
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login")
    client.get(callback, base_url=keyed_settings.site_url, headers=BROWSER)
    clock.ahead = keyed_settings.access_token_s - 60
    page = client.get("/", base_url=keyed_settings.site_url, headers=BROWSER)
    assert ADA in page.text
    assert any(c.startswith(SESSION_COOKIE) for c in page.headers.getlist("Set-Cookie"))
    clock.ahead = keyed_settings.session_s + 60
    assert ADA not in client.get("/", base_url=keyed_settings.site_url, headers=BROWSER).text


def test_logout_ends_session_and_revokes_its_tokens(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores
) -> None:
    client = app.test_client()
    base = keyed_settings.site_url
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login")
    client.get(callback, base_url=base, headers=BROWSER)
    stolen = client.get_cookie(SESSION_COOKIE, domain=urlsplit(base).hostname or "")
    assert stolen is not None
    home = client.get("/", base_url=base, headers=BROWSER).text
    token = home.split('name="csrf" value="', 1)[1].split('"', 1)[0]
    done = client.post("/logout", data={"csrf": token}, base_url=base, headers=BROWSER)
    assert done.headers["Location"].startswith(f"{keyed_settings.auth_url}/logout?id_token_hint=")
    assert ADA not in client.get("/", base_url=base, headers=BROWSER).text
    thief = app.test_client()
    thief.set_cookie(SESSION_COOKIE, stolen.value, domain=urlsplit(base).hostname or "")
    assert ADA not in thief.get("/", base_url=base, headers=BROWSER).text


def test_login_that_the_store_refuses_ends_with_an_error(
    app: Flask, auth_app: Flask, keyed_settings: Settings, stores: Stores
) -> None:
    """A redirect to the login would come back here, and so on for ever."""

    def refuse(_token: str) -> Principal:
        raise Unauthorized("The token is for another audience")

    client = app.test_client()
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login")
    object.__setattr__(app.extensions[SITE_KEY].services, "verify", refuse)
    page = client.get(callback, base_url=keyed_settings.site_url, headers=BROWSER)
    assert page.status_code == 400
    assert "another audience" in page.text
    assert not any(line.startswith(SESSION_COOKIE) for line in page.headers.getlist("Set-Cookie"))


def test_session_ends_with_the_secret_key(
    app: Flask,
    auth_app: Flask,
    keyed_settings: Settings,
    stores: Stores,
    job_queue: Outbox,
) -> None:
    client, base = app.test_client(), keyed_settings.site_url
    callback = follow_login(client, auth_app, keyed_settings, stores, "/login")
    client.get(callback, base_url=base, headers=BROWSER)
    stolen = client.get_cookie(SESSION_COOKIE, domain=urlsplit(base).hostname or "")
    assert stolen is not None
    site: Site = app.extensions[SITE_KEY]
    settings = replace(keyed_settings, secret_key="another secret for tests")
    verify, post_form = site.services.verify, site.post_form
    later = create_site_app(
        settings, stores, job_queue=job_queue, verify=verify, auth=site.auth, post_form=post_form
    )
    for name, shown in ((app, True), (later, False)):
        browser = name.test_client()
        browser.set_cookie(SESSION_COOKIE, stolen.value, domain=urlsplit(base).hostname or "")
        assert (ADA in browser.get("/", base_url=base, headers=BROWSER).text) is shown


@pytest.mark.parametrize("cookie", ["", "A", "é", "A" * 100_000, "%00", "A.B.C", '"' * 100])
def test_strange_session_cookie_is_no_session(
    app: Flask, keyed_settings: Settings, cookie: str
) -> None:
    headers = {**BROWSER, "Cookie": f"{SESSION_COOKIE}={cookie}"}
    page = app.test_client().get("/", base_url=keyed_settings.site_url, headers=headers)
    assert page.status_code == 200
    assert "Log in" in page.text


def test_tampered_session_cookie_is_no_session(app: Flask, keyed_settings: Settings) -> None:
    client = app.test_client()
    client.set_cookie(SESSION_COOKIE, "A" * 200)
    assert "Log in" in client.get("/", base_url=keyed_settings.site_url, headers=BROWSER).text


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "", "/\n/evil"]
)
def test_login_leads_to_no_other_site(path: str) -> None:
    assert not is_local_path(path)
