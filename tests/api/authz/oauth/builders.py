"""Builders of OAuth requests and of a user at a browser."""

import html
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from auth.login import sessions
from auth.login.sessions import SessionLifetimes
from auth.secret_values import pkce_challenge
from storage.catalog import Catalog
from tests.auth.builders import Clock

BASE = "https://auth.example"
ADA = "ada@example.org"
VERIFIER = "a-verifier-of-43-characters-and-more-aaaaaaaaaaa"
URI = "http://127.0.0.1:5000/callback"
LASTING = SessionLifetimes(43_200, 43_200)

_INPUT = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def request(**changed: Any) -> dict[str, Any]:
    """The parameters of an authorization request, some changed; None takes one away."""
    ordinary: dict[str, Any] = {
        "response_type": "code",
        "client_id": "store-cli",
        "redirect_uri": URI,
        "scope": "openid email groups",
        "state": "the state",
        "nonce": "the nonce",
        "code_challenge": pkce_challenge(VERIFIER),
        "code_challenge_method": "S256",
    }
    return {name: value for name, value in {**ordinary, **changed}.items() if value is not None}


def of_portal(**changed: Any) -> dict[str, Any]:
    """The same of a client that is not the store's own."""
    there = {"client_id": "portal", "redirect_uri": "https://portal.example/back"}
    return request(**{**there, **changed})


def query(response: TestResponse) -> dict[str, str]:
    """What a redirect brings to its address."""
    given = parse_qs(urlsplit(response.headers["Location"]).query, strict_parsing=True)
    return {name: value for name, (value,) in given.items()}


def hidden(response: TestResponse) -> dict[str, str]:
    """What a page's form carries."""
    return {name: html.unescape(value) for name, value in _INPUT.findall(response.text)}


@dataclass
class Browser:
    """Keeps one cookie, as a browser does."""

    client: FlaskClient
    catalog: Catalog
    clock: Clock
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def log_in(self, email: str = ADA) -> None:
        """As the login pages do it."""
        with self.catalog.write() as tx:
            begun = sessions.create_session(tx, email, "local", now=self.clock(), lifetimes=LASTING)
        self.cookie = begun[0]

    def log_out(self) -> None:
        self.cookie = ""

    def get(self, url: str) -> TestResponse:
        return self.client.get(url, base_url=BASE, headers=self._sent())

    def head(self, url: str) -> TestResponse:
        return self.client.head(url, base_url=BASE, headers=self._sent())

    def post(self, url: str, form: dict[str, Any]) -> TestResponse:
        return self.client.post(url, base_url=BASE, data=form, headers=self._sent())

    def authorize(self, **changed: Any) -> TestResponse:
        return self.get("/oauth/authorize?" + urlencode(request(**changed), doseq=True))

    def allow(self, page: TestResponse, decision: str = "allow") -> TestResponse:
        """What the page that asks leads to; whatever is no such page leads there by itself."""
        if page.status_code != 200:
            return page
        return self.post("/oauth/consent", {**hidden(page), "decision": decision})

    def code(self, **changed: Any) -> str:
        """The code of who is logged in and allows what is asked."""
        return query(self.allow(self.authorize(**changed)))["code"]

    def back(self, to_login: TestResponse) -> TestResponse:
        """From the login to where it was told to lead."""
        return self.get(query(to_login)["redirect_uri"])

    def token(self, form: dict[str, Any], **more: Any) -> TestResponse:
        return self.client.post("/oauth/token", base_url=BASE, data=form, **more)

    def redeem(self, code: str, **changed: Any) -> TestResponse:
        ordinary = {
            "grant_type": "authorization_code",
            "client_id": "store-cli",
            "redirect_uri": URI,
            "code_verifier": VERIFIER,
            "code": code,
        }
        form = {**ordinary, **changed}
        return self.token({name: value for name, value in form.items() if value is not None})

    def tokens(self, **changed: Any) -> dict[str, Any]:
        """Those of who is logged in, by the command-line client."""
        found: dict[str, Any] = self.redeem(self.code(**changed)).json or {}
        return found

    def _sent(self) -> dict[str, str]:
        if not self.cookie:
            return dict(self.headers)
        return {**self.headers, "Cookie": f"__Host-store-session={self.cookie}"}
