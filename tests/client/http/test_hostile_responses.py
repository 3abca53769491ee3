"""Answers of somebody who means harm: they get no token, no flood of requests, and no memory."""

import gzip
import json

import pytest

from store_client.auth.oauth import request_tokens
from store_client.errors import Damaged, NotFound, StoreError, Unreachable
from store_client.http import HttpSession
from store_client.http.retries import MAX_JSON_VALUES, MAX_SMALL_ANSWER, MIB
from tests.client.scripted_server import Answer, Script, scripted
from tests.peak_memory import memory_below

TOKEN = {"Authorization": "Bearer secret", "Accept": "application/json"}


@pytest.mark.spec("CLI-100")
def test_a_token_that_a_caller_put_into_a_header_does_not_follow_to_another_server(
    script: Script, session: HttpSession
) -> None:
    with scripted() as other:
        other.say(Answer())
        script.say(Answer(301, b"", {"Location": f"{other.url}/v1/subscriptions"}))
        session.request("GET", "/v1/subscriptions", headers=TOKEN, authorize=False)
    [came] = other.came
    headers = {name.lower(): value for name, value in came.headers.items()}
    assert "authorization" not in headers
    assert headers["accept"] == "application/json"


@pytest.mark.spec("CLI-100")
def test_authorization_stays_with_its_origin(script: Script, session: HttpSession) -> None:
    script.say(Answer(301, b"", {"Location": "/v1/other", "Retry-After": "1"}), Answer())
    session.request("GET", "/v1/subscriptions", headers=TOKEN, authorize=False)
    assert [one.headers["authorization"] for one in script.came] == ["Bearer secret"] * 2


@pytest.mark.spec("CLI-101")
def test_bounds_redirects_with_tiny_wait(script: Script, session: HttpSession) -> None:
    script.say(Answer(301, b"", {"Location": "/v1/x", "Retry-After": "0.0001"}))
    with pytest.raises(StoreError, match="too often"):
        session.request("GET", "/v1/x")
    assert len(script.came) == session.policy.redirects + 1


@pytest.mark.spec("CLI-101")
@pytest.mark.parametrize("said", ["999999999", "1000000"])
def test_unwaited_retry_after_is_shown_in_seconds(
    script: Script, session: HttpSession, said: str
) -> None:
    script.say(Answer(503, b"", {"Retry-After": said}))
    with pytest.raises(Unreachable) as told:
        session.request("GET", "/v1/x")
    assert f"not before {said} s from now" in told.value.hint
    assert (len(script.came), script.waited) == (1, [])


@pytest.mark.spec("CLI-101")
@pytest.mark.parametrize(
    "said", ["-5", "soon", "Fri, 31 Dec 99999999999 23:59:59 GMT", "nan", "1e3"]
)
def test_ignores_invalid_retry_after(script: Script, session: HttpSession, said: str) -> None:
    script.say(Answer(503, b"", {"Retry-After": said}), Answer())
    session.request("GET", "/v1/x")
    assert script.waited == [1]


@pytest.mark.spec("CLI-106")
def test_not_found_hint_fits_objects_without_version(script: Script, session: HttpSession) -> None:
    script.say(Answer(404, b'{"title": "Not Found", "detail": "There is no user x."}'))
    with pytest.raises(StoreError, match="There is no user x") as told:
        session.request("GET", "/v1/user/x")
    assert told.value.hint == "check the name or uuid; new objects may not be in each replica yet"


BOMB = gzip.compress(bytes(64 * MIB), compresslevel=1)
GZIP = {"Content-Encoding": "gzip"}


@pytest.mark.spec("CLI-144")
@pytest.mark.parametrize(
    "answer",
    [Answer(200, BOMB, GZIP), Answer(200, bytes(2 * MIB)), Answer(206, BOMB, GZIP)],
    ids=["gzip", "plain", "page"],
)
def test_an_answer_beyond_the_limit_is_refused_in_bounded_memory(
    script: Script, session: HttpSession, answer: Answer
) -> None:
    script.say(answer)
    with memory_below(8 * MIB), pytest.raises(Damaged, match="more than 1048576 bytes"):
        session.request("GET", "/v1/x", limit=MIB)
    assert len(script.came) == 1


@pytest.mark.spec("CLI-144")
def test_the_answer_to_what_is_streamed_is_bounded_when_it_is_read(
    script: Script, session: HttpSession
) -> None:
    script.say(Answer(200, BOMB, GZIP))
    refused = pytest.raises(Damaged, match="more than")
    with refused, memory_below(8 * MIB), session.stream("PUT", "/v1/x", limit=MIB) as answer:
        answer.read()
    script.say(Answer(200, bytes(2 * MIB)))
    with session.stream("GET", "/v1/x", limit=None) as answer:
        assert sum(map(len, answer.iter_raw())) == 2 * MIB


@pytest.mark.spec("CLI-144")
@pytest.mark.parametrize("headers", [GZIP, {}], ids=["gzip", "plain"])
def test_an_error_with_a_large_body_is_still_that_error(
    script: Script, session: HttpSession, headers: dict[str, str]
) -> None:
    script.say(Answer(404, BOMB if headers else bytes(4 * MIB), headers))
    with memory_below(16 * MIB), pytest.raises(NotFound, match="404 Not Found"):
        session.request("GET", "/v1/x")


@pytest.mark.spec("CLI-144")
@pytest.mark.parametrize("piece", [b"{},", b"[],", b'{"":1},'])
def test_rejects_json_of_too_many_values(
    script: Script, session: HttpSession, piece: bytes
) -> None:
    script.say(Answer(200, b"[" + piece * MAX_JSON_VALUES + b"0]"))
    with memory_below(64 * MIB), pytest.raises(Damaged, match="values"):
        session.request("GET", "/v1/x")


@pytest.mark.spec("CLI-144")
def test_an_answer_of_a_login_is_small(script: Script, session: HttpSession) -> None:
    said = {"access_token": "a" * MAX_SMALL_ANSWER, "token_type": "bearer"}
    script.say(Answer(200, json.dumps(said).encode()))
    with pytest.raises(Damaged, match="more than"):
        request_tokens(session, f"{script.url}/oauth/token", {}, again=False)


@pytest.mark.spec("CLI-144")
@pytest.mark.parametrize("kind", ["gzip", "x-gzip", "identity", "GZIP"])
def test_an_encoded_answer_is_decoded(script: Script, session: HttpSession, kind: str) -> None:
    body = b'{"a": [1, 2]}'
    encoded = body if kind == "identity" else gzip.compress(body[:5]) + gzip.compress(body[5:])
    script.say(Answer(200, encoded, {"Content-Encoding": kind}))
    assert session.request("GET", "/v1/x").json() == {"a": [1, 2]}
    assert script.came[0].headers["accept-encoding"] == "gzip"


@pytest.mark.spec("CLI-144")
@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (gzip.compress(gzip.compress(b"{}")), "gzip, gzip", "unsupported"),
        (b"{}", "br", "unsupported"),
        (b"{}", "gzip", "is not valid gzip"),
        (gzip.compress(b"{}")[:-4], "gzip", "breaks off"),
    ],
    ids=["encoded twice", "unknown encoding", "not encoded", "cut off"],
)
def test_an_answer_that_cannot_be_decoded_is_damaged(
    script: Script, session: HttpSession, body: bytes, kind: str, why: str
) -> None:
    script.say(Answer(200, body, {"Content-Encoding": kind}))
    with pytest.raises(Damaged, match=why):
        session.request("GET", "/v1/x")


@pytest.mark.spec("CLI-144")
def test_accepts_encoded_empty_response(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b"", GZIP))
    assert session.request("GET", "/v1/x").content == b""
