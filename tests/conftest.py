"""An embedded store of its own for every test that asks for one, and a way to let its work run."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import hypothesis
import pytest

from config.settings import Settings
from pipelines.flow import Step
from storage.catalog import Catalog, migrate, todo
from storage.connecting import connect
from storage.model import Todo
from storage.notices import MemoryNotices
from storage.stores import Stores
from workers.actors import STEPS
from workers.claims import Working, work

# A busy machine, or what is compiled when first needed, is no fault of the code under test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The embedded defaults, in a home of the test's own; nothing is waited for."""
    return Settings(home=tmp_path / "home", secret_key="a secret for tests only", wait_s=0.0)


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "catalog.sqlite"
    catalog = Catalog(f"sqlite:///{path}")
    migrate.upgrade(catalog)
    catalog.close()
    return path


@pytest.fixture
def catalog(tmp_path: Path, empty_catalog: Path) -> Iterator[Catalog]:
    """A migrated catalog in a file of the test's own."""
    path = tmp_path / "catalog.sqlite"
    shutil.copy(empty_catalog, path)
    opened = Catalog(f"sqlite:///{path}")
    yield opened
    opened.close()


@pytest.fixture
def stores(settings: Settings, empty_catalog: Path) -> Iterator[Stores]:
    """Real local stores with an empty catalog."""
    settings.home.mkdir(parents=True)
    shutil.copy(empty_catalog, settings.home / "catalog.sqlite")
    opened = connect(settings, notices=MemoryNotices())
    yield opened
    opened.catalog.close()


class Outbox:
    """A sender that keeps what it is given: the rows themselves are in the catalog."""

    def __init__(self) -> None:
        self.sent: list[tuple[Todo, str]] = []

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None:
        self.sent += [(row, request_id) for row in rows]

    def ping(self) -> None:
        """Always there."""


@pytest.fixture
def chains() -> Outbox:
    """What was sent, for tests that ask."""
    return Outbox()


@pytest.fixture
def drain(stores: Stores, chains: Outbox) -> Callable[[], int]:
    """Do every row that is due, and what follows from it, until none is left."""
    working = Working(stores, chains, STEPS, 5, Random(0))

    def due() -> list[Todo]:
        with stores.catalog.write() as tx:
            return [row for step in Step for row, _ in todo.due(tx, step, limit=100, resend=True)]

    def run() -> int:
        done = 0
        while rows := due():
            done += sum(work(working, row) for row in rows)
        return done

    return run
