"""A browser that follows pages, forms and redirects."""

import html
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

BASE = "https://auth.example"
BACK = "https://app.example/back"
ADA = "ada@example.org"
RIGHT = "correct horse battery"

_FIELD = re.compile(r'<input[^>]*type="hidden"[^>]*name="(\w+)"[^>]*value="([^"]*)"')
_LINK = re.compile(r'<a[^>]*href="([^"]*)"')
_ACTION = re.compile(r'<form method="post" action="([^"]*)"')


@dataclass
class Browser:
    """One browser, with its cookies."""

    client: FlaskClient
    headers: dict[str, str] = field(default_factory=dict)
    address: str = "192.0.2.7"

    def get(self, url: str) -> TestResponse:
        return self.client.get(
            url.removeprefix(BASE), base_url=BASE, headers=self.headers, environ_base=self.environ
        )

    def head(self, url: str) -> TestResponse:
        return self.client.head(
            url.removeprefix(BASE), base_url=BASE, headers=self.headers, environ_base=self.environ
        )

    def post(self, url: str, form: dict[str, str]) -> TestResponse:
        return self.client.post(
            url.removeprefix(BASE),
            data=form,
            base_url=BASE,
            headers=self.headers,
            environ_base=self.environ,
        )

    @property
    def environ(self) -> dict[str, str]:
        return {"REMOTE_ADDR": self.address}

    def log_in(
        self, email: str = ADA, password: str = RIGHT, *, back: str = BACK, state: str = "s"
    ) -> TestResponse:
        """From an application to the form, and the form sent."""
        page = self.form(back=back, state=state)
        return self.send(page, email=email, password=password)

    def form(self, *, back: str = BACK, state: str = "s") -> TestResponse:
        """The local provider's form, reached as a person would."""
        answer = self.get(f"/login?redirect_uri={back}&state={state}")
        assert answer.status_code == 302, answer.text
        page = self.get(answer.headers["Location"])
        if "<form" in page.text:
            return page
        return self.get(next(link for link in links(page) if "/login/local" in link))

    def send(self, page: TestResponse, **typed: str) -> TestResponse:
        """The page's form, filled in."""
        return self.post(action(page), {**fields(page), **typed})

    def cookie(self, name: str) -> str | None:
        found = self.client.get_cookie(f"__Host-{name}", domain="auth.example")
        return found.value if found else None

    def set_cookie(self, name: str, value: str) -> None:
        self.client.set_cookie(f"__Host-{name}", value, domain="auth.example", secure=True)


def browser_of(app: Flask) -> Browser:
    """A browser without any cookie."""
    return Browser(app.test_client())


def fields(page: TestResponse) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _FIELD.findall(page.text)}


def links(page: TestResponse) -> list[str]:
    return [html.unescape(link) for link in _LINK.findall(page.text)]


def action(page: TestResponse) -> str:
    return html.unescape(_ACTION.findall(page.text)[0])


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
