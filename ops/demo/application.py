"""The command-line client as it logs a person in: discovery, a code by PKCE that comes back to a
port of this computer, tokens (RFC 8252).
"""

import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

CLIENT = "store-cli"
SCOPES = "openid email offline_access"
DISCOVERY = "/.well-known/openid-configuration"


class NoTokens(Exception):
    """The login brought no tokens; the text says what it brought."""


@dataclass(frozen=True)
class Tokens:
    """What one login gave."""

    access: str
    refresh: str


@dataclass(frozen=True)
class Application:
    """The client of one authorization service, which it found everything about there."""

    http: httpx.Client
    found: Mapping[str, Any]

    @classmethod
    def of(cls, auth: str) -> "Application":
        """Ask the service at this address where everything is."""
        http = httpx.Client(timeout=60.0, trust_env=False)
        return cls(http, http.get(auth + DISCOVERY).raise_for_status().json())

    def log_in(self, show: Callable[[str], object]) -> Tokens:
        """Have a browser `show` the login to a person; NoTokens when nobody is logged in by it."""
        state, verifier = secrets.token_urlsafe(16), secrets.token_urlsafe(48)
        with _listening() as (back, brought):
            asked = {
                "response_type": "code",
                "client_id": CLIENT,
                "redirect_uri": back,
                "scope": SCOPES,
                "state": state,
                "code_challenge": _s256(verifier),
                "code_challenge_method": "S256",
            }
            show(f"{self.found['authorization_endpoint']}?{urlencode(asked)}")
        if (brought.get("state"), brought.get("iss")) != (state, self.found["issuer"]):
            raise NoTokens(f"the browser came back with {', '.join(brought) or 'nothing'}")
        code = brought.get("code", "")
        return self._tokens("authorization_code", code=code, code_verifier=verifier, back=back)

    def refresh(self, tokens: Tokens) -> Tokens:
        """The next tokens of a login."""
        return self._tokens("refresh_token", refresh_token=tokens.refresh)

    def revoke(self, tokens: Tokens) -> None:
        """End a login."""
        form = {"client_id": CLIENT, "token": tokens.refresh}
        self.http.post(self.found["revocation_endpoint"], data=form).raise_for_status()

    def whose(self, tokens: Tokens) -> str:
        """The e-mail address of who logged in."""
        told = self.http.get(self.found["userinfo_endpoint"], headers=bearer(tokens))
        return str(told.raise_for_status().json()["email"])

    def _tokens(self, kind: str, *, back: str = "", **members: str) -> Tokens:
        form = {"grant_type": kind, "client_id": CLIENT, "redirect_uri": back, **members}
        answer = self.http.post(self.found["token_endpoint"], data=form)
        told = answer.json()
        if answer.status_code != 200:
            raise NoTokens(f"{answer.status_code} {told.get('error')}")
        return Tokens(told["access_token"], told["refresh_token"])


def bearer(tokens: Tokens) -> dict[str, str]:
    """The header that brings an access token."""
    return {"Authorization": f"Bearer {tokens.access}"}


def _s256(verifier: str) -> str:
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class _Back(HTTPServer):
    """Where the browser comes back to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.brought: dict[str, str] = {}


class _Handler(BaseHTTPRequestHandler):
    server: _Back

    def do_GET(self) -> None:
        """Take what the browser brings, and let the person go."""
        self.server.brought.update(parse_qsl(urlsplit(self.path).query))
        text = b"You are logged in. You may close this page."
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing: there is a code in it."""


@contextmanager
def _listening() -> Iterator[tuple[str, dict[str, str]]]:
    """An address on a free port; what a browser brings there."""
    with _Back() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/callback", server.brought
        finally:
            server.shutdown()
