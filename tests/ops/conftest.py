"""Fixtures of the operator commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.catalogs import Spares


@pytest.fixture
def put_catalog(spares: Spares) -> Callable[[Path], None]:
    """Copies a migrated, empty catalog into a home, where `migrate` then has little to do."""

    def put(home: Path) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with spares.lend("sqlite", home):
            pass

    return put
