"""A store with some bundles, for sessions at its command line."""

from collections.abc import Iterator

import pytest

from tests.client.terminal.desk import Desk, running_desk


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """As `make run` starts it."""
    with running_desk(tmp_path_factory.mktemp("desk")) as found:
        yield found
