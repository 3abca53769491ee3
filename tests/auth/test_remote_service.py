"""The HTTP client of the authorization service: valid answers and time limits."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from auth.accounts import MAX_CLAIMED_GROUPS
from auth.http_client import HttpClient
from auth.remote import (
    MAX_ANSWER_BYTES,
    DecisionCache,
    PolicyServiceClient,
    RemoteDecisionPoint,
    StoreTokenSigner,
)
from storage.errors import Forbidden, Unauthorized, Unavailable
from storage.model import Principal
from tests.auth.misbehaving_services import Script, credentials_file, dripping, saying, scripted

pytestmark = pytest.mark.spec("APA-03")

ADA = Principal("ada@example.org", frozenset({"team"}))
DO = ["store:Do"]
ON = ["arn:x"]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    return credentials_file(tmp_path)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def service(script: Script, account: Path) -> Iterator[PolicyServiceClient]:
    with scripted(script, account) as made:
        yield made


def refused(service: PolicyServiceClient) -> Unavailable:
    """How both questions fail, soon."""
    began = time.monotonic()
    with pytest.raises(Unavailable):
        service.version()
    with pytest.raises(Unavailable) as caught:
        service.evaluate(ADA, DO, ON, {})
    assert time.monotonic() - began < 5
    assert caught.value.retry_after_s is not None
    assert "Bearer" not in caught.value.detail
    return caught.value


def test_returns_answer_of_service(service: PolicyServiceClient, script: Script) -> None:
    assert service.version() == "1"
    verdict, version = service.evaluate(ADA, [*DO, "store:Other"], [*ON, "arn:y"], {})
    assert (verdict.allowed, len(verdict.results), version) == (True, 4, "1")
    script.allowed, script.version = False, "2"
    verdict, version = service.evaluate(ADA, DO, ON, {})
    assert (verdict.allowed, verdict.reason, version) == (False, "implicit_deny", "2")


def test_sends_context_and_returns_dependencies(
    service: PolicyServiceClient, script: Script
) -> None:
    questions: list[Any] = []

    def answer(question: Any) -> bytes:
        questions.append(question)
        return orjson.dumps(script.answer(question))

    script.body, script.depends_on = answer, ["store:sourceip"]
    context = {"store:SourceIp": "192.0.2.7", "store:EpochTime": 7, "store:Roles": ("a", "b")}
    verdict, _ = service.evaluate(ADA, DO, ON, context)
    assert questions[0]["context"] == {**context, "store:Roles": ["a", "b"]}
    assert [one.depends_on for one in verdict.results] == [{"store:sourceip"}]


def test_reuses_connection_and_survives_its_closing(
    service: PolicyServiceClient, script: Script
) -> None:
    for _ in range(5):
        service.version()
        service.evaluate(ADA, DO, ON, {})
    assert len(script.ports) == 1

    def hang_up(handler: Any) -> None:
        script.act = None
        handler.close_connection = True

    script.act = hang_up
    assert service.version() == "1"
    assert len(script.ports) == 2


@pytest.mark.parametrize(
    "status", [201, 204, 206, 301, 302, 304, 307, 400, 401, 403, 404, 429, 500, 503]
)
def test_no_other_status_is_an_answer(
    service: PolicyServiceClient, script: Script, status: int
) -> None:
    # The body would allow everything.
    script.status = status
    if status in (204, 304):
        script.body = lambda _: b""
    assert str(status) in refused(service).detail


def test_no_redirect_is_followed(account: Path) -> None:
    there = Script()
    with scripted(there, account) as elsewhere:
        here = Script(status=307, headers={"Location": f"{elsewhere.url}/v1/policies/version"})
        with scripted(here, account) as service:
            refused(service)
    assert there.asked == []


def test_no_proxy_of_the_environment_sees_the_token(
    service: PolicyServiceClient, script: Script, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Script(version="the proxy's")
    with scripted(proxy, account) as other:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        fresh = PolicyServiceClient(
            service.url, StoreTokenSigner(account), HttpClient(1, connections=1)
        )
        assert fresh.version() == "1"
        fresh.http.close()
    assert proxy.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff\xfe",
        b"<html>",
        b"null",
        b"[]",
        b'"allow"',
        b"{}",
        b'{"policy_version": null, "result": true}',
        b'{"policy_version": 7}',
        b'{"policy_version": ""}',
        b'{"policy_version": "' + b"1" * 129 + b'"}',
        b'{"policy_version": "1"',
        b"[" * 5_000,
        b'{"policy_version": "1", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b" " * (2 * MAX_ANSWER_BYTES + 1),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_rejects_invalid_responses(
    service: PolicyServiceClient, script: Script, body: bytes
) -> None:
    script.body = lambda _: body
    refused(service)


def _with(**changed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda answer: {**answer, **changed}


def _result(**changed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def lie(answer: dict[str, Any]) -> dict[str, Any]:
        (one,) = answer["evaluation_results"]
        return {**answer, "evaluation_results": [{**one, **changed}]}

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        _with(result=False),
        _with(result=None),
        _with(reason="disabled"),
        _with(reason="because"),
        _with(evaluation_results=[]),
        _with(evaluation_results={}),
        _with(evaluation_results=[None]),
        _with(policy_version=None),
        _result(action="store:Other"),
        _result(resource="arn:y"),
        _result(result=False),
        _result(result=1),
        _result(result="true"),
        _result(reason="implicit_deny"),
        _result(reason=["allow"]),
        _result(reason=None),
        _result(source=7),
        _result(source="x" * 5_000),
        _result(statement={}),
        _result(depends_on=None),
        _result(depends_on="store:sourceip"),
        _result(depends_on=[7]),
        _result(depends_on=[""]),
        _result(depends_on=["store:" + "x" * 300]),
        _result(depends_on=["store:x"] * 51),
        _result(anywhere=None),
        _result(anywhere=1),
        _result(anywhere=False),
        _with(grant_stands=True),
        _with(grant_stands=False),
        lambda answer: {**answer, "evaluation_results": answer["evaluation_results"] * 2},
        lambda answer: {key: each for key, each in answer.items() if key != "result"},
    ],
)
def test_rejects_mismatched_and_inconsistent_responses(
    service: PolicyServiceClient, script: Script, lie: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    script.body = lambda question: orjson.dumps(lie(script.answer(question)))
    with pytest.raises(Unavailable):
        service.evaluate(ADA, DO, ON, {})


def test_rejects_ended_login(service: PolicyServiceClient, script: Script) -> None:
    by_login = replace(ADA, grant="the login")
    assert service.evaluate(by_login, DO, ON, {})[0].allowed
    script.stands = False
    assert service.evaluate(ADA, DO, ON, {})[0].allowed
    with pytest.raises(Unauthorized, match="revoked"):
        service.evaluate(by_login, DO, ON, {})


@pytest.mark.parametrize("stands", [None, 1, 0, "true", []], ids=repr)
def test_rejects_response_without_grant_status(
    service: PolicyServiceClient, script: Script, stands: object
) -> None:
    lie = _with(grant_stands=stands)
    script.body = lambda question: orjson.dumps(lie(script.answer(question)))
    with pytest.raises(Unavailable):
        service.evaluate(replace(ADA, grant="the login"), DO, ON, {})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SLOW = HEAD + b"Content-Length: 500\r\n\r\n" + b" " * 500


@pytest.mark.parametrize("text", [b"H" * 500, HEAD + b"X: " + b"x" * 500, SLOW], ids=repr)
def test_bytes_that_drip_in_are_waited_for_no_longer_than_the_limit(
    service: PolicyServiceClient, script: Script, text: bytes
) -> None:
    stop = threading.Event()
    service.version()
    script.act = dripping(text, stop)
    began = time.monotonic()
    with pytest.raises(Unavailable):
        service.version()
    stop.set()
    # All of it would take ten seconds.
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 200 OK\r\n",
        HEAD + b"Content-Length: 7\r\n\r\n{",
        HEAD + b"Content-Length: -1\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        HEAD + b"Content-Length: 9999999999\r\n\r\n" + b" " * 200_000,
    ],
    ids=lambda text: repr(text[-30:]),
)
def test_rejects_non_http_truncated_and_large_responses(
    service: PolicyServiceClient, script: Script, text: bytes
) -> None:
    script.act = saying(text)
    refused(service)


def test_refused_connection_is_reported_at_once(account: Path) -> None:
    with scripted(Script(), account) as gone:
        pass
    refused(PolicyServiceClient(gone.url, gone.tokens, HttpClient(5, connections=1)))


def test_slow_service_is_limited_to_its_connections(account: Path) -> None:
    script, stop = Script(), threading.Event()
    script.act = lambda handler: dripping(SLOW, stop)(handler)
    with scripted(script, account, timeout_s=6.0, connections=2) as service:
        held = [threading.Thread(target=refused_once, args=(service,)) for _ in range(2)]
        for thread in held:
            thread.start()
        while len(script.asked) < 2:
            time.sleep(0.005)
        began = time.monotonic()
        refused_once(service)
        assert time.monotonic() - began < 3, "those that hold the connections take six seconds"
        stop.set()
        for thread in held:
            thread.join()


def refused_once(service: PolicyServiceClient) -> None:
    with pytest.raises(Unavailable):
        service.version()


@pytest.mark.parametrize(
    ("said", "told"),
    [("7", 7), ("0", 1), ("86400", 60), ("soon", 2), ("", 2), ("-5", 2), ("9" * 50, 2)],
)
def test_passes_on_retry_after_within_bounds(
    service: PolicyServiceClient, script: Script, said: str, told: int
) -> None:
    script.status, script.headers = 503, {"Retry-After": said}
    assert refused(service).retry_after_s == told


def test_reuses_stores_own_token(service: PolicyServiceClient, script: Script) -> None:
    for _ in range(3):
        service.version()
    assert len(set(script.tokens)) == 1
    assert script.tokens[0].startswith("Bearer ey")


def test_rejects_principal_with_too_many_groups(
    service: PolicyServiceClient, script: Script
) -> None:
    crowd = Principal(
        ADA.email, frozenset(f"g{number}" for number in range(MAX_CLAIMED_GROUPS + 1))
    )
    with pytest.raises(Forbidden):
        service.evaluate(crowd, DO, ON, {})
    assert script.asked == []


def test_accepts_version_of_restored_service(service: PolicyServiceClient, script: Script) -> None:
    elsewhere = RemoteDecisionPoint(service, DecisionCache(10))
    script.version = "900"
    assert elsewhere.decide(ADA, DO, ON).allowed
    assert elsewhere.decide(ADA, DO, ON).allowed
    script.version, script.allowed = "700", False
    assert not elsewhere.decide(ADA, DO, ON).allowed
    assert script.asked[-2:] == ["/v1/policies/version", "/v1/policies/evaluate"]


def test_the_wire_is_as_an_operator_would_type_it(
    service: PolicyServiceClient, script: Script
) -> None:
    # What the scripted service answers is what any client gets from it.
    _, _, host = service.url.partition("//")
    client = http.client.HTTPConnection(host)
    client.request("GET", "/v1/policies/version")
    assert orjson.loads(client.getresponse().read()) == {"policy_version": service.version()}
    client.close()
