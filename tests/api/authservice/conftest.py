"""The authorization service on a catalog of its own; tokens are names, as at the store."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from api.authservice import create_auth_app
from auth.tokens.key_file import SIGNING_FILE, signing_keys
from config.settings import Settings
from storage.catalog import Catalog
from tests.api.authservice.builders import Admin, verify
from tests.auth.builders import NOW, Clock

BASE = "https://auth.example"


@pytest.fixture(scope="session")
def signing_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys made once: that takes longer than most of these tests."""
    home = tmp_path_factory.mktemp("keys")
    signing_keys(home)
    return home / "secrets" / SIGNING_FILE


@pytest.fixture
def home(tmp_path: Path, signing_file: Path) -> Path:
    """A home that has its keys."""
    (tmp_path / "secrets").mkdir(mode=0o700)
    shutil.copy2(signing_file, tmp_path / "secrets")
    return tmp_path


@pytest.fixture
def clock() -> Clock:
    """Tests move it."""
    return Clock(NOW)


@pytest.fixture
def auth_settings(settings: Settings) -> Settings:
    """One administrator is named; the groups of a token's are those of the defaults."""
    return replace(settings, auth_external_url=BASE, administrators=("named@example.org",))


@pytest.fixture
def started(auth_settings: Settings, catalog: Catalog) -> Callable[[], FlaskClient]:
    """Starts one more process of the service on the same catalog."""
    numbers = count(1)

    def start() -> FlaskClient:
        app = create_auth_app(
            auth_settings,
            catalog,
            verify=verify,
            request_ids=lambda: f"request-{next(numbers)}",
        )
        return app.test_client()

    return start


@pytest.fixture
def client(started: Callable[[], FlaskClient]) -> FlaskClient:
    """A client of the service."""
    return started()


@pytest.fixture
def admin(client: FlaskClient) -> Admin:
    """Somebody who may do everything."""
    return Admin(client)
