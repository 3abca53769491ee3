"""The authorization service with a person at a browser; tests move its clock."""

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from api.authservice import create_auth_app
from auth.openid.clients import NewClient, add
from auth.tokens.key_file import KeyFile
from auth.tokens.verifying import verifier
from config.settings import Settings
from storage.catalog import Catalog, accounts
from tests.api.authservice.openid.builders import BASE, Browser
from tests.auth.builders import Clock


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings(
        home=home,
        auth_external_url=BASE,
        secret_key="a secret for tests only",
        web_redirect_uris=("https://store.example/back",),
        token_rate_per_minute=0,
        login_rate_per_minute=0,
    )


@pytest.fixture
def app(settings: Settings, catalog: Catalog, clock: Clock) -> Flask:
    accepted = verifier(settings, clock).verify
    return create_auth_app(settings, catalog, verify=accepted, clock=clock)


@pytest.fixture
def keys(settings: Settings) -> KeyFile:
    return KeyFile(settings.home)


@pytest.fixture
def browser(app: Flask, catalog: Catalog, clock: Clock) -> Browser:
    """Nobody is logged in yet."""
    return Browser(app.test_client(use_cookies=False), catalog, clock)


@pytest.fixture
def portal(catalog: Catalog) -> str:
    """The secret of a client that an operator added."""
    new = NewClient("portal", "Portal", ("https://portal.example/back",), public=False)
    with catalog.write() as tx:
        return add(tx, new, 1) or ""


@pytest.fixture
def disable(catalog: Catalog) -> Callable[[str], None]:
    """An operator disables somebody."""

    def act(email: str) -> None:
        name = accounts.Name("user", email)
        with catalog.write() as tx:
            accounts.hold(tx)
            if accounts.find(tx, name) is None:
                accounts.add(tx, name, None)
            accounts.set_status(tx, name, "disabled")

    return act
