"""Bodies that go piece by piece, and sessions that are shared."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from store_client.errors import Damaged, Misused, NotFound, Unreachable
from store_client.http import HttpSession, StaticToken
from tests.client.scripted_server import CUT_OFF, NO_ANSWER, Answer, Script, problem


@pytest.mark.spec("CLI-15")
def test_an_answer_is_read_piece_by_piece(script: Script, session: HttpSession) -> None:
    script.say(Answer(206, b"0123456789", {"Content-Range": "bytes 0-9/20"}))
    with session.stream("GET", "/v1/x", headers={"Range": "bytes=0-9"}) as answer:
        assert answer.status_code == 206
        assert b"".join(answer.iter_raw(3)) == b"0123456789"
    assert script.came[0].headers["range"] == "bytes=0-9"


@pytest.mark.spec("CLI-15")
def test_reports_truncated_body(script: Script, session: HttpSession) -> None:
    script.say(Answer(200, b"01234", broken=CUT_OFF))
    got: list[bytes] = []
    with pytest.raises(Unreachable, match="broke"), session.stream("GET", "/v1/x") as answer:
        got.extend(answer.iter_raw())
    assert (b"".join(got), script.waited) == (b"01234", [])


@pytest.mark.spec("CLI-15")
def test_retries_until_response_begins(script: Script, session: HttpSession) -> None:
    script.say(Answer(broken=NO_ANSWER), Answer(503), Answer(200, b"x"))
    with session.stream("GET", "/v1/x") as answer:
        assert answer.read() == b"x"
    assert script.waited == [1, 2]


@pytest.mark.spec("CLI-15")
def test_stream_error_is_like_any_other(script: Script, session: HttpSession) -> None:
    script.say(problem(404, "not_found", "Nothing there."))
    with pytest.raises(NotFound, match="Nothing there"), session.stream("GET", "/v1/x"):
        raise AssertionError


@pytest.mark.spec("CLI-15")
def test_body_is_recreated_for_each_attempt(script: Script, session: HttpSession) -> None:
    made = []

    def pieces() -> Iterator[bytes]:
        made.append(1)
        yield from (b"ab", b"cd")

    script.say(Answer(503), Answer())
    with session.stream(
        "PUT", "/v1/x", content=pieces, size=4, headers={"Content-Type": "text/plain"}
    ) as answer:
        answer.read()
    assert [one.body for one in script.came] == [b"abcd"] * 2
    assert [one.headers["content-length"] for one in script.came] == ["4"] * 2
    assert script.came[0].headers["content-type"] == "text/plain"
    assert len(made) == 2


@pytest.mark.spec("CLI-15")
def test_a_body_of_unknown_size_goes_in_chunks(script: Script, session: HttpSession) -> None:
    with session.stream("PUT", "/v1/x", content=lambda: iter([b"ab", b"c"])) as answer:
        answer.read()
    assert script.came[0].body == b"abc"
    assert "content-length" not in script.came[0].headers


@pytest.mark.spec("CLI-16")
def test_threads_share_session(script: Script, session: HttpSession) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: session.request("GET", f"/v1/{n}").json(), range(200)))
    assert found == [{}] * 200
    assert sorted(script.paths) == sorted(f"/v1/{n}" for n in range(200))


@pytest.mark.spec("CLI-16")
def test_a_session_that_was_closed_opens_again(session: HttpSession) -> None:
    session.request("GET", "/v1/x")
    session.close()
    session.close()
    assert session.request("GET", "/v1/x").status_code == 200


@pytest.mark.spec("CLI-16")
def test_formats_booleans_and_omits_absent_query_values(
    script: Script, session: HttpSession
) -> None:
    session.request("GET", "/v1/x?a=1", params={"b": True, "c": False, "d": None, "e": "ä b&"})
    session.request("GET", "/v1/y", params={"d": None})
    assert script.paths == ["/v1/x?a=1&b=true&c=false&e=%C3%A4+b%26", "/v1/y"]


@pytest.mark.spec("CLI-16")
@pytest.mark.parametrize("token", ["a\nb", "ä", "a\x00"])
def test_reports_unsendable_token_without_showing_it(script: Script, token: str) -> None:
    with (
        script.session(tokens=StaticToken(f"secret{token}")) as session,
        pytest.raises(Unreachable, match="cannot be sent") as told,
    ):
        session.request("GET", "/v1/x")
    assert "secret" not in str(told.value)
    assert script.waited == []


@pytest.mark.spec("CLI-16")
@pytest.mark.parametrize("value", [float("nan"), b"bytes", "\ud800", object()])
def test_rejects_unserializable_json(script: Script, session: HttpSession, value: object) -> None:
    with pytest.raises(Misused, match="JSON"):
        session.request("POST", "/v1/x", json={"a": value})
    assert script.came == []


@pytest.mark.spec("CLI-16")
def test_rejects_text_that_urls_cannot_carry(session: HttpSession) -> None:
    with pytest.raises(Misused, match="part of a URL"):
        session.request("GET", "/v1/x", params={"a": "\ud800"})


@pytest.mark.spec("CLI-16")
@pytest.mark.parametrize(("size", "told"), [(2, r"more bytes .*\(2"), (4, r"fewer bytes .*\(4")])
def test_reports_content_changed_while_sending(
    script: Script, session: HttpSession, size: int, told: str
) -> None:
    sent = session.stream("PUT", "/v1/x", content=lambda: iter([b"ab", b"c"]), size=size)
    with pytest.raises(Damaged, match=told), sent:
        raise AssertionError
    assert script.waited == []


@pytest.mark.spec("CLI-16")
def test_sends_user_agent(script: Script, session: HttpSession) -> None:
    session.request("GET", "/v1/x")
    assert script.came[0].headers["user-agent"].startswith("store-client/")
