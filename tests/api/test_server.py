"""Both HTTP servers from the Procfile: malformed requests and slow clients."""

import json
import re
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from gunicorn.http import errors

from api.http.server import MAX_REQUEST_LINE, refusal_response
from ops import ports
from tests.api.servers import asked, migrated, started
from tests.open_ports import count_connections
from tests.waiting import until

pytestmark = pytest.mark.spec("ERR-01")

CONNECTIONS = 200
FULL = 300
"""Connections of one process."""
HEAD_S, PATIENCE_S = 1.0, 1.5
LIMITS = {
    "STORE_REQUEST_HEAD_S": f"{HEAD_S}",
    "STORE_REQUEST_PATIENCE_S": f"{PATIENCE_S}",
    "STORE_REQUEST_MIN_BYTES_S": "500",
    "STORE_API_CONNECTIONS": f"{FULL}",
    "STORE_TOKEN_RATE_PER_MINUTE": "0",
}
SPARE_S = 20.0
MEMBERS = {"type", "title", "status", "code", "detail", "request_id"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module", params=["api", "auth"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def port(name: str, home: Path) -> Iterator[int]:
    first = ports.find_free_port_pair()
    with started(name, home, first, LIMITS):
        yield first if name == "api" else first + 1


def parts(answered: bytes) -> tuple[str, dict[str, str], dict[str, Any]]:
    head, _, body = answered.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(body.encode()) == int(headers["Content-Length"])
    return first, headers, json.loads(body)


HOST = b"Host: a\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "phrase"),
    [
        (b"GET /?" + b"a" * MAX_REQUEST_LINE + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, None),
        (b"GET / HTTP/1.1\r\nCookie: " + b"a" * 9000 + b"\r\n\r\n", 431, None),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431, None),
        (b"get / HTTP/1.1\r\n\r\n", 400, "Bad Request"),
        (b"GE(T / HTTP/1.1\r\n\r\n", 400, "Bad Request"),
        (b"<script>\r\n\r\n", 400, "Bad Request"),
        (b"GET / HTTP/7.1\r\n\r\n", 400, "Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "Bad Request"),
        (b"GET / HTTP/1.1\r\nBad Header: b\r\n\r\n", 400, "Bad Request"),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400, "Bad Request"),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "Bad Request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, None),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip2\r\n\r\n", 501, "Not Implemented"),
        (b"POST / HTTP/1.1\r\nExpect: cake\r\n\r\n", 417, "Expectation Failed"),
    ],
)
def test_server_errors_are_problem_documents(
    port: int, sent: bytes, status: int, phrase: str | None
) -> None:
    first, headers, body = parts(asked(port, sent))
    assert first.startswith(f"HTTP/1.1 {status} {phrase or ''}")
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Connection"] == "close"
    assert set(body) == MEMBERS
    assert (body["status"], body["title"]) == (status, first.split(" ", 2)[2])
    assert headers["X-Request-Id"] == body["request_id"]
    assert re.fullmatch("[0-9a-f]{32}", body["request_id"])


def test_malformed_request_ends_only_its_connection(port: int) -> None:
    good = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        made.sendall(good + b"no request\r\n\r\n")
        answered = b"".join(iter(lambda: made.recv(65_536), b""))
    assert answered.count(b"HTTP/1.1 ") == 2
    assert answered.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 400 " in answered
    assert asked(port, good.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


def test_the_longest_request_line_reaches_the_application(port: int) -> None:
    line = b"GET /nothing?" + b"a" * (MAX_REQUEST_LINE - len(b"GET /nothing? HTTP/1.1"))
    sent = line + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert asked(port, sent).startswith(b"HTTP/1.1 404 ")


def test_header_cannot_forge_transport(port: int) -> None:
    told = b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n"
    sent = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + told + b"\r\n"
    # Whoever believes them refuses what contradicts itself.
    assert asked(port, sent).startswith(b"HTTP/1.1 404 ")


def test_logs_no_request_content(port: int, home: Path) -> None:
    asked(port, b"GET / HTTP/1.1\r\nAuthorization: Bearer hunter2\r\n folded-hunter2\r\n\r\n")
    asked(port, b"hunter2\r\n\r\n")
    logs = [path.read_bytes() for path in home.glob("*.log")]
    assert any(b"ObsoleteFolding" in log for log in logs)
    assert not any(b"hunter2" in log for log in logs)


def test_unexpected_error_reveals_nothing() -> None:
    status, answer = refusal_response(RuntimeError("the secret of it"), "id-1")
    assert status == 500
    assert b"secret" not in answer


def test_a_header_that_the_application_got_wrong_is_our_fault() -> None:
    assert refusal_response(errors.InvalidResponseHeader("a\nb"), "id-1")[0] == 500
    assert refusal_response(errors.InvalidHeader("a"), "id-1")[0] == 400


# 200 slow connections at once ---------------------------------------------------------------

GET = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def open_body(name: str) -> bytes:
    """The head of a request whose body is read before anything is known of its sender."""
    path, kind = {
        "api": ("/v1/search?replica=aws", "application/json"),
        "auth": ("/oauth/token", "application/x-www-form-urlencoded"),
    }[name]
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 9000\r\n\r\n"
    return head.encode()


@pytest.fixture
def connections(port: int) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
    # Those that the server still has would count against the next test's.
    until(lambda: count_connections(port) == 0)


def connect(stack: ExitStack, port: int, sent: bytes, count: int) -> list[socket.socket]:
    made = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), timeout=SPARE_S)
        made.append(stack.enter_context(one))
        # At once: a connection that says nothing for HEAD_S ends without an answer.
        one.sendall(sent)
    return made


def seconds_to_answer(port: int) -> float:
    """Median time of some requests of another client."""
    took = []
    for _ in range(5):
        began = time.monotonic()
        assert asked(port, GET).startswith(b"HTTP/1.1 404 ")
        took.append(time.monotonic() - began)
    return statistics.median(took)


def end_of(connection: socket.socket) -> bytes:
    """All that the server answers until it closes the connection, also where a byte that came too
    late makes it a reset."""
    answer = b""
    with suppress(ConnectionResetError):
        while block := connection.recv(65_536):
            answer += block
    return answer


def trickle(made: list[socket.socket], seconds: float, sent: bytes = b"a") -> None:
    """Send a byte each, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for one in made:
            try:
                one.sendall(sent)
            except OSError:
                continue
        time.sleep(0.3)


@pytest.mark.spec("CON-25")
def test_slow_headers_end_and_do_not_block_others(port, name, connections) -> None:
    began = time.monotonic()
    made = connect(connections, port, b"GET / HTTP/1.1\r\nX-Slow: ", CONNECTIONS)
    assert seconds_to_answer(port) < 1
    trickle(made, HEAD_S + 0.5 - (time.monotonic() - began))
    assert end_of(made[0]).startswith(b"HTTP/1.1 408 ")
    assert end_of(made[-1]).startswith(b"HTTP/1.1 408 ")
    assert seconds_to_answer(port) < 1


@pytest.mark.spec("CON-25")
def test_slow_bodies_end_and_do_not_block_others(port, name, connections) -> None:
    began = time.monotonic()
    made = connect(connections, port, open_body(name) + b'{"es_query":', CONNECTIONS)
    assert seconds_to_answer(port) < 1
    trickle(made, PATIENCE_S + 0.5 - (time.monotonic() - began))
    ends = [end_of(one) for one in (made[0], made[-1])]
    assert all(end.startswith(b"HTTP/1.1 408 ") for end in ends), ends
    assert time.monotonic() - began < SPARE_S
    assert seconds_to_answer(port) < 1


def test_slow_bodies_on_all_connections_do_not_block_others(port, name, connections) -> None:
    made = connect(connections, port, open_body(name) + b'{"es_query":', FULL + 20)
    with ThreadPoolExecutor(1) as pool:
        # Twice the minimum rate: no limit of a single client ends them.
        pool.submit(trickle, made, 2.5, b"a" * 300)
        for _ in range(3):
            time.sleep(0.5)
            began = time.monotonic()
            assert asked(port, GET).startswith(b"HTTP/1.1 404 ")
            assert time.monotonic() - began < 2


@pytest.mark.spec("CON-25")
def test_refused_open_connections_do_not_block_others(port, name, connections) -> None:
    connect(connections, port, b"no request\r\n\r\n", CONNECTIONS)
    assert seconds_to_answer(port) < 1


@pytest.mark.spec("CON-25")
def test_slow_readers_do_not_block_others(port, name, connections) -> None:
    path = b"/v1/swagger.json" if name == "api" else b"/swagger.json"
    # More answers than the socket buffers hold, and nobody reads them.
    asked_often = (b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") * 100
    for _ in range(60):
        made = connections.enter_context(socket.socket())
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect(("127.0.0.1", port))
        made.sendall(asked_often)
    time.sleep(1.0)
    assert seconds_to_answer(port) < 1


@pytest.mark.spec("CON-25")
def test_a_slow_but_steady_client_is_served(port, name, connections) -> None:
    body = b'{"es_query": {"query": {"match_all": {}}}}' + b" " * (9000 - 42)
    (made,) = connect(connections, port, open_body(name), 1)
    for start in range(0, 9000, 1500):
        made.sendall(body[start : start + 1500])
        time.sleep(0.1)
    assert made.recv(100).startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 401 "))


@pytest.mark.spec("CON-15")
@pytest.mark.parametrize("name", ["api"], indirect=True, scope="module")
def test_64_requests_of_one_client_wait_and_others_are_answered(port, connections) -> None:
    poll = b"GET /v1/events/feed?replica=aws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    made = connect(connections, port, poll + b"Prefer: wait=2\r\n\r\n", 64)
    assert seconds_to_answer(port) < 1
    assert {end_of(one).partition(b"\r\n")[0] for one in made} == {b"HTTP/1.1 200 OK"}
