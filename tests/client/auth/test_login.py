"""Bringing a token, asking who one is, and logging out."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import SigningKeyFile, SigningKeys
from store_client import Misused, NotAllowed, Refused, StoreError, Unreachable
from store_client.auth import credentials
from store_client.auth.claims import TokenStatus
from store_client.auth.credentials import SavedLogin
from store_client.auth.identity import (
    ANONYMOUS,
    LOGIN,
    PROGRAM,
    TOKEN,
    clock_skew,
    extract_jwt,
    fetch_identity,
    local_identity,
)
from store_client.auth.login import LoginPrompts, log_out, login_with_consent, login_with_token
from store_client.auth.oauth import discover_service, fetch_service, is_unencrypted
from store_client.auth.tokens import SavedLoginTokens, anonymous_session, open_tokens
from store_client.configuration import Configuration
from store_client.http import HttpSession
from tests.client.auth.auth_service import ADA, ROBOT, Browser, Moving, World

QUIET = LoginPrompts(lambda _: None)


@pytest.fixture
def login(session: HttpSession, config: Configuration, browser: Browser) -> SavedLogin:
    login_with_consent(
        session, config, around=LoginPrompts(lambda _: None, browser.visit, wait_s=20)
    )
    found = credentials.read_login(config)
    assert found is not None
    return found


def token_of(
    world: World,
    *,
    issuer: str = "",
    audience: str = "store",
    lifetime_s: int = 3600,
    keys: SigningKeys | None = None,
) -> str:
    """As `python -m ops token` makes one."""
    return issue_token(
        keys or SigningKeyFile(world.settings.home, world.settings.secret_key).read(),
        TokenSpec(ADA, ("store_ingest",), lifetime_s),
        issuer=issuer or world.auth_url,
        audience=[audience],
        now=time.time() - 100,
        token_id="1",
    )


@pytest.mark.spec("CLI-73")
def test_stores_token_that_store_accepts(
    session: HttpSession, config: Configuration, world: World
) -> None:
    found = login_with_token(session, config, token_of(world), around=QUIET)
    assert (found.email, found.issuer) == (ADA, world.auth_url)
    kept = credentials.read_login(config)
    assert kept is not None
    assert (kept.email, kept.refresh_token) == (ADA, "")
    assert kept.expires == pytest.approx(time.time() + 3500, abs=5)


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"audience": "elsewhere"}, "audience"),
        ({"issuer": "https://issuer.example"}, "issued by https://issuer.example"),
        ({"lifetime_s": 10}, "expired at"),
    ],
)
def test_rejects_token_that_store_refuses_with_reason(
    session: HttpSession, config: Configuration, world: World, changed: dict[str, object], why: str
) -> None:
    login_with_token(session, config, token_of(world), around=QUIET)
    before = credentials.read_login(config)
    token = token_of(world, **changed)  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match=why) as caught:
        login_with_token(session, config, token, around=QUIET)
    assert token not in str(caught.value) + caught.value.hint
    assert credentials.read_login(config) == before


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize("text", ["", "secret", "a.b.c", "Bearer", "\0", "x" * 100_000])
def test_never_sends_invalid_token(config: Configuration, text: str) -> None:
    with pytest.raises(Misused) as caught:
        login_with_token(unreachable(config), config, text, around=QUIET)
    assert not text or text not in str(caught.value)


@pytest.mark.spec("CLI-73")
def test_tokens_are_found_in_what_is_pasted() -> None:
    token = "e30.eyJhIjoxfQ.c2ln"
    for text in (token, f" {token}\n", f"Bearer {token}", f"bearer   {token}\r\n"):
        assert extract_jwt(text) == token


@pytest.mark.spec("CLI-84")
def test_a_store_that_is_not_encrypted_is_warned_of() -> None:
    assert is_unencrypted("http://store.example")
    assert not is_unencrypted("http://127.0.0.1:8000")
    assert not is_unencrypted("https://store.example")


def unreachable(config: Configuration) -> HttpSession:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network")

    return HttpSession(config.url, transport=httpx.MockTransport(refuse), sleep=lambda _: None)


@pytest.mark.spec("CLI-79")
def test_whoami_shows_user_of_store(
    session: HttpSession, config: Configuration, login: SavedLogin, world: World
) -> None:
    found = fetch_identity(session, config, open_tokens(config, environ={}), environ={})
    assert (found.how, found.email, found.issuer) == (LOGIN, ADA, world.auth_url)
    assert found.renews
    assert "user_default" in found.groups
    login_with_token(session, config, token_of(world), around=QUIET)
    again = fetch_identity(session, config, open_tokens(config, environ={}), environ={})
    assert (again.how, again.email, again.renews) == (TOKEN, ADA, False)
    assert again.status is TokenStatus.GOOD


@pytest.mark.spec("CLI-78")
def test_warns_of_expiring_token(session: HttpSession, config: Configuration, world: World) -> None:
    login_with_token(session, config, token_of(world, lifetime_s=300), around=QUIET)
    found = fetch_identity(session, config, open_tokens(config, environ={}), environ={})
    assert found.status is TokenStatus.NEARLY
    assert local_identity(config, environ={}).status is TokenStatus.NEARLY
    assert local_identity(config, environ={}, now=Moving(HOUR)).status is TokenStatus.EXPIRED


HOUR = 3_600.0


@pytest.mark.spec("CLI-79")
def test_shows_service_account(
    session: HttpSession, config: Configuration, world: World, tmp_path: Path
) -> None:
    environ = {"CLOUD_APPLICATION_CREDENTIALS": str(world.robot(tmp_path / "robot.json"))}
    found = fetch_identity(session, config, open_tokens(config, environ=environ), environ=environ)
    assert (found.how, found.email, found.renews) == (PROGRAM, ROBOT, True)


@pytest.mark.spec("CLI-79")
def test_tells_anonymous_user_how_to_log_in(session: HttpSession, config: Configuration) -> None:
    assert local_identity(config, environ={}).how == ANONYMOUS
    with pytest.raises(NotAllowed, match="you are not logged in") as caught:
        fetch_identity(session, config, open_tokens(config, environ={}), environ={})
    assert "store login" in caught.value.hint


@pytest.mark.spec("CLI-79")
def test_refreshes_refused_token_before_reporting(
    session: HttpSession, config: Configuration, login: SavedLogin, world: World
) -> None:
    world.clock.ahead_s = 2 * HOUR
    found = fetch_identity(session, config, open_tokens(config, environ={}), environ={})
    assert found.email == ADA
    now = credentials.read_login(config)
    assert now is not None
    assert now.access_token != login.access_token


@pytest.mark.spec("CLI-80")
def test_logout_revokes_login(
    session: HttpSession, config: Configuration, login: SavedLogin, world: World
) -> None:
    left = log_out(session, config)
    assert (left.was_in, left.revoked, left.email) == (True, True, ADA)
    assert not config.credentials.exists()
    header = {"Authorization": f"Bearer {login.access_token}"}
    answer = httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header)
    assert answer.status_code == 401
    assert open_tokens(config, environ={}).bearer() is None
    assert log_out(session, config).was_in is False


def failing(status: int) -> Callable[[Configuration], HttpSession]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text="<html>")

    return lambda config: HttpSession(
        config.url, transport=httpx.MockTransport(answer), sleep=lambda _: None
    )


@pytest.mark.spec("CLI-80")
@pytest.mark.parametrize("session_of", [unreachable, failing(500), failing(404), failing(403)])
def test_logout_removes_credentials_during_outage(
    config: Configuration, session_of: Callable[[Configuration], HttpSession]
) -> None:
    kept = SavedLogin("a", "r", expires=5.0, revocation_endpoint="https://auth.example/revoke")
    credentials.write_login(config, kept)
    with session_of(config) as session:
        left = log_out(session, config)
    assert (left.was_in, left.revoked, bool(left.why_not)) == (True, False, True)
    assert left.expires == 5.0
    assert not config.credentials.exists()


@pytest.mark.spec("CLI-80")
def test_credentials_that_cannot_be_read_are_removed_too(config: Configuration) -> None:
    config.credentials.parent.mkdir(parents=True)
    config.credentials.write_text("{")
    with unreachable(config) as session:
        assert log_out(session, config).was_in
    assert not config.credentials.exists()


@pytest.mark.spec("CLI-80")
def test_logout_forgets_pasted_token(
    session: HttpSession, config: Configuration, world: World
) -> None:
    login_with_token(session, config, token_of(world), around=QUIET)
    left = log_out(session, config)
    assert (left.was_in, left.revoked) == (True, False)
    assert "elsewhere" in left.why_not


@pytest.mark.spec("CLI-80")
def test_logout_during_refresh_wins(config: Configuration, login: SavedLogin, world: World) -> None:
    credentials.write_login(config, replace(login, expires=1.0))

    def leave() -> None:
        with anonymous_session(config) as session:
            assert log_out(session, config).revoked

    leaving = threading.Thread(target=leave)

    def meanwhile(config: Configuration) -> HttpSession:
        leaving.start()
        time.sleep(0.2)
        return anonymous_session(config)

    token = SavedLoginTokens(config, session_of=meanwhile).bearer()
    leaving.join()
    assert token not in (None, login.access_token)
    header = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header)
    assert answer.status_code == 401
    assert SavedLoginTokens(config, session_of=anonymous_session).bearer() is None


def described(**changed: object) -> Callable[[httpx.Request], httpx.Response]:
    ordinary: dict[str, object] = {
        "issuer": "https://auth.example",
        "authorization_endpoint": "https://auth.example/authorize",
        "token_endpoint": "https://auth.example/token",
    }
    said = {name: value for name, value in {**ordinary, **changed}.items() if value is not None}
    return lambda request: httpx.Response(200, json=said)


@pytest.mark.spec("CLI-84")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"issuer": "https://evil.example"}, "has another issuer in its configuration"),
        ({"issuer": None}, "has another issuer in its configuration"),
        ({"token_endpoint": "http://auth.example/token"}, "token_endpoint"),
        ({"token_endpoint": "file:///etc/passwd"}, "token_endpoint"),
        ({"token_endpoint": 7}, "token_endpoint"),
        ({"token_endpoint": None}, "no login endpoints"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
    ],
)
def test_accepts_service_metadata_about_itself_only(changed: dict[str, object], why: str) -> None:
    transport = httpx.MockTransport(described(**changed))
    with (
        HttpSession("https://store.example", transport=transport) as session,
        pytest.raises(Refused, match=why),
    ):
        fetch_service(session, "https://auth.example")


@pytest.mark.spec("CLI-84")
def test_rejects_service_without_metadata() -> None:
    for body in (b"", b"[]", b"<html>", b"[" * 100_000):
        transport = httpx.MockTransport(lambda _, body=body: httpx.Response(200, content=body))
        with (
            HttpSession("https://store.example", transport=transport) as session,
            pytest.raises(Refused, match="has no OpenID configuration"),
        ):
            fetch_service(session, "https://auth.example/.well-known/openid-configuration")


@pytest.mark.spec("CLI-84")
def test_store_without_service_says_how_to_log_in(
    config: Configuration,
) -> None:
    document = {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {}}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=document))
    with (
        HttpSession(config.url, transport=transport) as session,
        pytest.raises(StoreError) as caught,
    ):
        discover_service(session, config)
    assert "--access-token" in caught.value.hint


@pytest.mark.spec("CLI-84")
@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        ("Thu, 01 Jan 1970 00:16:40 GMT", 100.0),
        ("Thu, 01 Jan 1970 01:00:00 GMT", -2500.0),
        ("yesterday", 0.0),
        ("", 0.0),
        ("Thu, 99 Jan 99999 99:99:99 GMT", 0.0),
    ],
)
def test_the_clock_of_a_server_is_read_of_its_answer(date: str, ahead: float) -> None:
    answer = httpx.Response(200, headers={"Date": date})
    assert clock_skew(answer, 1100.0) == ahead


@pytest.mark.spec("CLI-73")
def test_reports_unreachable_store(config: Configuration, world: World) -> None:
    with unreachable(config) as session, pytest.raises(Unreachable):
        login_with_token(session, config, token_of(world), around=QUIET)
    assert not config.credentials.exists()
