from collections.abc import Iterator

import pytest

from store_client.transport import Session
from tests.client.scripted import Script, scripted


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that does as it is told."""
    with scripted() as made:
        yield made


@pytest.fixture
def session(script: Script) -> Iterator[Session]:
    """To that server; nobody's token."""
    with script.session() as made:
        yield made
