from collections.abc import Iterator

import pytest

from store_client.http import HttpSession
from tests.client.scripted_server import Script, scripted


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that does as it is told."""
    with scripted() as made:
        yield made


@pytest.fixture
def session(script: Script) -> Iterator[HttpSession]:
    """To that server; nobody's token."""
    with script.session() as made:
        yield made
