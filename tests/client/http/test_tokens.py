"""Whose token is shown to whom."""

from dataclasses import dataclass, field

import pytest

from store_client.errors import NotAllowed
from store_client.http import HttpSession, StaticToken
from store_client.http.urls import is_trusted, parse_origin
from tests.client.scripted_server import Answer, Script, problem, scripted


@dataclass
class Fresh:
    """Tokens of which there is one more."""

    shown: str = "old"
    refused: list[str] = field(default_factory=list)

    def bearer(self) -> str:
        return self.shown

    def renew(self, refused: str) -> str:
        self.refused.append(refused)
        self.shown = "new"
        return self.shown


@pytest.mark.spec("CLI-11")
def test_token_is_sent_to_store_and_trusted_origins_only(
    script: Script,
) -> None:
    with scripted() as other, script.session(tokens=StaticToken("t")) as session:
        session.request("GET", "/v1/x")
        session.request("GET", f"{other.url}/x")
        session.trust(other.url)
        session.request("GET", f"{other.url}/x")
        session.request("GET", "/v1/x", authorize=False)
        with session.stream("GET", "/v1/x", authorize=False) as answer:
            answer.read()
        assert script.authorizations == ["Bearer t", None, None]
        assert other.authorizations == [None, "Bearer t"]


@pytest.mark.spec("CLI-12")
def test_a_refused_token_is_renewed_once_and_the_request_sent_again(script: Script) -> None:
    tokens = Fresh()
    script.say(problem(401, "unauthorized", "Expired."), Answer())
    with script.session(tokens=tokens) as session:
        session.request("POST", "/v1/x", json={})
    assert script.authorizations == ["Bearer old", "Bearer new"]
    assert (tokens.refused, script.waited) == (["old"], [])


@pytest.mark.spec("CLI-12")
def test_refused_renewed_token_is_an_error(script: Script) -> None:
    tokens = Fresh()
    script.say(problem(401, "unauthorized", "Expired."))
    with script.session(tokens=tokens) as session, pytest.raises(NotAllowed) as told:
        session.request("GET", "/v1/x")
    assert script.authorizations == ["Bearer old", "Bearer new"]
    assert "store login" in told.value.hint


@pytest.mark.spec("CLI-12")
def test_a_given_token_is_not_renewed(script: Script) -> None:
    script.say(problem(401, "unauthorized", "Expired."))
    with script.session(tokens=StaticToken("t")) as session, pytest.raises(NotAllowed):
        session.request("GET", "/v1/x")
    assert len(script.came) == 1


@pytest.mark.spec("CLI-12")
def test_a_header_of_the_callers_own_is_sent_as_it_is(script: Script) -> None:
    tokens = Fresh()
    script.say(problem(401, "unauthorized", "No."))
    with script.session(tokens=tokens) as session, pytest.raises(NotAllowed):
        session.request("GET", "/v1/x", headers={"authorization": "Basic eA=="})
    assert script.authorizations == ["Basic eA=="]
    assert tokens.refused == []


@pytest.mark.spec("CLI-11")
def test_a_token_is_not_shown_where_it_would_be_less_safe_than_at_the_store() -> None:
    with HttpSession("https://store.example", tokens=StaticToken("t")) as session:
        session.trust("http://auth.example")
        session.trust("https://auth.example")
        assert session._tokens_for("http://auth.example/x") is None
        assert session._tokens_for("https://auth.example/x") is not None
        assert session._tokens_for("https://store.example.evil/x") is None
        assert session._tokens_for("https://store.example@evil/x") is None


@pytest.mark.spec("CLI-11")
def test_https_redirect_of_same_host_is_same_origin() -> None:
    known = [parse_origin("http://store.example")]
    assert is_trusted("https://store.example/x", known)
    assert not is_trusted("https://store.example:8443/x", known)
    assert not is_trusted("http://store.example:81/x", known)
    assert not is_trusted("nothing", known)


@pytest.mark.spec("CLI-11")
def test_cookies_of_one_answer_are_not_sent_with_the_next(
    script: Script, session: HttpSession
) -> None:
    script.say(Answer(headers={"Set-Cookie": "a=b; Path=/"}))
    session.request("GET", "/v1/x")
    session.request("GET", "/v1/x")
    assert "cookie" not in script.came[1].headers
