"""The catalog suite takes every engine; some tests want a database that nobody migrated yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogs import ENGINES, SERVERS, fresh


@pytest.fixture(params=ENGINES)
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.sqlite'}"
        return
    with fresh(SERVERS[request.param]) as url:
        yield url
