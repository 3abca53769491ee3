"""Fixtures of the login tests: one user, one client, a movable clock."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from api.authz import create_auth_app
from auth.login import users
from auth.login.passwords import PasswordHashing
from auth.oauth import clients
from auth.oauth.clients import NewOAuthClient
from config import Settings
from storage.catalog import Catalog
from tests.api.authz.login.browser import ADA, BACK, BASE, RIGHT, Browser, browser_of
from tests.api.conftest import verify
from tests.auth.builders import NOW, Clock


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings(
        home=home,
        auth_external_url=BASE,
        secret_key="a secret for tests only",
        password_memory_kib=64,
        password_passes=1,
        password_lanes=1,
        login_rate_per_minute=0,
        token_rate_per_minute=0,
    )


Make = Callable[..., Flask]


@pytest.fixture
def make(settings: Settings, catalog: Catalog, clock: Clock) -> Make:
    """Makes an application of these settings, with some changed."""
    with catalog.write() as tx:
        new = NewOAuthClient("portal", "The portal", (BACK,), public=False)
        clients.add_client(tx, new, int(NOW * 1e6))
    users.add_user(catalog, PasswordHashing(settings), ADA, RIGHT, now=NOW)

    def made(**changed: Any) -> Flask:
        return create_auth_app(replace(settings, **changed), catalog, verify=verify, clock=clock)

    return made


@pytest.fixture
def app(make: Make) -> Flask:
    return make()


@pytest.fixture
def browser(app: Flask) -> Browser:
    return browser_of(app)
