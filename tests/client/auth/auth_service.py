"""A store with its authorization service on ports of this machine, and a person at a browser."""

import html
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urljoin

import httpx

from api.app import build_verifier, create_app
from api.authz import create_auth_app
from auth import service_accounts
from auth.accounts import AuditContext
from auth.login import users
from auth.login.passwords import PasswordHashing
from auth.service_accounts import RegisteredKey, ServiceAccounts, create_credentials
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.stores import Stores
from tests.conftest import Outbox
from tests.http_server import serving_late

ADA, RIGHT = "ada@example.org", "correct horse battery"
ROBOT = "robot@example.org"

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""To read the authorities of the web takes a while, and nobody is asked over TLS."""
_HIDDEN = re.compile(r'<input[^>]*type="hidden"[^>]*name="(\w+)"[^>]*value="([^"]*)"')
_ACTION = re.compile(r'<form method="post" action="([^"]*)"')
_TITLE = re.compile(r"<h1>(.*?)</h1>", re.S)


@dataclass
class Moving:
    """The machine's clock, which tests set."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@dataclass(frozen=True)
class World:
    """Where everything is; `clock` is the servers'."""

    url: str
    auth_url: str
    settings: Settings
    stores: Stores
    clock: Moving
    robots: Iterator[int] = field(default_factory=count)

    def enable(self, email: str, *, allowed: bool) -> None:
        """An operator lets somebody in again, or no longer."""
        users.set_user_status(self.stores.catalog, email, enabled=allowed)

    def robot(self, path: Path) -> Path:
        """The credentials file of a program that may sign for itself."""
        text, registered = _made_once(next(self.robots))
        with self.stores.catalog.write() as tx:
            service_accounts.add_account_key(
                tx, ROBOT, registered, by=AuditContext("operator", "test", "request-1")
            )
        path.write_text(text)
        path.chmod(0o600)
        return path


@cache
def _made_once(_number: int) -> tuple[str, RegisteredKey]:
    """Keys differ within a test."""
    return create_credentials(ROBOT, audience="store", token_uri="")


@contextmanager
def serving_world(settings: Settings, stores: Stores, job_queue: Outbox) -> Iterator[World]:
    """Both applications, with real tokens and one person who has a password."""
    clock = Moving()
    with ExitStack() as stack:
        auth_url, put_auth = stack.enter_context(serving_late())
        url, put = stack.enter_context(serving_late())
        known = replace(settings, auth_external_url=auth_url)
        accounts = ServiceAccounts(stores.catalog, lifetime_s=known.service_token_s)
        grants = GrantChecker(stores.catalog, clock)
        verify = build_verifier(known, clock, accounts=accounts, grants=grants).verify
        users.add_user(stores.catalog, PasswordHashing(known), ADA, RIGHT, now=clock())
        put_auth(create_auth_app(known, stores.catalog, verify=verify, clock=clock))
        put(create_app(known, stores, job_queue=job_queue, verify=verify))
        yield World(url, auth_url, known, stores, clock)


@dataclass
class Browser:
    """A browser with its cookies, and whoever sits there; `pages` are the titles it showed."""

    world: World
    email: str = ADA
    password: str = RIGHT
    decision: str = "allow"
    pages: list[str] = field(default_factory=list)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=20, verify=_NO_TLS))

    def visit(self, url: str) -> bool:
        """Follow a link, log in, agree, until a page asks for nothing any more."""
        answer = self.http.get(url)
        for _ in range(20):
            if answer.is_redirect:
                answer = self.http.get(urljoin(str(answer.url), answer.headers["Location"]))
            elif action := _ACTION.search(answer.text):
                answer = self.sent(answer, html.unescape(action[1]))
            else:
                title = _TITLE.search(answer.text)
                self.pages.append(html.unescape(title[1]).strip() if title else answer.text)
                return True
        raise AssertionError("this leads nowhere")

    def sent(self, page: httpx.Response, action: str) -> httpx.Response:
        """The page's form, filled in."""
        form = {name: html.unescape(value) for name, value in _HIDDEN.findall(page.text)}
        if 'name="password"' in page.text:
            form |= {"email": self.email, "password": self.password}
        if 'name="user_code"' in page.text:
            code = re.search(r'name="user_code"[^>]*value="([^"]*)"', page.text)
            form |= {"user_code": code[1] if code else form.get("user_code", "")}
        if 'name="decision"' in page.text:
            form |= {"decision": self.decision}
        return self.http.post(urljoin(str(page.url), action), data=form)
