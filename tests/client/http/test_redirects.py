"""Answers that lead elsewhere: waited for, followed, or left to the caller."""

import pytest

from store_client.errors import StoreError, TimedOut
from store_client.http import HttpSession, RetryPolicy, StaticToken
from store_client.http.urls import is_downgrade
from tests.client.scripted_server import Answer, Script, scripted


def moved(target: str, wait: str = "", status: int = 301) -> Answer:
    later = {"Retry-After": wait} if wait else {}
    return Answer(status, b"", {"Location": target, **later})


@pytest.mark.spec("CLI-01")
def test_self_redirect_is_repeated_after_wait(script: Script, session: HttpSession) -> None:
    here = f"{script.url}/v1/files/x?replica=aws"
    script.say(moved(here, "10"), moved(here, "5"), Answer(302, b"", {"Location": "http://x/"}))
    answer = session.request("GET", "/v1/files/x", params={"replica": "aws"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "http://x/")
    assert script.waited == [10, 5]
    assert script.paths == ["/v1/files/x?replica=aws"] * 3


@pytest.mark.spec("CLI-01")
def test_a_relative_place_is_understood_and_method_and_body_stay(
    script: Script, session: HttpSession
) -> None:
    script.say(moved("../v1/other?a=b"), Answer())
    session.request("PUT", "/v1/thing", json={"a": 1})
    assert [(one.method, one.path, one.body) for one in script.came] == [
        ("PUT", "/v1/thing", b'{"a": 1}'),
        ("PUT", "/v1/other?a=b", b'{"a": 1}'),
    ]
    assert script.waited == []


@pytest.mark.spec("CLI-01")
def test_self_redirect_without_retry_after_is_not_hurried(
    script: Script, session: HttpSession
) -> None:
    script.say(moved("/v1/x"), Answer())
    session.request("GET", "/v1/x")
    assert script.waited == [1]


@pytest.mark.spec("CLI-01")
def test_errors_of_redirects_do_not_show_signatures(script: Script, session: HttpSession) -> None:
    for target in ("ftp://x/a?signature=s3cret", "http:///a?signature=s3cret"):
        script.say(moved(target))
        with pytest.raises(StoreError) as told:
            session.request("GET", "/v1/a")
        assert "s3cret" not in str(told.value)


@pytest.mark.spec("CLI-01")
def test_circular_redirects_end(script: Script, session: HttpSession) -> None:
    script.say(*[moved("/v1/b"), moved("/v1/a")] * 20)
    with pytest.raises(StoreError, match="too often"):
        session.request("GET", "/v1/a")
    assert len(script.came) == 21


@pytest.mark.spec("CLI-01")
def test_pending_resource_times_out(script: Script) -> None:
    script.say(moved("/v1/a", "10"))
    with (
        script.session(policy=RetryPolicy(redirected_s=35)) as session,
        pytest.raises(TimedOut, match="not ready"),
    ):
        session.request("GET", "/v1/a")
    assert script.waited == [10, 10, 10]


@pytest.mark.spec("CLI-01")
def test_faults_on_the_way_are_counted_for_each_address(
    script: Script, session: HttpSession
) -> None:
    script.say(*[Answer(500)] * 4, moved("/v1/x", "3"), *[Answer(500)] * 5, Answer())
    session.request("GET", "/v1/x")
    assert script.waited == [1, 2, 4, 8, 3, 1, 2, 4, 8, 16]


@pytest.mark.spec("CLI-01")
@pytest.mark.parametrize("target", ["", "ftp://x/", "http://", "http://[bad/"])
def test_reports_invalid_location(script: Script, session: HttpSession, target: str) -> None:
    script.say(Answer(301, b"", {"Location": target} if target else {}), Answer(404))
    with pytest.raises(StoreError):
        session.request("GET", "/v1/x")


@pytest.mark.spec("CLI-02")
def test_a_token_and_a_body_do_not_follow_to_another_host(script: Script) -> None:
    with scripted() as other, script.session(tokens=StaticToken("t")) as session:
        script.say(moved(f"{other.url}/v1/x"))
        session.request("GET", "/v1/x")
        assert script.authorizations == ["Bearer t"]
        assert other.authorizations == [None]
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        script.say(moved(f"{elsewhere}/v1/x"))
        with pytest.raises(StoreError, match="not allowed"):
            session.request("PUT", "/v1/x", json={})
        assert len(other.came) == 1


@pytest.mark.spec("CLI-02")
@pytest.mark.parametrize("status", [302, 303, 304, 307])
def test_returns_other_redirects_to_caller(
    script: Script, session: HttpSession, status: int
) -> None:
    script.say(Answer(status, b"", {"Location": "/v1/y"}))
    assert session.request("GET", "/v1/x").status_code == status
    assert len(script.came) == 1


@pytest.mark.spec("CLI-02")
def test_never_downgrades_to_http_except_loopback() -> None:
    assert is_downgrade("https://a/", "http://a/")
    assert not is_downgrade("http://a/", "https://a/")
    assert not is_downgrade("https://a/", "http://127.0.0.1:1/")
    assert not is_downgrade("https://a/", "http://localhost/")


@pytest.mark.spec("CLI-02")
def test_callers_authorization_does_not_follow_to_another_host(
    script: Script, session: HttpSession
) -> None:
    with scripted() as other:
        script.say(moved(f"{other.url}/v1/x"))

        session.request("GET", "/v1/x", headers={"Authorization": "Bearer t"})

        assert script.authorizations == ["Bearer t"]
        assert other.authorizations == [None]
