"""Log in at the browser: authorization code with PKCE and a loopback callback server.

Authorization code with PKCE S256 (RFC 7636) on a loopback port (RFC 8252). `state` ties the answer
to the request, `iss` (RFC 9207) to the service, `nonce` the id token to this login. The server
accepts one answer; the browser waits until the result of the login is known.
"""

import base64
import hashlib
import hmac
import html
import importlib
import os
import secrets
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from store_client.auth.claims import make_printable
from store_client.auth.oauth import CLIENT_ID, SCOPE, AuthService, TokenGrant, request_tokens
from store_client.errors import NotAllowed, Refused, StoreError, TimedOut
from store_client.http.session import HttpSession

HOST, PATH = "127.0.0.1", "/callback"
SILENT_S = 10.0
"""Time-out for a browser that connects and sends nothing."""
TOLD_S = 60.0
"""How long a browser waits for the result of the login."""
WRITTEN_S = 2.0
"""How long the last page may take to get to the browser."""
MAX_TARGET = 16 * 1024
POLL_S = 0.1
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto;
padding: 0 1rem; }} @media (prefers-color-scheme: dark) {{ body {{ background: #161616;
color: #eee; }} }}</style></head>
<body><main><h1>{title}</h1><p>{text}</p></main></body></html>
"""
NOT_OURS = ("Not this login", "This is not the answer to the login that waits. Begin again.")
RESULT_ELSEWHERE = ("Go back to the terminal", "It says how the login went.")

CallbackAnswer = Mapping[str, str]


class CallbackServer(ThreadingHTTPServer):
    """The loopback server that receives the answer of the authorization service."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _CallbackHandler)
        self.state = ""
        """The state of the answer that is accepted."""
        self.results: Queue[tuple[str, str]] = Queue(maxsize=1)
        self.accepted = False
        self.page_sent = Event()
        self._answers: Queue[CallbackAnswer] = Queue(maxsize=1)
        self._accepting = Lock()

    @property
    def redirect_uri(self) -> str:
        return f"http://{HOST}:{self.server_port}{PATH}"

    def accept(self, said: CallbackAnswer) -> bool:
        """Accept the first answer with the right state; whether this is it."""
        state = said.get("state", "").encode(errors="replace")
        if not self.state or not hmac.compare_digest(state, self.state.encode()):
            return False
        with self._accepting:
            if self.accepted:
                return False
            self.accepted = True
        self._answers.put_nowait(said)
        return True

    def wait_for_answer(self, seconds: float) -> CallbackAnswer:
        """Wait for the parameters of the answer; TimedOut if none arrives."""
        try:
            return self._answers.get(timeout=seconds)
        except Empty:
            raise TimedOut(
                f"no login within {seconds:.0f} s",
                hint="try again: store login; without a browser: store login --remote",
            ) from None

    def show_result(self, title: str, text: str) -> None:
        with suppress(Full):
            self.results.put_nowait((title, text))

    def handle_error(self, *_: object) -> None:
        """Ignore browsers that hang up."""


@contextmanager
def open_callback_server() -> Iterator[CallbackServer]:
    """Run a callback server on a free port."""
    with CallbackServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": POLL_S}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.show_result(*RESULT_ELSEWHERE)
            if server.accepted:
                server.page_sent.wait(WRITTEN_S)
            server.shutdown()
            thread.join()


class _CallbackHandler(BaseHTTPRequestHandler):
    server: CallbackServer
    timeout = SILENT_S

    def do_GET(self) -> None:
        """Handle the callback; anything else is not found."""
        target = urlsplit(self.path) if len(self.path) <= MAX_TARGET else None
        # Another Host header is an attempt at DNS rebinding.
        own = f"{HOST}:{self.server.server_port}"
        if target is None or target.path != PATH or self.headers.get("Host", "") != own:
            self._send_page(404, "Not found", "There is nothing here.")
            return
        said = _parse_query(target.query)
        if not self.server.accept(said):
            self._send_page(400, *NOT_OURS)
            return
        try:
            self._send_page(200, *self._wait_for_result())
        finally:
            self.server.page_sent.set()

    def _wait_for_result(self) -> tuple[str, str]:
        try:
            return self.server.results.get(timeout=TOLD_S)
        except Empty:
            return RESULT_ELSEWHERE

    def _send_page(self, status: int, title: str, text: str) -> None:
        page = PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def version_string(self) -> str:
        """Hide the version of Python."""
        return "store"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer other methods and malformed requests with 404, too."""
        self._send_page(404 if code == 501 else code, "Not found", "There is nothing here.")

    def log_message(self, *_: object) -> None:
        """Log nothing: URLs hold secrets."""


def _parse_query(query: str) -> CallbackAnswer:
    """Parse the query; empty if a parameter is repeated, or there are too many."""
    try:
        given = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    said = dict(given)
    return said if len(said) == len(given) else {}


Show = Callable[[str], Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _AuthorizationRequest:
    """One authorization request, with its secrets."""

    redirect_uri: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    def url(self, service: AuthService) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": self.redirect_uri,
            "scope": SCOPE,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in service.authorization_endpoint else "?"
        return f"{service.authorization_endpoint}{joint}{urlencode(asked)}"


def authorize_in_browser(
    session: HttpSession,
    service: AuthService,
    *,
    say: Say,
    show: Show | None = None,
    wait_s: float,
) -> TokenGrant:
    """Log in at the browser; TimedOut, or NotAllowed if consent is denied."""
    with open_callback_server() as door:
        question = _AuthorizationRequest(door.redirect_uri)
        door.state = question.state
        url = question.url(service)
        say(f"Log in at your browser. If it does not open, go to:\n  {url}")
        # Terminal browsers return only when they are closed.
        Thread(target=_open_quietly, args=(show or open_browser, url), daemon=True).start()
        answer = door.wait_for_answer(wait_s)
        try:
            found = _redeem_code(session, service, question, answer)
        except StoreError as error:
            door.show_result("You are not logged in", str(error))
            raise
        door.show_result(
            "You are logged in", "You can close this page and go back to the terminal."
        )
        return found


def open_browser(
    url: str, *, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> bool:
    """Open a URL in a browser; False where there is no display.

    A text browser would take over the terminal.
    """
    screen = platform in ("win32", "darwin", "cygwin") or any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    return screen and webbrowser.open(url)


def _open_quietly(show: Show, url: str) -> None:
    try:
        show(url)
    except (webbrowser.Error, OSError):
        return  # the address was printed


def _redeem_code(
    session: HttpSession,
    service: AuthService,
    question: _AuthorizationRequest,
    answer: CallbackAnswer,
) -> TokenGrant:
    said_issuer = answer.get("iss", "" if service.says_issuer else service.issuer)
    if said_issuer != service.issuer:
        raise Refused("the answer is from another authorization service; nothing was sent to it")
    if "error" in answer:
        said = make_printable(answer.get("error_description") or answer["error"])
        kind = NotAllowed if answer["error"] == "access_denied" else Refused
        raise kind(
            f"the authorization service refused the login: {said}", hint="try again: store login"
        )
    if not answer.get("code"):
        raise Refused("the authorization service answered with neither a code nor a reason")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": question.redirect_uri,
        "code_verifier": question.verifier,
    }
    # A code that is redeemed twice ends the login.
    found = request_tokens(session, service.token_endpoint, form, again=False)
    importlib.import_module("store_client.auth.signatures").verify_id_token(
        session,
        found.id_token,
        issuer=service.issuer,
        jwks_uri=service.jwks_uri,
        nonce=question.nonce,
    )
    return found
