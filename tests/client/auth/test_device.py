"""Logging in where there is no browser, with the real service and a person elsewhere."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from store_client.auth import credentials as files
from store_client.auth.login import LoginPrompts, authorize_device, login_with_consent
from store_client.auth.oauth import AuthService, OAuthRefusal
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, Refused, StoreError, TimedOut
from store_client.http.session import HttpSession
from tests.client.auth.auth_service import ADA, Browser

pytestmark = pytest.mark.spec("CLI-72")

SERVICE = AuthService(
    issuer="https://auth.example",
    authorization_endpoint="https://auth.example/authorize",
    token_endpoint="https://auth.example/token",
    device_authorization_endpoint="https://auth.example/device_authorization",
)
BEGUN = {
    "device_code": "the device's code",
    "user_code": "BCDF-GHJK",
    "verification_uri": "https://auth.example/device",
    "expires_in": 60,
    "interval": 5,
}
TOKENS = {"access_token": "a.b.c", "token_type": "Bearer", "expires_in": 3600}


def enters(browser: Browser) -> Callable[[str], None]:
    """A person who opens the address that is shown, and goes through with it."""

    def say(text: str) -> None:
        if "user_code=" in text:
            url = text.split()[-1].rstrip(")")
            threading.Thread(target=browser.visit, args=(url,)).start()

    return say


def test_device_login_stores_credentials(
    session: HttpSession, config: Configuration, browser: Browser
) -> None:
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        enters(browser)(text)

    around = LoginPrompts(say, sleep=lambda _: threading.Event().wait(1) and None)
    found = login_with_consent(session, config, around=around, elsewhere=True)
    assert found.email == ADA
    kept = files.read_login(config)
    assert kept is not None
    assert kept.refresh_token
    assert "/device" in told[0]
    assert not any(kept.access_token in line for line in told)


def test_denied_device_login_ends(
    session: HttpSession, service: AuthService, browser: Browser
) -> None:
    browser.decision = "deny"
    with pytest.raises(NotAllowed, match="refused"):
        authorize_device(
            session,
            service,
            say=enters(browser),
            sleep=lambda _: threading.Event().wait(1) and None,
        )


class Clock:
    """Time that passes by sleeping alone; how long each sleep was."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def now(self) -> float:
        return sum(self.slept)


def asked(answers: list[Any], begun: Any = None) -> tuple[Clock, Callable[[], Any]]:
    """A login against a service that follows a script; the last answer is given for ever."""
    clock, left = Clock(), iter(answers)
    last: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/device_authorization":
            if isinstance(begun, bytes):
                return httpx.Response(200, content=begun)
            return httpx.Response(200, json=BEGUN if begun is None else begun)
        last[:] = [next(left, *last)]
        if isinstance(last[0], Exception):
            raise last[0]
        status = 200 if "access_token" in last[0] else 400
        return httpx.Response(status, json=last[0])

    def run() -> Any:
        transport = httpx.MockTransport(answer)
        with HttpSession(SERVICE.issuer, transport=transport, sleep=lambda _: None) as session:
            return authorize_device(
                session, SERVICE, say=lambda _: None, sleep=clock.sleep, now=clock.now
            )

    return clock, run


def error(word: str) -> dict[str, str]:
    return {"error": word, "error_description": "Because."}


PENDING, SLOW = error("authorization_pending"), error("slow_down")


def test_polls_at_requested_interval(tmp_path: Any) -> None:
    clock, run = asked([PENDING, SLOW, PENDING, SLOW, TOKENS])
    assert run().access_token == "a.b.c"
    assert clock.slept == [5, 5, 10, 10, 15]


def test_polls_less_often_after_network_errors() -> None:
    clock, run = asked([PENDING, *[httpx.ReadTimeout("slow")] * 6, PENDING, TOKENS], None)
    assert run().access_token == "a.b.c"
    assert clock.slept[:3] == [5, 5, 10]


def test_times_out_without_code_entry() -> None:
    clock, run = asked([PENDING])
    with pytest.raises(TimedOut) as caught:
        run()
    assert sum(clock.slept) < 60
    assert "--remote" in caught.value.hint


def test_reports_expired_code() -> None:
    clock, run = asked([PENDING, error("expired_token")])
    with pytest.raises(TimedOut):
        run()
    assert len(clock.slept) == 2


@pytest.mark.parametrize("word", ["invalid_grant", "invalid_client", "something", ""])
def test_other_errors_end_login(word: str) -> None:
    clock, run = asked([error(word)])
    with pytest.raises(OAuthRefusal, match="Because"):
        run()
    assert len(clock.slept) == 1


@pytest.fixture(
    params=[{}, [], "text", {"device_code": "a"}, {**BEGUN, "user_code": None}, b"[" * 100_000],
    ids=["empty", "list", "text", "incomplete", "null", "nested"],
)
def nonsense(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_refuses_answer_without_code(nonsense: Any) -> None:
    _, run = asked([TOKENS], nonsense)
    with pytest.raises(Refused, match="no code to enter"):
        run()


@pytest.mark.parametrize(
    ("said", "slept"), [(0, 5), (-5, 1), (10**9, None), ("2", 2), (None, 5), (2.5, 2.5)]
)
def test_odd_intervals_are_bounded(said: Any, slept: float | None) -> None:
    clock, run = asked([TOKENS], {**BEGUN, "interval": said})
    if slept is None:
        with pytest.raises(TimedOut):
            run()
    else:
        run()
        assert clock.slept == [slept]


def test_a_code_of_a_service_that_is_bad_does_not_move_the_cursor() -> None:
    told: list[str] = []
    begun = {**BEGUN, "user_code": "\x1b[2J" + "A" * 99, "verification_uri": "https://x/\r\n\x07"}

    def answer(request: httpx.Request) -> httpx.Response:
        good = request.url.path == "/device_authorization"
        return httpx.Response(200, json=begun if good else TOKENS)

    with HttpSession(SERVICE.issuer, transport=httpx.MockTransport(answer)) as session:
        authorize_device(session, SERVICE, say=told.append, sleep=lambda _: None)
    assert all(each.isprintable() or each == "\n" for each in "".join(told))


def test_reports_service_without_device_login(session: HttpSession) -> None:
    bare = AuthService("https://auth.example", "https://auth.example/a", "https://auth.example/t")
    with pytest.raises(StoreError) as caught:
        authorize_device(session, bare, say=lambda _: None)
    assert "--access-token" in caught.value.hint
