"""A receiver of notifications: checks every signature, remembers what came, answers 200 or 503."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ops.demo.signatures import faults


@dataclass(frozen=True)
class Notice:
    """One notification as it came."""

    path: str
    event_type: str | None
    fqid: str
    at: float
    payload: dict[str, Any]
    faults: tuple[str, ...]
    ident: str = ""


@dataclass
class Inbox:
    """All that came, by path; for many threads."""

    key: bytes
    notices: list[Notice] = field(default_factory=list)
    refused: list[Notice] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, notice: Notice, *, refused: bool = False) -> None:
        """Remember one."""
        with self._lock:
            (self.refused if refused else self.notices).append(notice)

    def seen(self, path: str, event_type: str | None = None) -> set[str]:
        """The FQIDs that a path was told of; with an event type, only of those events."""
        with self._lock:
            return {
                notice.fqid
                for notice in self.notices
                if notice.path == path and event_type in (None, notice.event_type)
            }

    def forged(self) -> list[Notice]:
        """Those whose signature did not hold."""
        with self._lock:
            return [notice for notice in self.notices if notice.faults]


Refuses = Callable[[Notice], bool]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_POST(self) -> None:
        """Take one notification in."""
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True  # its sender died
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        wrong = faults(
            headers, method=self.command, path=self.path, body=body, key=self.server.inbox.key
        )
        ident = headers.get("webhook-id", "")
        notice = _notice(self.path, body, wrong, ident)
        refused = self.server.refuses(notice)
        self.server.inbox.add(notice, refused=refused)
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing: the board shows what came."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A burst of notifications opens many connections at once.
    request_queue_size = 256

    def __init__(self, inbox: Inbox, refuses: Refuses) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.inbox, self.refuses = inbox, refuses

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that died leaves its connection broken: that is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _notice(path: str, body: bytes, wrong: list[str], ident: str) -> Notice:
    payload = json.loads(body)
    match = payload.get("match", {})
    fqid = f"{match.get('bundle_uuid')}.{match.get('bundle_version')}"
    kind, at = payload.get("event_type"), time.monotonic()
    return Notice(path, kind, fqid, at, payload, tuple(wrong), ident)


@contextmanager
def receiving(key: bytes, *, refuses: Refuses = lambda _: False) -> Iterator[tuple[str, Inbox]]:
    """A receiver on a free port; its base URL and what it gets. What it `refuses` comes again."""
    inbox = Inbox(key)
    with _Server(inbox, refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", inbox
        finally:
            server.shutdown()
