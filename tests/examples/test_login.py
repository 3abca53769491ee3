"""Logging in without a browser, at pages of a small server."""

import base64
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from examples.login import CALLBACK, log_in
from store_client import Client, StoreError

pytestmark = pytest.mark.spec("OPS-17")

PASSWORD_FORM = """<form method="post" action="in?x=1&amp;y=2">
<input type="hidden" name="csrf" value="a&quot;b"><input name="email"><input name="password">
</form>"""
CONSENT_FORM = """<form action="/logout"><button name="leave">Log out</button></form>
<form method="post" action="/consent"><button name="decision" value="allow">Allow</button></form>"""


class Pages(BaseHTTPRequestHandler):
    """Leads from /authorize over a login form and a consent form to the callback."""

    server: "Site"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/authorize":
            self.server.query = dict(parse_qsl(url.query))
            self.answer(302, **{"Location": "/form", "Set-Cookie": "seen=yes; Path=/; HttpOnly"})
        else:
            self.answer(200, PASSWORD_FORM if self.server.has_form else "<p>Closed</p>")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = (self.path, dict(parse_qsl(body)), self.headers["Cookie"], self.headers["Origin"])
        self.server.sent.append(sent)
        if self.path != "/consent":
            self.answer(200, CONSENT_FORM)
            return
        answer = {"code": "c", "iss": self.server.url, "state": self.server.query["state"]}
        self.answer(303, Location=f"{CALLBACK}?{urlencode({**answer, **self.server.wrong})}")

    def answer(self, status: int, text: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Don't log requests."""


class Site(ThreadingHTTPServer):
    """An authorization service, and the client of its store."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.has_form = True
        self.query: dict[str, str] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.wrong: dict[str, str] = {}
        self.redeemed: dict[str, str] = {}

    def get_openid_configuration(self) -> dict[str, str]:
        return {"authorization_endpoint": f"{self.url}/authorize", "issuer": self.url}

    def post_oauth_token(self, **form: str) -> dict[str, str]:
        self.redeemed = form
        return {"access_token": "a", "refresh_token": "r"}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def log_in_at(site: Site) -> dict[str, Any]:
    return log_in(cast(Client, site), "ada@example.org", "secret")


def test_fills_in_forms_and_redeems_the_code(site: Site) -> None:
    assert log_in_at(site) == {"access_token": "a", "refresh_token": "r"}
    login = {"csrf": 'a"b', "email": "ada@example.org", "password": "secret"}
    assert site.sent == [
        ("/in?x=1&y=2", login, "seen=yes", site.url),
        ("/consent", {"decision": "allow"}, "seen=yes", site.url),
    ]
    digest = hashlib.sha256(site.redeemed["code_verifier"].encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert site.query["code_challenge"] == challenge
    assert site.query["redirect_uri"] == site.redeemed["redirect_uri"] == CALLBACK
    assert site.redeemed["code"] == "c"


@pytest.mark.parametrize("wrong", [{"state": "other"}, {"iss": "https://other.example"}])
def test_does_not_redeem_a_code_of_another_login(site: Site, wrong: dict[str, str]) -> None:
    site.wrong = wrong
    with pytest.raises(StoreError, match="the login ended with code, iss, state"):
        log_in_at(site)
    assert site.redeemed == {}


def test_reports_a_page_without_a_form(site: Site) -> None:
    site.has_form = False
    with pytest.raises(StoreError, match=r"no form to fill in at \S+/form"):
        log_in_at(site)
