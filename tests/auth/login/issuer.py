"""A scriptable identity provider on loopback."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from joserfc.jwk import ECKey, RSAKey

from tests.auth.builders import signed
from tests.http_server import serving

CLIENT, SECRET = "our-client", "our secret"

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Issuer:
    """What it answers; whatever is None is left out."""

    key: RSAKey | ECKey
    clock: Callable[[], float]
    url: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    jwks: Mapping[str, Any] | None = None
    token: str | None = None
    """An ID token instead of the one that would be signed."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """Answers by path instead of ours."""
    drip_s: float = 0.0
    """Between two bytes of an answer's body."""
    nonce: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    """Path, headers and form of every request."""

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    def form(self) -> dict[str, str]:
        """What the token end point was sent."""
        return next(form for path, _, form in self.asked if path == "/token")

    def answer(self, path: str) -> Answer:
        if path in self.answers:
            return self.answers[path]
        made: Callable[[], Mapping[str, Any]] | None = {
            "/.well-known/openid-configuration": self._metadata,
            "/jwks": self._jwks,
            "/token": self._token,
            "/userinfo": self._userinfo,
        }.get(path)
        return (200, {}, json.dumps(made()).encode()) if made else (404, {}, b"")

    def _metadata(self) -> Mapping[str, Any]:
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "userinfo_endpoint": f"{self.url}/userinfo",
            **self.metadata,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _jwks(self) -> Mapping[str, Any]:
        return self.jwks or {"keys": [self.key.as_dict(private=False)]}

    def _userinfo(self) -> Mapping[str, Any]:
        return self.userinfo

    def _token(self) -> Mapping[str, Any]:
        return {
            "access_token": "an-access-token",
            "token_type": "Bearer",
            "id_token": self.token or self.id_token(),
        }

    def id_token(self) -> str:
        ordinary = {
            "iss": self.url,
            "sub": "subject",
            "aud": CLIENT,
            "nonce": self.nonce,
            "email": "Ada@example.org",
            "email_verified": True,
            "iat": int(self.clock()),
            "exp": int(self.clock()) + 300,
            **self.claims,
        }
        claims = {name: value for name, value in ordinary.items() if value is not None}
        return signed(self.key, claims, **self.header)


@contextmanager
def running(issuer: Issuer) -> Iterator[Issuer]:
    """The same, on a loopback port."""
    with serving(type("Handler", (_Handler,), {"issuer": issuer})) as url:
        issuer.url = url
        yield issuer


class _Handler(BaseHTTPRequestHandler):
    issuer: Issuer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self._answer({name: values[0] for name, values in parse_qs(body).items()})

    def _answer(self, form: dict[str, str]) -> None:
        path = self.path.partition("?")[0]
        self.issuer.asked.append((path, dict(self.headers), form))
        status, headers, body = self.issuer.answer(path)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(body)

    def _send(self, body: bytes) -> None:
        size = 1 if self.issuer.drip_s else 65_536
        try:
            for at in range(0, len(body), size):
                self.wfile.write(body[at : at + size])
                time.sleep(self.issuer.drip_s)
        except OSError:
            pass

    def log_message(self, *_: Any) -> None:
        pass
