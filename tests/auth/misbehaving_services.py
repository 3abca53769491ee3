"""Authorization services that misbehave, on real connections."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from auth.http_client import HttpClient
from auth.remote import PolicyServiceClient, StoreTokenSigner
from auth.service_accounts import create_credentials
from tests.http_server import serving

STORE = "store@machines.example.org"


def credentials_file(folder: Path) -> Path:
    """The credentials file of the store's account."""
    path = folder / "store.json"
    path.write_text(_credentials())
    return path


@cache
def _credentials() -> str:
    """Made once: an RSA key takes its time."""
    return create_credentials(STORE, audience="store", token_uri="")[0]


@dataclass
class Script:
    """What a service answers, and what it was asked; `act` may do anything with the connection."""

    version: str = "1"
    allowed: bool = True
    depends_on: Sequence[str] = ()
    stands: bool = True
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Callable[[Any], bytes] | None = None
    act: Callable[[BaseHTTPRequestHandler], None] | None = None
    asked: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)

    def answer(self, question: Any) -> Any:
        """What a service of this version would say."""
        if question is None:
            return {"policy_version": self.version}
        reason = "allow" if self.allowed else "implicit_deny"
        results = [
            {"action": action, "resource": resource, "result": self.allowed, "reason": reason}
            for action in question["action"]
            for resource in question["resource"]
        ]
        return {
            "result": self.allowed,
            "reason": reason,
            "evaluation_results": [
                {
                    **one,
                    "source": None,
                    "statement": None,
                    "depends_on": self.depends_on,
                    "anywhere": self.allowed,
                }
                for one in results
            ],
            "grant_stands": None if question["grant"] is None else self.stands,
            "policy_version": self.version,
        }


def handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._serve(json.loads(self.rfile.read(length)))

        def _serve(self, question: Any) -> None:
            script.asked.append(self.path)
            script.tokens.append(self.headers["Authorization"])
            script.ports.add(self.client_address[1])
            if script.act is not None:
                script.act(self)
                return
            body = script.body(question) if script.body else _json(script.answer(question))
            self.send_response(script.status)
            for name, value in script.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    return Service


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def dripping(text: bytes, stop: threading.Event) -> Callable[[BaseHTTPRequestHandler], None]:
    """Sends a byte now and then: each of them in time, all of them never."""

    def act(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        for byte in text:
            if stop.wait(0.02):
                return
            try:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
            except OSError:
                return

    return act


def saying(text: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Sends this, whatever it is, and hangs up."""

    def act(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(text)

    return act


@contextmanager
def scripted(
    script: Script, file: Path, *, timeout_s: float = 1.5, connections: int = 4
) -> Iterator[PolicyServiceClient]:
    """A service that follows a script, as a store sees it."""
    with serving(handler(script)) as url:
        http = HttpClient(timeout_s, connections=connections)
        yield PolicyServiceClient(url, StoreTokenSigner(file, time.time), http)
        http.close()
