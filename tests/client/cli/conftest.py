"""People at the command line of a store."""

from pathlib import Path

import pytest

from store_client.configuration import URL
from tests.client.cli.people import Typist, nowhere, showing
from tests.client.conftest import Served


@pytest.fixture
def admin(store: Served, tmp_path: Path) -> Typist:
    """Somebody who may do everything."""
    return Typist(tmp_path / "admin", showing("admin"), {URL: store.url})


@pytest.fixture
def offline(tmp_path: Path) -> Typist:
    """Somebody whose store cannot be reached, and never could."""
    return Typist(tmp_path / "offline", nowhere, {URL: "http://127.0.0.1:9"})
