"""One call of an operation: arguments as a request, and its answer as a value."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from store_client.calling import answered, call_of, items_of, pages_of
from store_client.definition.operation import Operation, Parameter, Service, TokenUse
from store_client.errors import Damaged, Misused, StoreError, Unreachable
from store_client.transport import GivenToken, Session
from tests.client.scripted import NO_ANSWER, Answer, Script, scripted

TEXT = {"type": "string"}


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as made:
        yield made


@pytest.fixture
def session(script: Script) -> Iterator[Session]:
    with script.session(tokens=GivenToken("t")) as made:
        made.met(script.url)
        yield made


def operation(script: Script, name: str, method: str = "GET", **more: Any) -> Operation:
    service: Service = more.pop("service", "store")
    path = more.pop("path", "/v1/x")
    return Operation(name, service, method, f"{script.url}{path}", **more)


def called(session: Session, of: Operation, **arguments: Any) -> Any:
    return answered(session, call_of(of, arguments))


def test_arguments_go_to_their_places_and_defaults_are_not_sent(
    script: Script, session: Session
) -> None:
    of = operation(
        script,
        "put_x",
        "PUT",
        path="/v1/x/{uuid}",
        parameters=(
            Parameter("uuid", "path", True, TEXT),
            Parameter("flag", "query", False, {"type": "boolean", "default": False}),
            Parameter("per_page", "query", False, {"type": "integer", "default": 100}),
            Parameter("files", "body", False, {"type": "array"}),
            Parameter("name", "body", False, TEXT),
        ),
    )
    called(session, of, uuid="a", flag=True, files=[1], headers={"Prefer": "wait=3"})
    [came] = script.came
    assert (came.path, came.body) == ("/v1/x/a?flag=true", b'{"files": [1]}')
    assert came.headers["prefer"] == "wait=3"
    called(session, of, uuid="a")
    assert (script.came[1].path, script.came[1].body) == ("/v1/x/a", b"")


def test_parts_of_an_address_are_escaped(script: Script, session: Session) -> None:
    named = Parameter("name", "path", True, TEXT)
    id_of = Parameter("id", "path", True, {"type": "string", "pattern": "^[^?]*$"})
    of = operation(script, "get_x", path="/v1/{id}/{name}", parameters=(id_of, named))
    called(session, of, id="a/b@c", name="d/e f?g#h%ä{id}")
    assert script.paths == ["/v1/a%2Fb%40c/d/e%20f%3Fg%23h%25%C3%A4%7Bid%7D"]
    for bad in ("", "..", "a/./b", "../../v1/y", "\udcff"):
        with pytest.raises(Misused, match="address"):
            called(session, of, id="a", name=bad)
    assert len(script.came) == 1


def test_a_form_is_sent_where_json_is_not_taken(script: Script, session: Session) -> None:
    taken = (Parameter("a", "body", True, TEXT), Parameter("n", "body", False, {}))
    of = operation(script, "post_form", "POST", form=True, parameters=taken)
    called(session, of, a="x y&z", n=1)
    [came] = script.came
    assert came.body == b"a=x+y%26z&n=1"
    assert came.headers["content-type"] == "application/x-www-form-urlencoded"


def test_a_body_that_is_no_object_is_one_argument(script: Script, session: Session) -> None:
    taken = (Parameter("body", "body", True, {"type": "array"}),)
    called(session, operation(script, "post_x", "POST", parameters=taken), body=[1, 2])
    assert json.loads(script.came[0].body) == [1, 2]


@pytest.mark.parametrize(
    ("name", "method", "times"),
    [
        ("get_x", "GET", 3),
        ("put_file", "PUT", 3),
        ("post_search", "POST", 3),
        ("dry_run_subscription", "POST", 3),
        ("post_x", "POST", 1),
        ("put_subscription", "PUT", 1),
    ],
)
def test_what_does_something_each_time_is_not_repeated(
    script: Script, session: Session, name: str, method: str, times: int
) -> None:
    script.say(Answer(503), Answer(broken=NO_ANSWER), Answer())
    if times == 1:
        with pytest.raises(Unreachable):
            called(session, operation(script, name, method))
    else:
        called(session, operation(script, name, method))
    assert len(script.came) == times


def test_where_a_key_is_understood_one_is_made_up_for_each_call(
    script: Script, session: Session
) -> None:
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
def test_who_hands_out_tokens_is_shown_one_where_it_asks_for_it(
    script: Script, session: Session, service: Service, token: TokenUse, shown: bool
) -> None:
    called(session, operation(script, "get_x", service=service, token=token))
    assert script.authorizations == ["Bearer t" if shown else None]


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
    script: Script, session: Session, answer: Answer, value: object
) -> None:
    script.say(answer)
    assert called(session, operation(script, "get_x")) == value


def test_a_redirect_is_told_with_its_headers_and_not_followed(
    script: Script, session: Session
) -> None:
    script.say(Answer(302, b"", {"Location": "https://elsewhere/?sig=1", "X-STORE-SIZE": "3"}))
    found = called(session, operation(script, "get_file"))
    assert found["location"] == "https://elsewhere/?sig=1"
    assert found["headers"]["x-store-size"] == "3"
    assert len(script.came) == 1


def test_of_a_head_the_headers_are_told(script: Script, session: Session) -> None:
    script.say(Answer(200, b"", {"X-STORE-SHA1": "ab"}))
    assert called(session, operation(script, "head_file", "HEAD"))["x-store-sha1"] == "ab"


def test_a_page_for_browsers_is_no_answer_of_a_store(script: Script, session: Session) -> None:
    script.say(Answer(200, b"<html>", {"Content-Type": "text/html"}))
    with pytest.raises(StoreError, match="no store does"):
        called(session, operation(script, "get_x"))
    assert called(session, operation(script, "get_login", service="auth")) == "<html>"


def test_json_that_was_harmed_is_told(script: Script, session: Session) -> None:
    script.say(Answer(200, b'{"a": '))
    with pytest.raises(Damaged, match="no JSON"):
        called(session, operation(script, "get_x"))


def test_an_answer_may_say_itself_where_its_items_are(script: Script, session: Session) -> None:
    script.say(Answer(200, b"{}", {"X-OpenAPI-Paginated-Content-Key": "bundle.files"}))
    of = operation(script, "get_x", paged="results")
    assert list(pages_of(session, call_of(of, {}))) == [({}, "bundle.files")]
    script.say(Answer(200, b"{}"))
    assert list(pages_of(session, call_of(of, {}))) == [({}, "results")]


def test_a_page_without_its_items_is_told() -> None:
    assert items_of({"bundle": {"files": [1]}}, "bundle.files") == [1]
    for page in ({}, {"bundle": None}, {"bundle": {"files": {}}}, [], None):
        with pytest.raises(Damaged, match=r"bundle\.files"):
            items_of(page, "bundle.files")
