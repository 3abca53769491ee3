"""Fixtures of the authorization service on its own catalog."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from api.authz import create_auth_app
from config import Settings
from storage.catalog import Catalog
from tests.api.authz.builders import Admin, verify
from tests.auth.builders import NOW, Clock
from tests.conftest import keyed

BASE = "https://auth.example"


@pytest.fixture
def home(tmp_path: Path, signing_file: Path) -> Path:
    """A home that has its keys."""
    return keyed(tmp_path, signing_file)


@pytest.fixture
def clock() -> Clock:
    """Tests move it."""
    return Clock(NOW)


@pytest.fixture
def auth_settings(settings: Settings, home: Path) -> Settings:
    """One administrator is named; the groups of a token's are those of the defaults."""
    return replace(
        settings, home=home, auth_external_url=BASE, administrators=("named@example.org",)
    )


@pytest.fixture
def started(auth_settings: Settings, catalog: Catalog) -> Callable[[], FlaskClient]:
    """Starts one more process of the service on the same catalog."""
    return lambda: create_auth_app(auth_settings, catalog, verify=verify).test_client()


@pytest.fixture
def client(started: Callable[[], FlaskClient]) -> FlaskClient:
    """A client of the service."""
    return started()


@pytest.fixture
def admin(client: FlaskClient) -> Admin:
    """Somebody who may do everything."""
    return Admin(client)
