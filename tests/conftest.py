"""Fixtures of all tests: an embedded store, and a way to run its jobs."""

import faulthandler
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import IO

import pytest

from auth.tokens.signing_keys import SIGNING_KEYS_FILE, read_signing_keys
from config import Settings
from pipelines import quotas
from pipelines.flow import Step
from storage.catalog import Catalog, jobs
from storage.catalog.sql import execute
from storage.connect import connect
from storage.model import Job
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests import property_depth
from tests.catalogs import ENGINES, Spares
from tests.speedups import (
    arrange,
    one_root_certificate,
    private_keys_parsed_once,
    routes_compiled_once,
    services_read_once,
    settle,
)
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

property_depth.load_profile()

# A shell makes what it starts in the background ignore Ctrl-C, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    arrange(items)


def pytest_collection_finish() -> None:
    settle()


_HANGING_S = 25 * 60.0


@pytest.fixture(scope="session", autouse=True)
def hanging_tests_say_where(pytestconfig: pytest.Config) -> Iterator[None]:
    """Print every thread's stack once a process runs tests for much longer than all of them take.

    pytest's own setting `faulthandler_timeout` starts a thread for each test, and
    `faulthandler.dump_traceback_later` reads the stacks of running threads without the
    interpreter's lock, which crashes a process whose other threads are at work.
    """
    ended = threading.Event()
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        uncaptured = os.dup(2)
    with os.fdopen(uncaptured, "w") as stderr:
        watch = threading.Thread(target=_print_stacks, args=(ended, stderr), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()


def _print_stacks(ended: threading.Event, stderr: IO[str]) -> None:
    """Until the tests have ended; this thread holds the lock while it reads the others' stacks."""
    while not ended.wait(_HANGING_S):
        faulthandler.dump_traceback(file=stderr)


@pytest.fixture(scope="session", autouse=True)
def spared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What all applications and all clients of a cloud have in common."""
    roots = one_root_certificate(tmp_path_factory.mktemp("roots"))
    with routes_compiled_once(), services_read_once(), private_keys_parsed_once(), roots:
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The embedded defaults, in a home of the test's own; nothing is waited for."""
    return Settings(home=tmp_path / "home", secret_key="a secret for tests only", wait_s=0.0)


@pytest.fixture(scope="session")
def spares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spares]:
    """Migrated catalogs, to be lent to one test after another."""
    made = Spares(tmp_path_factory.mktemp("template"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def signing_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys made once: that takes longer than most tests of what is signed with them."""
    home = tmp_path_factory.mktemp("keys")
    read_signing_keys(home)
    return home / "secrets" / SIGNING_KEYS_FILE


def keyed(home: Path, signing_file: Path) -> Path:
    """That home, which has those keys."""
    (home / "secrets").mkdir(mode=0o700, parents=True)
    shutil.copy2(signing_file, home / "secrets")
    return home


@pytest.fixture(params=ENGINES)
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path, spares: Spares) -> Iterator[str]:
    """A migrated catalog of the test's own, on every engine there is."""
    with spares.lend(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """The same, open."""
    opened = Catalog(catalog_url)
    yield opened
    opened.close()


@pytest.fixture
def stores(settings: Settings, catalog_url: str) -> Iterator[Stores]:
    """Real local stores with an empty catalog."""
    opened = connect(replace(settings, catalog_url=catalog_url), notices=MemoryPubSub())
    # Deposits wait for the scheduler's first count, if there are quotas.
    quotas.count_if_due(opened)
    yield opened
    opened.catalog.close()


class Outbox:
    """A sender that keeps what it is given: the rows themselves are in the catalog."""

    def __init__(self) -> None:
        self.sent: list[tuple[Job, str]] = []

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        self.sent += [(row, request_id) for row in rows]

    def ping(self) -> None:
        """Always there."""


@pytest.fixture
def job_queue() -> Outbox:
    """What was sent, for tests that ask."""
    return Outbox()


@pytest.fixture
def drain(stores: Stores, job_queue: Outbox) -> Callable[[], int]:
    """Do every row that is due, and what follows from it, until none is left."""
    return draining(stores, job_queue)


_WAITING = "SELECT DISTINCT step FROM todo WHERE parked_us IS NULL AND due_us <= :now"


def draining(stores: Stores, job_queue: Outbox) -> Callable[[], int]:
    """The same for stores that last longer than a test."""
    working = WorkerContext(stores, job_queue, STEP_FUNCTIONS, 5, Random(0), BATCH_FUNCTIONS)

    def due() -> list[Job]:
        with stores.catalog.write() as tx:
            waiting = set(execute(tx, _WAITING, {}).scalars())
            steps = [step for step in Step if step in waiting]
            return [
                row for step in steps for row, *_ in jobs.take_due(tx, step, limit=100, resend=True)
            ]

    def run() -> int:
        done = 0
        while rows := due():
            done += sum(run_job(working, row) for row in rows)
        return done

    return run
