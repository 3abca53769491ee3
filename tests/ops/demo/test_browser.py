"""The browser without scripts, before pages of a real server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from ops.demo.browser import Browser, UnexpectedPage

FORM = """<style>p {color: red}</style><p>Who?</p><form method="post" action="in?x=1&amp;y=2">
<input type="hidden" name="csrf" value="a&quot;b"><input name="email"><button>Go</button>
<button name="decision" value="allow">Allow</button></form>"""


class Pages(BaseHTTPRequestHandler):
    """`/` sets a cookie and leads to the form; what is sent is shown, with the cookie."""

    def do_GET(self) -> None:
        if self.path == "/":
            self.answer(302, "", Location="/form", **{"Set-Cookie": "seen=yes; Path=/; HttpOnly"})
        else:
            self.answer(200, FORM)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = {name: values[0] for name, values in parse_qs(body).items()}
        headers = ("Cookie", "Origin", "Sec-Fetch-Site")
        self.answer(403, repr([self.path, sent, *(self.headers[name] for name in headers)]))

    def answer(self, status: int, text: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


def test_a_form_is_sent_as_a_browser_sends_it(site: str, browser: Browser) -> None:
    page = browser.open(f"{site}/")
    assert (page.url, page.status) == (f"{site}/form", 200)
    answer = browser.send(page, email="ada@example.org")
    sent = {"csrf": 'a"b', "email": "ada@example.org"}
    assert answer.status == 403
    assert answer.text == repr(["/in?x=1&y=2", sent, "seen=yes", site, "same-origin"])
    pressed = browser.send(page, decision="allow")
    assert "'decision': 'allow'" in pressed.text


def test_a_page_without_such_a_form_is_told(site: str, browser: Browser) -> None:
    with pytest.raises(UnexpectedPage, match=r"no form with password at \S+/form: Who\? Go Allow$"):
        browser.send(browser.open(f"{site}/form"), password="x")
