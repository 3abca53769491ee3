"""The demonstration's client, before a service that answers as it is told."""

import json
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from auth.digests import s256
from ops.demo.application import Application, NoTokens, Tokens

ISSUER = "http://auth.example"
FOUND = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/oauth/authorize",
    "token_endpoint": f"{ISSUER}/oauth/token",
}


class Service:
    """Remembers what it was asked; gives tokens for one code."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked = dict(parse_qsl(request.content.decode()))
        if self.asked.get("code") != "good":
            return httpx.Response(400, json={"error": "invalid_grant"})
        return httpx.Response(200, json={"access_token": "a", "refresh_token": "r"})


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def application(service: Service) -> Iterator[Application]:
    with httpx.Client(transport=httpx.MockTransport(service.answer)) as http:
        yield Application(http, json.loads(json.dumps(FOUND)))


def asked_at(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def bring(url: str, **changed: str) -> None:
    """What a browser brings back, after the person logged in."""
    asked = asked_at(url)
    brought = {"code": "good", "state": asked["state"], "iss": ISSUER, **changed}
    back = httpx.get(asked["redirect_uri"], params=brought, trust_env=False)
    assert back.text == "You are logged in. You may close this page."


def test_a_code_is_redeemed_with_what_it_was_asked_with(
    application: Application, service: Service
) -> None:
    shown: list[str] = []

    def show(url: str) -> None:
        shown.append(url)
        bring(url)

    assert application.log_in(show) == Tokens("a", "r")
    asked = asked_at(shown[0])
    assert shown[0].startswith(f"{ISSUER}/oauth/authorize?")
    assert asked["code_challenge"] == s256(service.asked["code_verifier"])
    assert asked["redirect_uri"] == service.asked["redirect_uri"]


@pytest.mark.parametrize("wrong", [{"state": "another"}, {"iss": "http://evil.example"}])
def test_what_another_brings_is_not_redeemed(
    application: Application, service: Service, wrong: dict[str, str]
) -> None:
    with pytest.raises(NoTokens, match="came back with code, state, iss"):
        application.log_in(lambda url: bring(url, **wrong))
    assert service.asked == {}


def test_a_person_who_stays_away_brings_nothing(application: Application) -> None:
    with pytest.raises(NoTokens, match="came back with nothing"):
        application.log_in(lambda _: None)


def test_a_refusal_is_told_by_its_name(application: Application) -> None:
    with pytest.raises(NoTokens, match=r"^400 invalid_grant$"):
        application.log_in(lambda url: bring(url, code="spent"))
