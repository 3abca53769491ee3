"""Both HTTP servers as the Procfile starts them, asked in ways that no application gets to see."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.http import errors

from api.server import LONGEST_LINE, SILENCE_S, lose_patience, refusal
from ops import ports, procfile

MEMBERS = {"type", "title", "status", "code", "detail", "request_id"}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        (sys.executable, "-m", "ops", "migrate"),
        cwd=procfile.ROOT,
        env=environ(home, 0),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module", params=["api", "auth"])
def port(request: pytest.FixtureRequest, home: Path) -> Iterator[int]:
    first = ports.free_pair()
    with started(request.param, home, first):
        yield first if request.param == "api" else first + 1


def environ(home: Path, first: int) -> dict[str, str]:
    inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
    own = {"STORE_HOME": str(home), "STORE_SECRET_KEY": "s" * 32}
    # Of a queue that is not there: nothing here waits for work.
    queue = {"STORE_REDIS_URL": f"redis://127.0.0.1:{ports.free()}/0"}
    return {**inherited, **own, **queue, **({"STORE_PORT": str(first)} if first else {})}


@contextmanager
def started(name: str, home: Path, first: int) -> Iterator[None]:
    """One process of the Procfile."""
    (line,) = (line for line in procfile.read() if line.name == name)
    with (home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", *line.command),
            cwd=procfile.ROOT,
            env=environ(home, first),
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(first if name == "api" else first + 1, process)
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            answered = asked(port, b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert answered.startswith(b"HTTP/1.1 ")
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)


def asked(port: int, sent: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        made.sendall(sent)
        return b"".join(iter(lambda: made.recv(65_536), b""))


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
        (b"GET /?" + b"a" * LONGEST_LINE + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, None),
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
def test_what_no_application_sees_is_refused_as_a_problem(
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


def test_a_broken_request_ends_its_own_connection_alone(port: int) -> None:
    good = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        made.sendall(good + b"no request\r\n\r\n")
        answered = b"".join(iter(lambda: made.recv(65_536), b""))
    assert answered.count(b"HTTP/1.1 ") == 2
    assert answered.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 400 " in answered
    assert asked(port, good.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


def test_the_longest_request_line_reaches_the_application(port: int) -> None:
    line = b"GET /nothing?" + b"a" * (LONGEST_LINE - len(b"GET /nothing? HTTP/1.1"))
    sent = line + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert asked(port, sent).startswith(b"HTTP/1.1 404 ")


def test_no_header_tells_the_server_by_what_transport_a_request_came(port: int) -> None:
    told = b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n"
    sent = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + told + b"\r\n"
    # Whoever believes them refuses what contradicts itself.
    assert asked(port, sent).startswith(b"HTTP/1.1 404 ")


def test_what_was_sent_is_not_in_the_log(port: int, home: Path) -> None:
    asked(port, b"GET / HTTP/1.1\r\nAuthorization: Bearer hunter2\r\n folded-hunter2\r\n\r\n")
    asked(port, b"hunter2\r\n\r\n")
    logs = [path.read_bytes() for path in home.glob("*.log")]
    assert any(b"ObsoleteFolding" in log for log in logs)
    assert not any(b"hunter2" in log for log in logs)


def test_what_nobody_foresaw_tells_nothing() -> None:
    status, answer = refusal(RuntimeError("the secret of it"), "id-1")
    assert status == 500
    assert b"secret" not in answer


def test_a_header_that_the_application_got_wrong_is_our_fault() -> None:
    assert refusal(errors.InvalidResponseHeader("a\nb"), "id-1")[0] == 500
    assert refusal(errors.InvalidHeader("a"), "id-1")[0] == 400


def test_a_connection_that_is_silent_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lose_patience(SimpleNamespace(sockets=[SimpleNamespace(sock=listener)]))
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                raw = accepted.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("ll"))
                assert struct.unpack("ll", raw) == (SILENCE_S, 0)
