"""Answers of somebody who means harm: they get no token, and no flood of requests."""

import pytest

from store_client.errors import StoreError, Unreachable
from store_client.transport import Session
from tests.client.scripted import Answer, Script, scripted

TOKEN = {"Authorization": "Bearer secret", "Accept": "application/json"}


def test_a_token_that_a_caller_put_into_a_header_does_not_follow_to_another_server(
    script: Script, session: Session
) -> None:
    with scripted() as other:
        other.say(Answer())
        script.say(Answer(301, b"", {"Location": f"{other.url}/v1/subscriptions"}))
        session.ask("GET", "/v1/subscriptions", headers=TOKEN, authorize=False)
    [came] = other.came
    headers = {name.lower(): value for name, value in came.headers.items()}
    assert "authorization" not in headers
    assert headers["accept"] == "application/json"


def test_it_stays_with_the_server_that_it_was_meant_for(script: Script, session: Session) -> None:
    script.say(Answer(301, b"", {"Location": "/v1/other", "Retry-After": "1"}), Answer())
    session.ask("GET", "/v1/subscriptions", headers=TOKEN, authorize=False)
    assert [one.headers["authorization"] for one in script.came] == ["Bearer secret"] * 2


def test_a_route_that_asks_for_next_to_no_wait_is_not_asked_without_an_end(
    script: Script, session: Session
) -> None:
    script.say(Answer(301, b"", {"Location": "/v1/x", "Retry-After": "0.0001"}))
    with pytest.raises(StoreError, match="without an end"):
        session.ask("GET", "/v1/x")
    assert len(script.came) == session.policy.redirects + 1


@pytest.mark.parametrize("said", ["999999999", "1000000"])
def test_a_wait_that_nobody_waits_for_is_told_in_whole_seconds(
    script: Script, session: Session, said: str
) -> None:
    script.say(Answer(503, b"", {"Retry-After": said}))
    with pytest.raises(Unreachable) as told:
        session.ask("GET", "/v1/x")
    assert f"not before {said} s from now" in told.value.hint
    assert (len(script.came), script.waited) == (1, [])


@pytest.mark.parametrize(
    "said", ["-5", "soon", "Fri, 31 Dec 99999999999 23:59:59 GMT", "nan", "1e3"]
)
def test_a_wait_that_is_none_is_as_if_nothing_was_said(
    script: Script, session: Session, said: str
) -> None:
    script.say(Answer(503, b"", {"Retry-After": said}), Answer())
    session.ask("GET", "/v1/x")
    assert script.waited == [1]


def test_what_is_not_found_need_not_be_something_with_a_version(
    script: Script, session: Session
) -> None:
    script.say(Answer(404, b'{"title": "Not Found", "detail": "There is no user x."}'))
    with pytest.raises(StoreError, match="There is no user x") as told:
        session.ask("GET", "/v1/user/x")
    assert told.value.hint == "check the name or uuid; what is new may not be in each replica yet"
