"""Fixtures of the catalog tests: every engine, migrated or empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.catalog import Catalog
from tests.catalogs import ENGINES, SERVERS, Spares, fresh


@pytest.fixture(params=ENGINES)
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.sqlite'}"
        return
    with fresh(SERVERS[request.param]) as url:
        yield url


@pytest.fixture(params=[name for name in ENGINES if name != "sqlite"])
def server_url(request: pytest.FixtureRequest, tmp_path: Path, spares: Spares) -> Iterator[str]:
    """A migrated catalog on a server."""
    with spares.lend(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def server(server_url: str) -> Iterator[Catalog]:
    """The same, open: for what only a server does."""
    opened = Catalog(server_url)
    yield opened
    opened.close()


@pytest.fixture(params=[name for name in ENGINES if name != "sqlite"])
def server_blank_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without any table on a server."""
    with fresh(SERVERS[request.param]) as url:
        yield url
