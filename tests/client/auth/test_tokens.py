"""Tokens of a kept login: refreshed before they end, and by one of many."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from store_client.auth import credentials as files
from store_client.auth.credentials import SavedLogin
from store_client.auth.login import LoginPrompts, login_with_consent, login_with_token
from store_client.auth.tokens import SavedLoginTokens, anonymous_session, open_tokens
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, Unreachable
from store_client.http.session import HttpSession
from tests.client.auth.auth_service import Browser, Moving, World

HOUR = 3_600.0


@pytest.fixture
def login(session: HttpSession, config: Configuration, browser: Browser) -> SavedLogin:
    """Somebody who has just logged in."""
    login_with_consent(
        session, config, around=LoginPrompts(lambda _: None, browser.visit, wait_s=20)
    )
    return now_kept(config)


def now_kept(config: Configuration) -> SavedLogin:
    found = files.read_login(config)
    assert found is not None
    return found


def taken(world: World, token: str | None) -> int:
    header = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header).status_code


def nobody_asks(config: Configuration) -> HttpSession:
    raise AssertionError("nobody should be asked")


class Counting:
    """Sessions of which each refresh is counted."""

    def __init__(self) -> None:
        self.made = 0
        self._lock = threading.Lock()

    def __call__(self, config: Configuration) -> HttpSession:
        with self._lock:
            self.made += 1
        return anonymous_session(config)


def ending(config: Configuration) -> None:
    """The token that is kept ends in a moment."""
    files.write_login(config, replace(now_kept(config), expires=1.0))


@pytest.mark.spec("CLI-76")
def test_valid_token_needs_no_request(login: SavedLogin, config: Configuration) -> None:
    assert SavedLoginTokens(config, session_of=nobody_asks).bearer() == login.access_token


@pytest.mark.spec("CLI-76")
def test_token_is_refreshed_before_expiry(
    login: SavedLogin, config: Configuration, world: World
) -> None:
    assert login.expires is not None
    ends = login.expires
    tokens = SavedLoginTokens(config, session_of=nobody_asks, now=lambda: ends - 61)
    assert tokens.bearer() == login.access_token
    later = SavedLoginTokens(config, session_of=anonymous_session, now=lambda: ends - 59)
    following = later.bearer()
    assert following not in (None, login.access_token)
    assert taken(world, following) == 200
    kept = now_kept(config)
    assert kept.access_token == following
    assert kept.refresh_token != login.refresh_token
    assert (kept.email, kept.issuer) == (login.email, login.issuer)
    assert config.credentials.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("CLI-76")
def test_tokens_follow_one_another(login: SavedLogin, config: Configuration, world: World) -> None:
    seen = {login.access_token}
    for _ in range(4):
        ending(config)
        token = SavedLoginTokens(config, session_of=anonymous_session).bearer()
        assert token not in seen
        assert taken(world, token) == 200
        seen.add(str(token))


@pytest.mark.spec("CLI-76")
def test_one_of_many_threads_refreshes(login: SavedLogin, config: Configuration) -> None:
    ending(config)
    asked = Counting()
    tokens = SavedLoginTokens(config, session_of=asked)
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: tokens.bearer(), range(64)))
    assert (len(found), asked.made) == (1, 1)
    assert found == {now_kept(config).access_token}


ASKS = """
import sys, time
from pathlib import Path
from store_client.configuration import Configuration
from store_client.auth.tokens import SavedLoginTokens, anonymous_session
made = []
config = Configuration(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
tokens = SavedLoginTokens(config, session_of=lambda c: made.append(1) or anonymous_session(c))
print("ready", flush=True)
sys.stdin.readline()
print(tokens.bearer(), len(made))
"""


@pytest.mark.spec("CLI-76")
def test_one_of_many_processes_refreshes_and_login_stays(
    login: SavedLogin, config: Configuration, world: World
) -> None:
    ending(config)
    words = [sys.executable, "-c", ASKS, str(config.home), str(config.cache), config.url]
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        all_ = [
            stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True))
            for _ in range(3)
        ]
        for each in all_:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in all_:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        found = [each.communicate(timeout=60)[0].split() for each in all_]
    assert len({token for token, _ in found}) == 1
    assert sum(int(asked) for _, asked in found) == 1
    assert taken(world, found[0][0]) == 200


@pytest.mark.spec("CLI-76")
def test_refused_token_is_replaced_and_request_repeated(
    login: SavedLogin, config: Configuration, world: World
) -> None:
    """The store's clock is ahead: our token ended there and not here."""
    world.clock.ahead_s = 2 * HOUR
    with Client(config=config) as client:
        assert client.call("get_subscriptions", replica="aws") == {"subscriptions": []}
    assert now_kept(config).access_token != login.access_token


@pytest.mark.spec("CLI-77")
def test_a_clock_that_is_wrong_here_does_not_matter(
    session: HttpSession, config: Configuration, browser: Browser
) -> None:
    """What counts is for how long a token is said to be good."""
    for ahead in (-5 * HOUR, 5 * HOUR):
        here = LoginPrompts(lambda _: None, browser.visit, wait_s=20, now=Moving(ahead))
        login_with_consent(session, config, around=here)
        tokens = SavedLoginTokens(config, session_of=nobody_asks, now=here.now)
        assert tokens.bearer() == now_kept(config).access_token


@pytest.mark.spec("CLI-76")
def test_token_refreshed_elsewhere_is_not_refreshed_again(
    login: SavedLogin, config: Configuration
) -> None:
    tokens = SavedLoginTokens(config, session_of=nobody_asks)
    tokens.bearer()
    files.write_login(config, replace(login, access_token="another's"))
    assert tokens.renew(login.access_token) == "another's"


@pytest.mark.spec("CLI-77")
def test_ended_login_is_reported_until_new_login(
    login: SavedLogin, config: Configuration, world: World, session: HttpSession, browser: Browser
) -> None:
    world.enable(login.email, allowed=False)
    ending(config)
    tokens = SavedLoginTokens(config, session_of=anonymous_session)
    for _ in range(2):
        with pytest.raises(NotAllowed, match="is over") as caught:
            tokens.bearer()
        assert "store login" in caught.value.hint
    kept = now_kept(config)
    assert (kept.refresh_token, bool(kept.over)) == ("", True)
    assert tokens.renew(login.access_token) is None
    world.enable(login.email, allowed=True)
    login_with_consent(
        session, config, around=LoginPrompts(lambda _: None, browser.visit, wait_s=20)
    )
    assert tokens.bearer() == now_kept(config).access_token


@pytest.mark.spec("CLI-77")
def test_logout_elsewhere_makes_client_anonymous(login: SavedLogin, config: Configuration) -> None:
    here = Moving()
    tokens = SavedLoginTokens(config, session_of=nobody_asks, now=here)
    assert tokens.bearer() == login.access_token
    files.delete_login(config)
    here.ahead_s = 24 * HOUR
    assert tokens.bearer() is None
    assert tokens.renew(login.access_token) is None


def unreachable(config: Configuration) -> HttpSession:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network")

    return HttpSession(config.url, transport=httpx.MockTransport(refuse), sleep=lambda _: None)


def refusing(status: int, body: dict[str, str]) -> Callable[[Configuration], HttpSession]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json=body)

    return lambda config: HttpSession(
        config.url, transport=httpx.MockTransport(answer), sleep=lambda _: None
    )


@pytest.mark.spec("CLI-77")
@pytest.mark.parametrize(
    "session_of",
    [
        unreachable,
        refusing(503, {"error": "temporarily_unavailable"}),
        refusing(429, {"error": "temporarily_unavailable"}),
        refusing(400, {"error": "invalid_request"}),
        refusing(404, {}),
    ],
)
def test_valid_token_needs_no_network(
    config: Configuration, session_of: Callable[[Configuration], HttpSession]
) -> None:
    kept = SavedLogin("old", "refresh", expires=1030.0, token_endpoint="https://auth.example/token")
    files.write_login(config, kept)
    assert SavedLoginTokens(config, session_of=session_of, now=lambda: 1000.0).bearer() == "old"
    with pytest.raises((Unreachable, NotAllowed)):
        SavedLoginTokens(config, session_of=session_of, now=lambda: 1031.0).bearer()
    assert now_kept(config) == kept


@pytest.mark.spec("CLI-77")
def test_uses_token_that_cannot_be_stored(
    login: SavedLogin, config: Configuration, world: World
) -> None:
    ending(config)

    def full(config: Configuration) -> HttpSession:
        config.credentials.unlink()
        config.credentials.mkdir()
        return anonymous_session(config)

    tokens = SavedLoginTokens(config, session_of=full)
    token = tokens.bearer()
    assert taken(world, token) == 200
    assert tokens.bearer() == token


@pytest.mark.spec("CLI-78")
def test_a_token_without_a_next_one_is_shown_until_the_store_refuses_it(
    config: Configuration, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("store_client"), "propagate", True)
    files.write_login(config, SavedLogin("a given token", expires=1000.0))
    tokens = SavedLoginTokens(config, session_of=nobody_asks, now=lambda: 900.0)
    assert tokens.bearer() == "a given token"
    assert tokens.bearer() == "a given token"
    assert caplog.text.count("ends at 1970-01-01 00:16:40 UTC: store login") == 1
    later = SavedLoginTokens(config, session_of=nobody_asks, now=lambda: 1100.0)
    assert later.bearer() == "a given token"
    assert "ended at" in caplog.text
    assert "a given token" not in caplog.text
    assert later.renew("a given token") is None


@pytest.mark.spec("CLI-81")
def test_code_goes_before_the_environment_and_that_before_the_login(
    login: SavedLogin, config: Configuration, world: World, tmp_path: Path
) -> None:
    environ = {"CLOUD_APPLICATION_CREDENTIALS": str(world.robot(tmp_path / "robot.json"))}
    assert open_tokens(config, given="given", environ=environ).bearer() == "given"
    signed = open_tokens(config, environ=environ).bearer()
    assert signed not in ("given", login.access_token)
    assert open_tokens(config, environ={}).bearer() == login.access_token
    files.delete_login(config)
    assert open_tokens(config, environ={}).bearer() is None


@pytest.mark.spec("CLI-73")
def test_pasted_token_is_stored_with_expiry_by_local_clock(
    login: SavedLogin, config: Configuration, session: HttpSession
) -> None:
    here = LoginPrompts(lambda _: None, now=Moving(HOUR))
    found = login_with_token(session, config, f"  Bearer {login.access_token}\n", around=here)
    kept = now_kept(config)
    assert (found.email, kept.refresh_token) == (login.email, "")
    assert kept.expires is not None
    assert login.expires is not None
    assert abs(kept.expires - login.expires - HOUR) < 5
