"""Fixtures of the OAuth tests: a user at a browser and a movable clock."""

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from api.app import build_verifier
from api.authz import create_auth_app
from auth.oauth.clients import NewOAuthClient, add_client
from auth.tokens.signing_keys import SigningKeyFile
from config import Settings
from storage.catalog import Catalog, accounts
from tests.api.authz.oauth.builders import BASE, Browser
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
    accepted = build_verifier(settings, clock).verify
    return create_auth_app(settings, catalog, verify=accepted, clock=clock)


@pytest.fixture
def keys(settings: Settings) -> SigningKeyFile:
    return SigningKeyFile(settings.home)


@pytest.fixture
def browser(app: Flask, catalog: Catalog, clock: Clock) -> Browser:
    """Nobody is logged in yet."""
    return Browser(app.test_client(use_cookies=False), catalog, clock)


@pytest.fixture
def portal(catalog: Catalog) -> str:
    """The secret of a client that an operator added."""
    new = NewOAuthClient("portal", "Portal", ("https://portal.example/back",), public=False)
    with catalog.write() as tx:
        return add_client(tx, new, 1) or ""


@pytest.fixture
def disable(catalog: Catalog) -> Callable[[str], None]:
    """An operator disables somebody."""

    def act(email: str) -> None:
        name = accounts.AccountKey("user", email)
        with catalog.write() as tx:
            accounts.lock_all(tx)
            if accounts.find(tx, name) is None:
                accounts.insert(tx, name, None)
            accounts.set_status(tx, name, "disabled")

    return act
