"""Fixtures of the permission tests: both applications on one store."""

from collections.abc import Iterator

import pytest

from config import Settings
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from tests.api.permissions.deployment import AUTH, World, furnished, peopled
from tests.catalogs import ENGINES, Spares
from tests.conftest import Outbox


@pytest.fixture(scope="package", params=ENGINES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spares: Spares
) -> Iterator[World]:
    """One store for all tests here: none of them changes what another one asks for."""
    folder = tmp_path_factory.mktemp("world")
    with spares.lend(request.param, folder) as url:
        settings = Settings(
            home=folder / "home",
            catalog_url=url,
            auth_external_url=AUTH,
            secret_key="a secret for tests only",
            wait_s=0.0,
            checkout_destinations=("lab-*",),
            login_rate_per_minute=0,
            token_rate_per_minute=0,
        )
        stores = connect(settings, notices=MemoryPubSub())
        yield furnished(peopled(World(settings, stores, Outbox())))
        stores.catalog.close()
