"""Fixtures of the web pages on local stores: visitors who are logged in, or not."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api.authz.app import build_auth_services
from config import Settings
from storage.errors import Unavailable
from storage.stores import Stores
from tests.api.builders import Depositor
from tests.api.conftest import verify
from tests.conftest import Outbox, keyed
from web.app import create_site_app
from web.login import SESSION_COOKIE, store_session
from web.pages import SITE_KEY, Site, WebSession

BROWSER = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


class Visitor:
    """A browser, logged in as one of PEOPLE or not at all."""

    def __init__(self, app: Flask, person: str = "") -> None:
        self.app, self.person = app, person
        self.client: FlaskClient = app.test_client()
        if person:
            self._log_in(person)

    @property
    def site(self) -> Site:
        """The services of the pages."""
        site: Site = self.app.extensions[SITE_KEY]
        return site

    @property
    def session(self) -> WebSession:
        """The session that the cookie holds."""
        in_an_hour = time.time() + 3600
        return WebSession(f"session of {self.person}", self.person, "r", "", in_an_hour, in_an_hour)

    def _log_in(self, person: str) -> None:
        with self.app.test_request_context():
            response = store_session(self.site, Response(), self.session)
        value = response.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]
        self.client.set_cookie(SESSION_COOKIE, value)

    def get(self, path: str, **headers: str) -> TestResponse:
        """Open a page."""
        return self.client.get(path, headers={**BROWSER, **headers})

    def post(self, path: str, *, csrf: str | None = None, **form: Any) -> TestResponse:
        """Send a form with this session's CSRF token, or with another one."""
        token = csrf
        if token is None:
            token = self.site.csrf_token(self.session) if self.person else ""
        return self.client.post(path, data={"csrf": token, **form}, headers=BROWSER)


Visit = Callable[..., Visitor]


@pytest.fixture
def keyed_settings(settings: Settings, signing_file: Path) -> Settings:
    """Settings of a home that has signing keys."""
    keyed(settings.home, signing_file)
    return settings


@pytest.fixture
def app(keyed_settings: Settings, stores: Stores, job_queue: Outbox) -> Flask:
    """The storage API with the web pages."""

    def refuse(_path: str, _form: Mapping[str, str]) -> Mapping[str, Any]:
        raise Unavailable("no authorization service in this test")

    auth = build_auth_services(keyed_settings, stores.catalog, verify, None, time.time)
    return create_site_app(
        keyed_settings, stores, job_queue=job_queue, verify=verify, auth=auth, post_form=refuse
    )


@pytest.fixture
def visit(app: Flask) -> Visit:
    """Make a visitor: `visit()` is anonymous, `visit("admin")` is logged in."""
    return lambda person="": Visitor(app, person)


@pytest.fixture
def depositor(app: Flask, drain: Callable[[], int]) -> Depositor:
    """A caller of the API who may ingest, to fill the store with."""
    return Depositor(app.test_client(), drain)


def text_of(response: TestResponse) -> str:
    """Return a page's text without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.text)).strip()
