"""A world of the test's own, and the client's folders in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import Settings
from storage.stores import Stores
from store_client.auth.oauth import AuthService, discover_service
from store_client.configuration import Configuration
from store_client.http.session import HttpSession
from tests.client.auth.auth_service import Browser, World, serving_world
from tests.conftest import Outbox, keyed


@pytest.fixture
def settings(tmp_path: Path, signing_file: Path) -> Settings:
    """Cheap passwords, and nobody is too quick."""
    return Settings(
        home=keyed(tmp_path / "store", signing_file),
        secret_key="a secret for tests only",
        wait_s=0.0,
        password_memory_kib=64,
        password_passes=1,
        password_lanes=1,
        login_rate_per_minute=0,
        token_rate_per_minute=0,
        device_poll_s=1,
    )


@pytest.fixture
def world(settings: Settings, stores: Stores, job_queue: Outbox) -> Iterator[World]:
    with serving_world(settings, stores, job_queue) as found:
        yield found


@pytest.fixture
def config(world: World, tmp_path: Path) -> Configuration:
    """A user's folders, which nobody else has, and that store."""
    home = tmp_path / "user"
    return Configuration(home, home / "cache", world.url)


@pytest.fixture
def session(config: Configuration) -> Iterator[HttpSession]:
    """One that shows no token, and does not wait."""
    with HttpSession(config.url, sleep=lambda _: None) as made:
        yield made


@pytest.fixture
def service(session: HttpSession, config: Configuration) -> AuthService:
    return discover_service(session, config)


@pytest.fixture
def browser(world: World) -> Iterator[Browser]:
    made = Browser(world)
    with made.http:
        yield made
