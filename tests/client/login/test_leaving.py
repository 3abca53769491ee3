"""Bringing a token, asking who one is, and logging out."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from auth.tokens.issuing import Grant, issue
from auth.tokens.key_file import KeyFile
from auth.tokens.keys import SigningKeys
from store_client.configuration import Configuration
from store_client.errors import Misused, NotAllowed, Refused, StoreError, Unreachable
from store_client.login import kept as files
from store_client.login.checking import ahead_of, jwt_of
from store_client.login.discovery import found_at, in_the_clear, service_of
from store_client.login.entering import Around, with_consent, with_token
from store_client.login.expiry import Standing
from store_client.login.kept import Kept
from store_client.login.logout import logout
from store_client.login.tokens import KeptTokens, anonymous, tokens_of
from store_client.login.whoami import LOGIN, NOBODY, PROGRAM, TOKEN, known, whoami
from store_client.transport.session import Session
from tests.client.login.world import ADA, ROBOT, Browser, Moving, World

QUIET = Around(lambda _: None)


@pytest.fixture
def login(session: Session, config: Configuration, browser: Browser) -> Kept:
    with_consent(session, config, around=Around(lambda _: None, browser.visit, wait_s=20))
    found = files.read(config)
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
    return issue(
        keys or KeyFile(world.settings.home, world.settings.secret_key).read(),
        Grant(ADA, ("store_ingest",), lifetime_s),
        issuer=issuer or world.auth_url,
        audience=[audience],
        now=time.time() - 100,
        token_id="1",
    )


def test_a_token_that_the_store_takes_is_kept(
    session: Session, config: Configuration, world: World
) -> None:
    found = with_token(session, config, token_of(world), around=QUIET)
    assert (found.email, found.issuer) == (ADA, world.auth_url)
    kept = files.read(config)
    assert kept is not None
    assert (kept.email, kept.refresh_token) == (ADA, "")
    assert kept.expires == pytest.approx(time.time() + 3500, abs=5)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"audience": "elsewhere"}, "audience"),
        ({"issuer": "https://issuer.example"}, "issued by https://issuer.example"),
        ({"lifetime_s": 10}, "ended at"),
    ],
)
def test_a_token_that_the_store_does_not_take_is_not_kept_and_told_why(
    session: Session, config: Configuration, world: World, changed: dict[str, object], why: str
) -> None:
    with_token(session, config, token_of(world), around=QUIET)
    before = files.read(config)
    token = token_of(world, **changed)  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match=why) as caught:
        with_token(session, config, token, around=QUIET)
    assert token not in str(caught.value) + caught.value.hint
    assert files.read(config) == before


@pytest.mark.parametrize("text", ["", "secret", "a.b.c", "Bearer", "\0", "x" * 100_000])
def test_what_is_no_token_is_not_shown_to_anybody(config: Configuration, text: str) -> None:
    with pytest.raises(Misused) as caught:
        with_token(unreachable(config), config, text, around=QUIET)
    assert not text or text not in str(caught.value)


def test_tokens_are_found_in_what_is_pasted() -> None:
    token = "e30.eyJhIjoxfQ.c2ln"
    for text in (token, f" {token}\n", f"Bearer {token}", f"bearer   {token}\r\n"):
        assert jwt_of(text) == token


def test_a_store_that_is_not_encrypted_is_warned_of() -> None:
    assert in_the_clear("http://store.example")
    assert not in_the_clear("http://127.0.0.1:8000")
    assert not in_the_clear("https://store.example")


def unreachable(config: Configuration) -> Session:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network")

    return Session(config.url, transport=httpx.MockTransport(refuse), sleep=lambda _: None)


def test_who_is_logged_in_is_told_by_the_store(
    session: Session, config: Configuration, login: Kept, world: World
) -> None:
    found = whoami(session, config, tokens_of(config, environ={}), environ={})
    assert (found.how, found.email, found.issuer) == (LOGIN, ADA, world.auth_url)
    assert found.renews
    assert "user_default" in found.groups
    with_token(session, config, token_of(world), around=QUIET)
    again = whoami(session, config, tokens_of(config, environ={}), environ={})
    assert (again.how, again.email, again.renews) == (TOKEN, ADA, False)
    assert again.standing is Standing.GOOD


def test_a_token_that_soon_ends_is_told(
    session: Session, config: Configuration, world: World
) -> None:
    with_token(session, config, token_of(world, lifetime_s=300), around=QUIET)
    found = whoami(session, config, tokens_of(config, environ={}), environ={})
    assert found.standing is Standing.NEARLY
    assert known(config, environ={}).standing is Standing.NEARLY
    assert known(config, environ={}, now=Moving(HOUR)).standing is Standing.EXPIRED


HOUR = 3_600.0


def test_a_program_is_told_its_account(
    session: Session, config: Configuration, world: World, tmp_path: Path
) -> None:
    environ = {"CLOUD_APPLICATION_CREDENTIALS": str(world.robot(tmp_path / "robot.json"))}
    found = whoami(session, config, tokens_of(config, environ=environ), environ=environ)
    assert (found.how, found.email, found.renews) == (PROGRAM, ROBOT, True)


def test_nobody_is_told_how_to_log_in(session: Session, config: Configuration) -> None:
    assert known(config, environ={}).how == NOBODY
    with pytest.raises(NotAllowed, match="nobody is logged in") as caught:
        whoami(session, config, tokens_of(config, environ={}), environ={})
    assert "store login" in caught.value.hint


def test_a_token_that_is_refused_is_renewed_before_it_is_told(
    session: Session, config: Configuration, login: Kept, world: World
) -> None:
    world.clock.ahead_s = 2 * HOUR
    found = whoami(session, config, tokens_of(config, environ={}), environ={})
    assert found.email == ADA
    now = files.read(config)
    assert now is not None
    assert now.access_token != login.access_token


def test_logging_out_ends_the_login_everywhere(
    session: Session, config: Configuration, login: Kept, world: World
) -> None:
    left = logout(session, config)
    assert (left.was_in, left.revoked, left.email) == (True, True, ADA)
    assert not config.credentials.exists()
    header = {"Authorization": f"Bearer {login.access_token}"}
    answer = httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header)
    assert answer.status_code == 401
    assert tokens_of(config, environ={}).bearer() is None
    assert logout(session, config).was_in is False


def failing(status: int) -> Callable[[Configuration], Session]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text="<html>")

    return lambda config: Session(
        config.url, transport=httpx.MockTransport(answer), sleep=lambda _: None
    )


@pytest.mark.parametrize("session_of", [unreachable, failing(500), failing(404), failing(403)])
def test_credentials_are_removed_whoever_cannot_be_told(
    config: Configuration, session_of: Callable[[Configuration], Session]
) -> None:
    kept = Kept("a", "r", expires=5.0, revocation_endpoint="https://auth.example/revoke")
    files.write(config, kept)
    with session_of(config) as session:
        left = logout(session, config)
    assert (left.was_in, left.revoked, bool(left.why_not)) == (True, False, True)
    assert left.expires == 5.0
    assert not config.credentials.exists()


def test_credentials_that_cannot_be_read_are_removed_too(config: Configuration) -> None:
    config.credentials.parent.mkdir(parents=True)
    config.credentials.write_text("{")
    with unreachable(config) as session:
        assert logout(session, config).was_in
    assert not config.credentials.exists()


def test_a_token_that_was_brought_is_only_forgotten(
    session: Session, config: Configuration, world: World
) -> None:
    with_token(session, config, token_of(world), around=QUIET)
    left = logout(session, config)
    assert (left.was_in, left.revoked) == (True, False)
    assert "elsewhere" in left.why_not


def test_who_logs_out_while_a_token_is_refreshed_is_logged_out(
    config: Configuration, login: Kept, world: World
) -> None:
    files.write(config, replace(login, expires=1.0))

    def leave() -> None:
        with anonymous(config) as session:
            assert logout(session, config).revoked

    leaving = threading.Thread(target=leave)

    def meanwhile(config: Configuration) -> Session:
        leaving.start()
        time.sleep(0.2)
        return anonymous(config)

    token = KeptTokens(config, session_of=meanwhile).bearer()
    leaving.join()
    assert token not in (None, login.access_token)
    header = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header)
    assert answer.status_code == 401
    assert KeptTokens(config, session_of=anonymous).bearer() is None


def described(**changed: object) -> Callable[[httpx.Request], httpx.Response]:
    ordinary: dict[str, object] = {
        "issuer": "https://auth.example",
        "authorization_endpoint": "https://auth.example/authorize",
        "token_endpoint": "https://auth.example/token",
    }
    said = {name: value for name, value in {**ordinary, **changed}.items() if value is not None}
    return lambda request: httpx.Response(200, json=said)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"issuer": "https://evil.example"}, "calls itself something else"),
        ({"issuer": None}, "calls itself something else"),
        ({"token_endpoint": "http://auth.example/token"}, "token_endpoint"),
        ({"token_endpoint": "file:///etc/passwd"}, "token_endpoint"),
        ({"token_endpoint": 7}, "token_endpoint"),
        ({"token_endpoint": None}, "no end points"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
    ],
)
def test_a_service_is_believed_about_itself_alone(changed: dict[str, object], why: str) -> None:
    transport = httpx.MockTransport(described(**changed))
    with (
        Session("https://store.example", transport=transport) as session,
        pytest.raises(Refused, match=why),
    ):
        found_at(session, "https://auth.example")


def test_what_does_not_describe_itself_is_no_service() -> None:
    for body in (b"", b"[]", b"<html>"):
        transport = httpx.MockTransport(lambda _, body=body: httpx.Response(200, content=body))
        with (
            Session("https://store.example", transport=transport) as session,
            pytest.raises(Refused, match="does not describe itself"),
        ):
            found_at(session, "https://auth.example/.well-known/openid-configuration")


def test_a_store_that_names_no_service_says_how_to_log_in_all_the_same(
    config: Configuration,
) -> None:
    document = {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {}}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=document))
    with Session(config.url, transport=transport) as session, pytest.raises(StoreError) as caught:
        service_of(session, config)
    assert "--access-token" in caught.value.hint


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
    assert ahead_of(answer, 1100.0) == ahead


def test_a_store_that_cannot_be_reached_is_told_so(config: Configuration, world: World) -> None:
    with unreachable(config) as session, pytest.raises(Unreachable):
        with_token(session, config, token_of(world), around=QUIET)
    assert not config.credentials.exists()
