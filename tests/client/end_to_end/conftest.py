"""A whole store that runs, and people with the installed command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.local_store import LocalStore, running_store
from tests.client.end_to_end.people import Person, a_person


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    """As `make run` starts it."""
    with running_store(tmp_path_factory.mktemp("store"), {}) as found:
        yield found


@pytest.fixture
def wrangler(stage: LocalStore, tmp_path: Path) -> Person:
    """A depositor who has logged in."""
    person = a_person(tmp_path / "wrangler", stage.api)
    done = person.types("login", "--access-token", "-", given=stage.token)
    assert done.returncode == 0, done.stderr
    return person


@pytest.fixture
def scientist(stage: LocalStore, tmp_path: Path) -> Person:
    """A reader without any token."""
    return a_person(tmp_path / "scientist", stage.api)
