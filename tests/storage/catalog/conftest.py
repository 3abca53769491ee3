"""The catalog suite takes either engine: PostgreSQL too where STORE_TEST_POSTGRES names one."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from storage.catalog import Catalog, migrate

POSTGRES = os.environ.get("STORE_TEST_POSTGRES", "")


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRES else [])])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.sqlite'}"
        return
    name = f"test_{uuid4().hex}"
    server = create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """A migrated catalog."""
    opened = Catalog(catalog_url)
    migrate.upgrade(opened)
    yield opened
    opened.close()
