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

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, Unreachable
from store_client.login import kept as files
from store_client.login.entering import Around, with_consent, with_token
from store_client.login.kept import Kept
from store_client.login.tokens import KeptTokens, anonymous, tokens_of
from store_client.transport.session import Session
from tests.client.login.world import Browser, Moving, World

HOUR = 3_600.0


@pytest.fixture
def login(session: Session, config: Configuration, browser: Browser) -> Kept:
    """Somebody who has just logged in."""
    with_consent(session, config, around=Around(lambda _: None, browser.visit, wait_s=20))
    return now_kept(config)


def now_kept(config: Configuration) -> Kept:
    found = files.read(config)
    assert found is not None
    return found


def taken(world: World, token: str | None) -> int:
    header = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header).status_code


def nobody_asks(config: Configuration) -> Session:
    raise AssertionError("nobody should be asked")


class Counting:
    """Sessions of which each refresh is counted."""

    def __init__(self) -> None:
        self.made = 0
        self._lock = threading.Lock()

    def __call__(self, config: Configuration) -> Session:
        with self._lock:
            self.made += 1
        return anonymous(config)


def ending(config: Configuration) -> None:
    """The token that is kept ends in a moment."""
    files.write(config, replace(now_kept(config), expires=1.0))


def test_a_token_that_is_good_is_shown_without_asking_anybody(
    login: Kept, config: Configuration
) -> None:
    assert KeptTokens(config, session_of=nobody_asks).bearer() == login.access_token


def test_a_token_is_followed_by_the_next_one_before_it_ends(
    login: Kept, config: Configuration, world: World
) -> None:
    assert login.expires is not None
    ends = login.expires
    tokens = KeptTokens(config, session_of=nobody_asks, now=lambda: ends - 61)
    assert tokens.bearer() == login.access_token
    later = KeptTokens(config, session_of=anonymous, now=lambda: ends - 59)
    following = later.bearer()
    assert following not in (None, login.access_token)
    assert taken(world, following) == 200
    kept = now_kept(config)
    assert kept.access_token == following
    assert kept.refresh_token != login.refresh_token
    assert (kept.email, kept.issuer) == (login.email, login.issuer)
    assert config.credentials.stat().st_mode & 0o777 == 0o600


def test_tokens_follow_one_another(login: Kept, config: Configuration, world: World) -> None:
    seen = {login.access_token}
    for _ in range(4):
        ending(config)
        token = KeptTokens(config, session_of=anonymous).bearer()
        assert token not in seen
        assert taken(world, token) == 200
        seen.add(str(token))


def test_of_many_threads_one_refreshes(login: Kept, config: Configuration) -> None:
    ending(config)
    asked = Counting()
    tokens = KeptTokens(config, session_of=asked)
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: tokens.bearer(), range(64)))
    assert (len(found), asked.made) == (1, 1)
    assert found == {now_kept(config).access_token}


ASKS = """
import sys, time
from pathlib import Path
from store_client.configuration import Configuration
from store_client.login.tokens import KeptTokens, anonymous
made = []
config = Configuration(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
tokens = KeptTokens(config, session_of=lambda config: made.append(1) or anonymous(config))
print("ready", flush=True)
sys.stdin.readline()
print(tokens.bearer(), len(made))
"""


def test_of_many_processes_one_refreshes_and_the_login_lives_on(
    login: Kept, config: Configuration, world: World
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


def test_a_client_whose_token_is_refused_goes_on_with_the_next_one(
    login: Kept, config: Configuration, world: World
) -> None:
    """The store's clock is ahead: our token ended there and not here."""
    world.clock.ahead_s = 2 * HOUR
    with Client(config=config) as client:
        assert client.call("get_subscriptions", replica="aws") == {"subscriptions": []}
    assert now_kept(config).access_token != login.access_token


def test_a_clock_that_is_wrong_here_does_not_matter(
    session: Session, config: Configuration, browser: Browser
) -> None:
    """What counts is for how long a token is said to be good."""
    for ahead in (-5 * HOUR, 5 * HOUR):
        here = Around(lambda _: None, browser.visit, wait_s=20, now=Moving(ahead))
        with_consent(session, config, around=here)
        tokens = KeptTokens(config, session_of=nobody_asks, now=here.now)
        assert tokens.bearer() == now_kept(config).access_token


def test_a_refused_token_that_somebody_else_renewed_is_not_renewed_again(
    login: Kept, config: Configuration
) -> None:
    tokens = KeptTokens(config, session_of=nobody_asks)
    tokens.bearer()
    files.write(config, replace(login, access_token="another's"))
    assert tokens.renewed(login.access_token) == "another's"


def test_a_login_that_is_over_is_told_until_somebody_logs_in_again(
    login: Kept, config: Configuration, world: World, session: Session, browser: Browser
) -> None:
    world.enable(login.email, allowed=False)
    ending(config)
    tokens = KeptTokens(config, session_of=anonymous)
    for _ in range(2):
        with pytest.raises(NotAllowed, match="is over") as caught:
            tokens.bearer()
        assert "store login" in caught.value.hint
    kept = now_kept(config)
    assert (kept.refresh_token, bool(kept.over)) == ("", True)
    assert tokens.renewed(login.access_token) is None
    world.enable(login.email, allowed=True)
    with_consent(session, config, around=Around(lambda _: None, browser.visit, wait_s=20))
    assert tokens.bearer() == now_kept(config).access_token


def test_who_logged_out_elsewhere_meanwhile_is_nobody(login: Kept, config: Configuration) -> None:
    here = Moving()
    tokens = KeptTokens(config, session_of=nobody_asks, now=here)
    assert tokens.bearer() == login.access_token
    files.forget(config)
    here.ahead_s = 24 * HOUR
    assert tokens.bearer() is None
    assert tokens.renewed(login.access_token) is None


def unreachable(config: Configuration) -> Session:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network")

    return Session(config.url, transport=httpx.MockTransport(refuse), sleep=lambda _: None)


def refusing(status: int, body: dict[str, str]) -> Callable[[Configuration], Session]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json=body)

    return lambda config: Session(
        config.url, transport=httpx.MockTransport(answer), sleep=lambda _: None
    )


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
def test_while_a_token_lasts_nobody_has_to_be_reached(
    config: Configuration, session_of: Callable[[Configuration], Session]
) -> None:
    kept = Kept("old", "refresh", expires=1030.0, token_endpoint="https://auth.example/token")
    files.write(config, kept)
    assert KeptTokens(config, session_of=session_of, now=lambda: 1000.0).bearer() == "old"
    with pytest.raises((Unreachable, NotAllowed)):
        KeptTokens(config, session_of=session_of, now=lambda: 1031.0).bearer()
    assert now_kept(config) == kept


def test_what_cannot_be_written_down_is_used_all_the_same(
    login: Kept, config: Configuration, world: World
) -> None:
    ending(config)

    def full(config: Configuration) -> Session:
        config.credentials.unlink()
        config.credentials.mkdir()
        return anonymous(config)

    tokens = KeptTokens(config, session_of=full)
    token = tokens.bearer()
    assert taken(world, token) == 200
    assert tokens.bearer() == token


def test_a_token_without_a_next_one_is_shown_until_the_store_refuses_it(
    config: Configuration, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("store_client"), "propagate", True)
    files.write(config, Kept("a given token", expires=1000.0))
    tokens = KeptTokens(config, session_of=nobody_asks, now=lambda: 900.0)
    assert tokens.bearer() == "a given token"
    assert tokens.bearer() == "a given token"
    assert caplog.text.count("ends at 1970-01-01 00:16:40 UTC: store login") == 1
    later = KeptTokens(config, session_of=nobody_asks, now=lambda: 1100.0)
    assert later.bearer() == "a given token"
    assert "ended at" in caplog.text
    assert "a given token" not in caplog.text
    assert later.renewed("a given token") is None


def test_code_goes_before_the_environment_and_that_before_the_login(
    login: Kept, config: Configuration, world: World, tmp_path: Path
) -> None:
    environ = {"CLOUD_APPLICATION_CREDENTIALS": str(world.robot(tmp_path / "robot.json"))}
    assert tokens_of(config, given="given", environ=environ).bearer() == "given"
    signed = tokens_of(config, environ=environ).bearer()
    assert signed not in ("given", login.access_token)
    assert tokens_of(config, environ={}).bearer() == login.access_token
    files.forget(config)
    assert tokens_of(config, environ={}).bearer() is None


def test_a_token_that_was_brought_is_kept_with_its_end_by_our_clock(
    login: Kept, config: Configuration, session: Session
) -> None:
    here = Around(lambda _: None, now=Moving(HOUR))
    found = with_token(session, config, f"  Bearer {login.access_token}\n", around=here)
    kept = now_kept(config)
    assert (found.email, kept.refresh_token) == (login.email, "")
    assert kept.expires is not None
    assert login.expires is not None
    assert abs(kept.expires - login.expires - HOUR) < 5
