"""One call of an operation: arguments as a request, and its answer as a value."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from store_client.calls import build_call, execute_call, iterate_pages, page_items
from store_client.definition.openapi import ApiOperation, OperationParameter, ServiceName, TokenUse
from store_client.errors import Damaged, Misused, StoreError, Unreachable
from store_client.http import HttpSession, StaticToken
from tests.client.scripted_server import NO_ANSWER, Answer, Script, scripted

TEXT = {"type": "string"}


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as made:
        yield made


@pytest.fixture
def session(script: Script) -> Iterator[HttpSession]:
    with script.session(tokens=StaticToken("t")) as made:
        made.mark_reachable(script.url)
        yield made


def operation(script: Script, name: str, method: str = "GET", **more: Any) -> ApiOperation:
    service: ServiceName = more.pop("service", "store")
    path = more.pop("path", "/v1/x")
    return ApiOperation(name, service, method, f"{script.url}{path}", **more)


def called(session: HttpSession, of: ApiOperation, **arguments: Any) -> Any:
    return execute_call(session, build_call(of, arguments))


@pytest.mark.spec("CLI-23")
def test_arguments_go_to_their_places_and_defaults_are_not_sent(
    script: Script, session: HttpSession
) -> None:
    of = operation(
        script,
        "put_x",
        "PUT",
        path="/v1/x/{uuid}",
        parameters=(
            OperationParameter("uuid", "path", True, TEXT),
            OperationParameter("flag", "query", False, {"type": "boolean", "default": False}),
            OperationParameter("per_page", "query", False, {"type": "integer", "default": 100}),
            OperationParameter("files", "body", False, {"type": "array"}),
            OperationParameter("name", "body", False, TEXT),
        ),
    )
    called(session, of, uuid="a", flag=True, files=[1], headers={"Prefer": "wait=3"})
    [came] = script.came
    assert (came.path, came.body) == ("/v1/x/a?flag=true", b'{"files": [1]}')
    assert came.headers["prefer"] == "wait=3"
    called(session, of, uuid="a")
    assert (script.came[1].path, script.came[1].body) == ("/v1/x/a", b"")


@pytest.mark.spec("CLI-23")
def test_parts_of_an_address_are_escaped(script: Script, session: HttpSession) -> None:
    named = OperationParameter("name", "path", True, TEXT)
    id_of = OperationParameter("id", "path", True, {"type": "string", "pattern": "^[^?]*$"})
    of = operation(script, "get_x", path="/v1/{id}/{name}", parameters=(id_of, named))
    called(session, of, id="a/b@c", name="d/e f?g#h%ä{id}")
    assert script.paths == ["/v1/a%2Fb%40c/d/e%20f%3Fg%23h%25%C3%A4%7Bid%7D"]
    for bad in ("", "..", "a/./b", "../../v1/y", "\udcff"):
        with pytest.raises(Misused, match="part of a URL"):
            called(session, of, id="a", name=bad)
    assert len(script.came) == 1


@pytest.mark.spec("CLI-23")
def test_sends_form_if_json_is_not_accepted(script: Script, session: HttpSession) -> None:
    taken = (
        OperationParameter("a", "body", True, TEXT),
        OperationParameter("n", "body", False, {}),
    )
    of = operation(script, "post_form", "POST", form=True, parameters=taken)
    called(session, of, a="x y&z", n=1)
    [came] = script.came
    assert came.body == b"a=x+y%26z&n=1"
    assert came.headers["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.spec("CLI-23")
def test_non_object_body_is_one_argument(script: Script, session: HttpSession) -> None:
    taken = (OperationParameter("body", "body", True, {"type": "array"}),)
    called(session, operation(script, "post_x", "POST", parameters=taken), body=[1, 2])
    assert json.loads(script.came[0].body) == [1, 2]


@pytest.mark.spec("CLI-24")
@pytest.mark.parametrize(
    ("name", "method", "times"),
    [
        ("get_x", "GET", 3),
        ("put_file", "PUT", 3),
        ("post_search", "POST", 3),
        ("post_search_facets", "POST", 3),
        ("dry_run_subscription", "POST", 3),
        ("post_x", "POST", 1),
        ("put_subscription", "PUT", 1),
    ],
)
def test_non_idempotent_call_is_not_repeated(
    script: Script, session: HttpSession, name: str, method: str, times: int
) -> None:
    script.say(Answer(503), Answer(broken=NO_ANSWER), Answer())
    if times == 1:
        with pytest.raises(Unreachable):
            called(session, operation(script, name, method))
    else:
        called(session, operation(script, name, method))
    assert len(script.came) == times


@pytest.mark.spec("CLI-24")
def test_makes_idempotency_key_where_supported(script: Script, session: HttpSession) -> None:
    of = operation(script, "patch_x", "PATCH", keyed=True)
    script.say(Answer(503), Answer())
    called(session, of)
    called(session, of)
    called(session, of, headers={"idempotency-key": "mine"})
    keys = [one.headers["idempotency-key"] for one in script.came]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32
    assert keys[2] not in (keys[0], "mine")
    assert keys[3] == "mine"


@pytest.mark.spec("CLI-23")
@pytest.mark.parametrize(
    ("service", "token", "shown"),
    [
        ("store", "no", True),
        ("store", "must", True),
        ("auth", "no", False),
        ("auth", "may", True),
        ("auth", "must", True),
    ],
)
def test_token_endpoint_gets_token_if_required(
    script: Script, session: HttpSession, service: ServiceName, token: TokenUse, shown: bool
) -> None:
    called(session, operation(script, "get_x", service=service, token=token))
    assert script.authorizations == ["Bearer t" if shown else None]


@pytest.mark.spec("CLI-25")
@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (Answer(200, b'{"a": [1]}'), {"a": [1]}),
        (Answer(200, b"[]", {"Content-Type": "application/problem+json; charset=utf-8"}), []),
        (Answer(204, b""), None),
        (Answer(200, b"\xc3\xa4", {"Content-Type": "text/plain; charset=utf-8"}), "ä"),
        (Answer(200, b"\x00\xff", {"Content-Type": "application/octet-stream"}), b"\x00\xff"),
    ],
)
def test_an_answer_is_a_value(
    script: Script, session: HttpSession, answer: Answer, value: object
) -> None:
    script.say(answer)
    assert called(session, operation(script, "get_x")) == value


@pytest.mark.spec("CLI-25")
def test_returns_redirect_with_headers(script: Script, session: HttpSession) -> None:
    script.say(Answer(302, b"", {"Location": "https://elsewhere/?sig=1", "X-STORE-SIZE": "3"}))
    found = called(session, operation(script, "get_file"))
    assert found["location"] == "https://elsewhere/?sig=1"
    assert found["headers"]["x-store-size"] == "3"
    assert len(script.came) == 1


@pytest.mark.spec("CLI-25")
def test_returns_headers_of_head(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b"", {"X-STORE-SHA1": "ab"}))
    assert called(session, operation(script, "head_file", "HEAD"))["x-store-sha1"] == "ab"


@pytest.mark.spec("CLI-25")
def test_rejects_html_answer(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b"<html>", {"Content-Type": "text/html"}))
    with pytest.raises(StoreError, match="not from a store"):
        called(session, operation(script, "get_x"))
    assert called(session, operation(script, "get_login", service="auth")) == "<html>"


@pytest.mark.spec("CLI-25")
def test_reports_damaged_json(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b'{"a": '))
    with pytest.raises(Damaged, match="not JSON"):
        called(session, operation(script, "get_x"))


@pytest.mark.spec("CLI-25")
def test_response_may_name_its_items(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b"{}", {"X-OpenAPI-Paginated-Content-Key": "bundle.files"}))
    of = operation(script, "get_x", paged="results")
    assert list(iterate_pages(session, build_call(of, {}))) == [({}, "bundle.files")]
    script.say(Answer(200, b"{}"))
    assert list(iterate_pages(session, build_call(of, {}))) == [({}, "results")]


@pytest.mark.spec("CLI-25")
def test_reports_page_without_items() -> None:
    assert page_items({"bundle": {"files": [1]}}, "bundle.files") == [1]
    for page in ({}, {"bundle": None}, {"bundle": {"files": {}}}, [], None):
        with pytest.raises(Damaged, match=r"bundle\.files"):
            page_items(page, "bundle.files")
