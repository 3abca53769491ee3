"""A catalog of its own for every test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path, empty_catalog: Path) -> Iterator[Catalog]:
    """A migrated catalog in a file."""
    path = tmp_path / "catalog.sqlite"
    shutil.copy(empty_catalog, path)
    opened = Catalog(f"sqlite:///{path}")
    yield opened
    opened.close()
