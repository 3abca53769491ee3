"""Fixtures of the race tests: stores on every catalog engine."""

from collections.abc import Iterator

import pytest

from storage.catalog import Catalog
from storage.stores import Stores
from tests.builders import build_stores
from tests.catalogs import ENGINES, Spares


@pytest.fixture(scope="module", params=ENGINES)
def race_stores(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spares: Spares
) -> Iterator[Stores]:
    root = tmp_path_factory.mktemp("race")
    with spares.lend(request.param, root) as url:
        catalog = Catalog(url)
        yield build_stores(root, catalog)
        catalog.close()
