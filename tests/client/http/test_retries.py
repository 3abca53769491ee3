"""What is tried again, after how long, and what is not."""

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store_client.errors import Conflict, NotFound, Refused, Unreachable
from store_client.http import HttpSession, RetryPolicy
from store_client.http.urls import retry_after
from tests.certificates import write_certificate
from tests.client.scripted_server import CUT_OFF, NO_ANSWER, Answer, Script, problem

FAULTS = [500, 502, 503, 504]
WAITS = [1, 2, 4, 8, 16]


@pytest.mark.spec("CLI-05")
@pytest.mark.parametrize("status", FAULTS)
def test_a_fault_is_retried_five_times_with_growing_waits(
    script: Script, session: HttpSession, status: int
) -> None:
    script.say(Answer(status))
    with pytest.raises(Unreachable):
        session.request("GET", "/v1/x")
    assert script.waited == WAITS
    assert len(script.came) == 6


@pytest.mark.spec("CLI-05")
def test_an_answer_after_faults_is_the_answer(script: Script, session: HttpSession) -> None:
    script.say(Answer(500), Answer(503), Answer(200, b'{"a": 1}'))
    assert session.request("GET", "/v1/x").json() == {"a": 1}
    assert script.waited == [1, 2]


@pytest.mark.spec("CLI-06")
def test_waits_as_server_says(script: Script, session: HttpSession) -> None:
    script.say(Answer(503, headers={"Retry-After": "7"}), Answer(503), Answer())
    session.request("GET", "/v1/x")
    assert script.waited == [7, 2]


@pytest.mark.spec("CLI-06")
def test_does_not_wait_too_long(script: Script, session: HttpSession) -> None:
    script.say(Answer(503, headers={"Retry-After": "3600"}))
    with pytest.raises(Unreachable) as told:
        session.request("GET", "/v1/x")
    assert script.waited == []
    assert "3600 s" in told.value.hint


@pytest.mark.spec("CLI-05")
def test_retries_429_for_every_method(script: Script, session: HttpSession) -> None:
    script.say(Answer(429, headers={"Retry-After": "3"}), Answer())
    session.request("POST", "/v1/x", json={})
    assert script.waited == [3]


@pytest.mark.spec("CLI-05")
def test_too_many_requests_that_stay_so_are_refused(script: Script, session: HttpSession) -> None:
    script.say(problem(429, "too_many_requests", "Not so fast."))
    with pytest.raises(Refused, match="Not so fast") as told:
        session.request("GET", "/v1/x")
    assert (len(script.waited), told.value.status, told.value.exit_code) == (5, 429, 3)


@pytest.mark.spec("CLI-08")
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_does_not_retry_non_idempotent_requests(
    script: Script, session: HttpSession, method: str
) -> None:
    for answer in (Answer(503), Answer(broken=NO_ANSWER), Answer(broken=CUT_OFF)):
        script.say(answer)
        script.came.clear()
        with pytest.raises(Unreachable):
            session.request(method, "/v1/x", json={})
        assert (len(script.came), script.waited) == (1, [])


@pytest.mark.spec("CLI-08")
def test_idempotency_key_allows_retry_of_patch(script: Script, session: HttpSession) -> None:
    script.say(Answer(broken=NO_ANSWER), Answer(500), Answer())
    session.request("PATCH", "/v1/x", json={}, headers={"Idempotency-Key": "k"})
    assert [one.headers["idempotency-key"] for one in script.came] == ["k"] * 3


@pytest.mark.spec("CLI-08")
def test_caller_may_mark_request_as_safe(script: Script, session: HttpSession) -> None:
    script.say(Answer(500), Answer())
    session.request("POST", "/v1/search", json={"es_query": {}}, repeatable=True)
    assert [one.body for one in script.came] == [b'{"es_query": {}}'] * 2


@pytest.mark.spec("CLI-07")
@pytest.mark.parametrize("how", [NO_ANSWER, CUT_OFF])
def test_retries_truncated_response(script: Script, session: HttpSession, how: str) -> None:
    session.request("GET", "/v1/x")
    script.say(Answer(broken=how), Answer(broken=how), Answer(200, b'{"b": 2}'))
    assert session.request("GET", "/v1/x").json() == {"b": 2}
    assert script.waited == [1, 2]


@pytest.mark.spec("CLI-07")
def test_retries_timed_out_response() -> None:
    waited: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        policy = RetryPolicy(read_s=0.05, waits_s=(1, 2))
        with (
            HttpSession(url, policy=policy, sleep=waited.append) as session,
            pytest.raises(Unreachable, match="in time"),
        ):
            session.request("GET", "/v1/x")
    assert waited == [1, 2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.spec("CLI-07")
def test_gives_up_soon_on_server_that_never_answered() -> None:
    waited: list[float] = []
    url = f"http://127.0.0.1:{free_port()}"
    with HttpSession(url, sleep=waited.append) as session:
        with pytest.raises(Unreachable, match="no connection to 127") as told:
            session.request("GET", "/v1/x")
        assert waited == [1, 2]
        assert "check the URL" in told.value.hint
        waited.clear()
        session.mark_reachable(url)
        with pytest.raises(Unreachable):
            session.request("POST", "/v1/x", json={})
        assert waited == WAITS


@pytest.mark.spec("CLI-09")
def test_a_host_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        HttpSession("http://no-such-host.invalid", sleep=lambda _: None) as session,
        pytest.raises(Unreachable, match="the host no-such-host") as told,
    ):
        session.request("GET", "/v1/x")
    assert "URL" in told.value.hint


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[str]:
    """The URL of a server whose certificate nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "server.pem"))
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)

        def accept() -> None:
            while not over.is_set():
                try:
                    plain, _ = listening.accept()
                except TimeoutError:
                    continue
                try:
                    plain.settimeout(5)
                    context.wrap_socket(plain, server_side=True).close()
                except OSError:
                    plain.close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.mark.spec("CLI-09")
def test_rejects_untrusted_certificate_at_once(tls: str) -> None:
    waited: list[float] = []
    with (
        HttpSession(tls, sleep=waited.append) as session,
        pytest.raises(Unreachable, match="certificate of 127") as told,
    ):
        session.request("GET", "/v1/x")
    assert waited == []
    assert "SSL_CERT_FILE" in told.value.hint


@pytest.mark.spec("CLI-09")
def test_distinguishes_plain_from_tls_server(script: Script) -> None:
    waited: list[float] = []
    url = script.url.replace("http://", "https://")
    with (
        HttpSession(url, sleep=waited.append) as session,
        pytest.raises(Unreachable, match="encrypted") as told,
    ):
        session.request("GET", "/v1/x")
    assert "http://" in told.value.hint
    assert len(waited) <= 2


@pytest.mark.spec("CLI-10")
def test_every_retry_is_logged_without_what_may_be_secret(
    script: Script, session: HttpSession, caplog: pytest.LogCaptureFixture
) -> None:
    script.say(Answer(503), Answer())
    with caplog.at_level(logging.DEBUG, "store_client"):
        session.request("GET", "/v1/x?signature=secret", params={"more": "secret"})
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert any(level == "WARNING" and "again in 1 s" in text for level, text in told)
    assert any(level == "DEBUG" and "200" in text for level, text in told)
    assert not any("secret" in text for _, text in told)


@pytest.mark.spec("CLI-08")
def test_refusal_after_lost_response_says_that_it_may_have_succeeded(
    script: Script, session: HttpSession
) -> None:
    session.request("GET", "/v1/x")
    for status, kind in ((404, NotFound), (409, Conflict)):
        script.say(Answer(broken=NO_ANSWER), problem(status, "x", "No."))
        with pytest.raises(kind) as told:
            session.request("DELETE", "/v1/x")
        assert "whose answer was lost" in told.value.hint
        script.say(problem(status, "x", "No."))
        with pytest.raises(kind) as told:
            session.request("DELETE", "/v1/x")
        assert "lost" not in told.value.hint


@pytest.mark.spec("CLI-06")
def test_the_wait_may_be_a_date_and_is_counted_from_the_servers_clock() -> None:
    later = "Sun, 22 Nov 2026 04:00:30 GMT"
    said = {"Retry-After": later, "Date": "Sun, 22 Nov 2026 04:00:00 GMT"}
    assert retry_after(said) == 30
    now = datetime(2026, 11, 22, 4, 0, 10, tzinfo=UTC)
    assert retry_after({"Retry-After": later}, now=now) == 20
    assert retry_after({"Retry-After": later}, now=datetime(2030, 1, 1, tzinfo=UTC)) == 0
    for nothing in ("", "soon", "-1", "1e9", "Sun, 99 Nov 2026 04:00:30 GMT"):
        assert retry_after({"Retry-After": nothing}) is None
