"""Links from one page to the next."""

import pytest

from store_client.errors import Damaged, StoreError
from store_client.http import HttpSession
from store_client.http.urls import next_link
from tests.client.scripted_server import Answer, Script, scripted


def page(body: bytes, link: str | None = None, status: int = 206) -> Answer:
    headers = {} if link is None else {"Link": f'<{link}>; rel="next"'}
    return Answer(status, body, headers)


@pytest.mark.spec("CLI-03")
def test_fetches_every_page_once(script: Script, session: HttpSession) -> None:
    script.say(page(b"[1]", f"{script.url}/v1/l?token=2"), page(b"[2]", "/v1/l?token=3"), Answer())
    bodies = [one.content for one in session.pages("GET", "/v1/l", params={"per_page": 1})]
    assert bodies == [b"[1]", b"[2]", b"{}"]
    assert script.paths == ["/v1/l?per_page=1", "/v1/l?token=2", "/v1/l?token=3"]


@pytest.mark.spec("CLI-03")
def test_repeats_search_body_for_next_page(script: Script, session: HttpSession) -> None:
    script.say(page(b"{}", "/v1/search?search_after=x"), Answer())
    list(session.pages("POST", "/v1/search", json={"es_query": {}}, repeatable=True))
    assert [one.body for one in script.came] == [b'{"es_query": {}}'] * 2


@pytest.mark.spec("CLI-04")
def test_a_link_to_another_host_is_not_followed(script: Script, session: HttpSession) -> None:
    with scripted() as other:
        script.say(page(b"{}", f"{other.url}/v1/l"))
        with pytest.raises(StoreError, match="another host"):
            list(session.pages("GET", "/v1/l"))
        assert other.came == []


@pytest.mark.spec("CLI-04")
def test_circular_pages_end(script: Script, session: HttpSession) -> None:
    script.say(page(b"{}", "/v1/b"), page(b"{}", "/v1/a"))
    with pytest.raises(StoreError, match="loop"):
        list(session.pages("GET", "/v1/a"))
    assert script.paths == ["/v1/a", "/v1/b"]


@pytest.mark.spec("CLI-04")
def test_reports_partial_page_without_link(script: Script, session: HttpSession) -> None:
    script.say(page(b"{}"))
    with pytest.raises(Damaged, match="more pages"):
        list(session.pages("GET", "/v1/a"))


@pytest.mark.spec("CLI-03")
def test_retries_failed_page(script: Script, session: HttpSession) -> None:
    script.say(page(b"1", "/v1/b"), Answer(503), Answer(200, b"2"))
    assert [one.content for one in session.pages("GET", "/v1/a")] == [b"1", b"2"]
    assert script.waited == [1]


@pytest.mark.spec("CLI-03")
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('<https://x/?a=1,2;3>; rel="next"', "https://x/?a=1,2;3"),
        ('</p>; rel=prev, </n>; title="a, b"; rel=next', "/n"),
        ('</n>; rel="prefetch next"', "/n"),
        ('</n>; REL="Next"', "/n"),
        ('</n>; rel="nextish"', None),
        ("</n>", None),
        ("", None),
        ("nonsense; rel=next", None),
    ],
)
def test_a_link_is_read_in_every_spelling(header: str, expected: str | None) -> None:
    assert next_link({"Link": header}) == expected


@pytest.mark.spec("CLI-04")
def test_a_link_without_encryption_stays_on_the_hosts_encrypted_address() -> None:
    class Answered:
        status_code = 206
        url = "https://store.example/v1/l"
        headers = {"Link": '<http://store.example/v1/l?token=2>; rel="next"'}  # noqa: RUF012

    with HttpSession("https://store.example") as session:
        following = session._next_page(Answered())  # type: ignore[arg-type]
    assert following == "https://store.example/v1/l?token=2"
