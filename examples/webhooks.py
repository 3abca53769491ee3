"""A webhook receiver for notifications of the data store, which verifies their signatures.

with running_receiver(key) as receiver:
    store.put_subscription(callback_url=f"{receiver.url}/new", hmac_secret_key=key, ...)
    ...
    print(receiver.fqids("/new"))
"""

import base64
import hashlib
import hmac
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_S = 300
"""Age above which a notification could be a replayed one."""
SIGNED = ("(request-target)", "host", "date", "digest")
"""What the HTTP signature covers, in this order."""


def signature_errors(headers: Mapping[str, str], path: str, body: bytes, key: str) -> list[str]:
    """The signatures of a notification that are wrong; header names in lower case.

    A receiver needs to verify only one: Standard Webhooks, if there is no reason for the other.
    """
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    checks = {
        "digest": headers.get("digest") == f"SHA-256={digest}",
        "signature": _is_http_signature_valid(headers, path, key),
        "webhook-signature": _is_webhook_signature_valid(headers, body, key),
    }
    return [name for name, is_valid in checks.items() if not is_valid]


def _is_http_signature_valid(headers: Mapping[str, str], path: str, key: str) -> bool:
    """Verify the signature of draft-cavage-http-signatures."""
    header = headers.get("signature") or headers.get("authorization", "")
    given = dict(re.findall(r'([a-zA-Z]+)="([^"]*)"', header))
    values = {**headers, "(request-target)": f"post {path}"}
    text = "\n".join(f"{name}: {values.get(name, '')}" for name in SIGNED)
    is_covered = given.get("headers", "").split() == list(SIGNED)
    return is_covered and hmac.compare_digest(given.get("signature", ""), _sign(key, text.encode()))


def _is_webhook_signature_valid(headers: Mapping[str, str], body: bytes, key: str) -> bool:
    """Verify the signature of Standard Webhooks, and that it is recent."""
    id_, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > TOLERANCE_S:
        return False
    expected = f"v1,{_sign(key, f'{id_}.{sent}.'.encode() + body)}"
    given = headers.get("webhook-signature", "").split()  # several while a key is replaced
    return any(hmac.compare_digest(expected, one) for one in given)


def _sign(key: str, message: bytes) -> str:
    return base64.b64encode(hmac.new(key.encode(), message, hashlib.sha256).digest()).decode()


@dataclass(frozen=True)
class Notification:
    """A notification as it was received; `errors` names the signatures that are wrong."""

    path: str
    id: str
    event_type: str | None
    fqid: str
    payload: dict[str, Any]
    errors: list[str]
    received_at: float = field(default_factory=time.monotonic)


@dataclass
class Receiver:
    """The notifications that were accepted, and those that were rejected."""

    url: str
    key: str
    accepted: list[Notification] = field(default_factory=list)
    rejected: list[Notification] = field(default_factory=list)

    def fqids(self, path: str, event_type: str | None = None) -> set[str]:
        """The bundles a path was notified of, by all types of event or one."""
        return {
            one.fqid
            for one in self.accepted.copy()
            if one.path == path and event_type in (None, one.event_type)
        }

    def invalid(self) -> list[Notification]:
        """The accepted notifications with a wrong signature."""
        return [one for one in self.accepted if one.errors]


def accept_all(_: Notification) -> bool:
    """Accept every notification."""
    return True


@contextmanager
def running_receiver(
    key: str, *, host: str = "127.0.0.1", accept: Callable[[Notification], bool] = accept_all
) -> Iterator[Receiver]:
    """Run a receiver on a free port. The store sends again what it does not `accept`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = self.rfile.read(length)
            if len(body) < length:  # the sender broke off
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            notification = _parse(self.path, headers, body, key)
            accepted = accept(notification)
            (receiver.accepted if accepted else receiver.rejected).append(notification)
            self.send_response(200 if accepted else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep standard error free of requests."""

    with _Server((host, 0), Handler) as server:
        receiver = Receiver(f"http://{host}:{server.server_port}", key)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # many notifications arrive at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except that the sender broke off a connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _parse(path: str, headers: Mapping[str, str], body: bytes, key: str) -> Notification:
    payload = json.loads(body)
    match = payload.get("match", {})
    return Notification(
        path=path,
        id=headers.get("webhook-id", ""),
        event_type=payload.get("event_type"),
        fqid=f"{match.get('bundle_uuid')}.{match.get('bundle_version')}",
        payload=payload,
        errors=signature_errors(headers, path, body, key),
    )
