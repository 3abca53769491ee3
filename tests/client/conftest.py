"""A whole embedded store, served over real connections, whose work is done while a test runs.

Tokens are names of `tests/api/conftest.py`: `admin`, `ingest`, `other`, `reader`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from api.app import create_app
from api.authz import create_auth_app
from config import Settings
from storage.model import Principal
from storage.stores import Stores
from store_client import Client
from store_client.configuration import Configuration
from tests.api.conftest import verify
from tests.conftest import Outbox, keyed
from tests.http_server import serving_late

ADMIN_TOKEN = "admin"


@dataclass(frozen=True)
class Served:
    """Where a store is, and what it is made of."""

    url: str
    auth_url: str
    settings: Settings
    stores: Stores
    drain: Callable[[], int]


@contextmanager
def served(
    settings: Settings,
    stores: Stores,
    job_queue: Outbox,
    drain: Callable[[], int],
    *,
    verify: Callable[[str], Principal] = verify,
) -> Iterator[Served]:
    """Both applications on ports of their own, and a thread that does what is to be done."""
    with ExitStack() as stack:
        auth_url, put_auth = stack.enter_context(serving_late())
        url, put = stack.enter_context(serving_late())
        known = replace(settings, wait_s=10.0, auth_external_url=auth_url)
        put_auth(create_auth_app(known, stores.catalog, verify=verify))
        put(create_app(known, stores, job_queue=job_queue, verify=verify))
        stack.enter_context(working(drain, job_queue))
        yield Served(url, auth_url, known, stores, drain)


@contextmanager
def working(drain: Callable[[], int], job_queue: Outbox) -> Iterator[None]:
    """Rows are worked off soon after they are made, for as long as the block."""
    over = threading.Event()

    def work() -> None:
        seen, looked = 0, 0.0
        while not over.wait(0.01):
            # To look takes the catalog from those who write, so it is done when there is news, and
            # now and then for what is tried again.
            if len(job_queue.sent) != seen or time.monotonic() - looked > 0.5:
                seen, looked = len(job_queue.sent), time.monotonic()
                drain()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def settings(settings: Settings, signing_file: Path) -> Settings:
    """The home has its keys."""
    keyed(settings.home, signing_file)
    return settings


@pytest.fixture
def store(
    settings: Settings, stores: Stores, job_queue: Outbox, drain: Callable[[], int]
) -> Iterator[Served]:
    """A store of the test's own."""
    with served(settings, stores, job_queue, drain) as found:
        yield found


@pytest.fixture
def token() -> str:
    """An administrator's."""
    return ADMIN_TOKEN


@pytest.fixture
def config(store: Served, tmp_path: Path) -> Configuration:
    """A user's folders, which nobody else has, and that store."""
    home = tmp_path / "user"
    return Configuration(home, home / "cache", store.url)


@pytest.fixture
def client(config: Configuration, token: str) -> Iterator[Client]:
    """A client of that store, as an administrator."""
    with Client(config=config, token=token) as made:
        yield made
