"""Stores for the race suite: one for all of its orders; PostgreSQL too where one is named."""

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from storage.catalog import Catalog, migrate
from storage.catalog.schema import metadata
from storage.stores import Stores
from tests.builders import build_stores

POSTGRES = os.environ.get("STORE_TEST_POSTGRES", "")


@pytest.fixture(scope="module", params=["sqlite", *(["postgresql"] if POSTGRES else [])])
def race_stores(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stores]:
    root = tmp_path_factory.mktemp("race")
    url = f"sqlite:///{root / 'catalog.sqlite'}" if request.param == "sqlite" else POSTGRES
    catalog = Catalog(url)
    migrate.upgrade(catalog)
    yield build_stores(root, catalog)
    catalog.close()
    if request.param == "postgresql":
        server = create_engine(POSTGRES)
        metadata.drop_all(server)
        with server.begin() as connection:
            connection.execute(text("DROP TABLE alembic_version"))
        server.dispose()
