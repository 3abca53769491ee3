"""A server on real connections that answers what a test says, in that order, and tells what came."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from store_client.http import HttpSession, RetryPolicy, TokenSource
from tests.http_server import serving

NO_ANSWER = "the connection ends without an answer"
CUT_OFF = "the connection ends in the middle of an answer"


@dataclass(frozen=True)
class Answer:
    """One answer; `broken` says how it fails to come."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    broken: str = ""


@dataclass(frozen=True)
class Came:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Script:
    """What is answered next, the last again and again; what came; what was waited."""

    answers: list[Answer] = field(default_factory=list)
    came: list[Came] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    url: str = ""

    def say(self, *answers: Answer) -> None:
        """These, from now on."""
        self.answers = list(answers)

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def session(
        self,
        *,
        tokens: TokenSource | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008
    ) -> HttpSession:
        """A session to it that does not really wait."""
        return HttpSession(self.url, tokens=tokens, policy=policy, sleep=self.waited.append)

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.came]

    @property
    def authorizations(self) -> list[str | None]:
        return [one.headers.get("authorization") for one in self.came]


def problem(status: int, code: str, detail: str, **more: Any) -> Answer:
    """An error as a store tells it."""
    told = {"type": "about:blank", "title": "Title", "status": status, "code": code}
    body = json.dumps({**told, "detail": detail, "request_id": "r1", **more}).encode()
    return Answer(status, body, {"Content-Type": "application/problem+json"})


@contextmanager
def scripted() -> Iterator[Script]:
    """One that answers `{}` until it is told otherwise."""
    script = Script([Answer()])

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = (
                self._chunked()
                if self.headers.get("Transfer-Encoding")
                else self.rfile.read(length)
            )
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.came.append(Came(self.command, self.path, headers, body))
            self._answer(script.next())

        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def _chunked(self) -> bytes:
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            return whole

        def _answer(self, answer: Answer) -> None:
            if answer.broken == NO_ANSWER:
                return
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            more = 100 if answer.broken == CUT_OFF else 0
            self.send_header("Content-Length", str(len(answer.body) + more))
            self.end_headers()
            self.wfile.write(answer.body if self.command != "HEAD" else b"")

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with serving(Handler) as url:
        script.url = url
        yield script
