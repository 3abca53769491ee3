"""What is measured: an application in this process, or a store with all its processes."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flask import Flask

from api.app import create_app
from auth.secret_files import load_secret
from config import Settings, load_settings, process
from ops import local_store
from storage.catalog import migrate
from storage.connect import connect
from storage.model import Job, Principal
from storage.pubsub import MemoryPubSub
from storage.stores import Stores

AUTHORIZED = {"Authorization": "Bearer bench"}


class Unsent:
    """A broker without workers: the rows stay."""

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Nothing."""

    def ping(self) -> None:
        """Always there."""


@contextmanager
def stores() -> Iterator[tuple[Settings, Stores]]:
    """Embedded stores of this process, empty."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(home=Path(folder), secret_key="a secret for benches only", wait_s=0)
        opened = connect(settings, notices=MemoryPubSub())
        migrate.upgrade(opened.catalog)
        yield settings, opened
        opened.catalog.close()


def application(settings: Settings, opened: Stores) -> Flask:
    """The API on these stores; who asks may do everything."""
    everything = frozenset({*settings.ingest_groups, *settings.admin_groups})
    who = Principal("bench@example.org", everything)
    app = create_app(settings, opened, job_queue=Unsent(), verify=lambda _token: who)
    # As the server does once the application is there.
    process.relax_gc()
    return app


Running = tuple[local_store.LocalStore, Settings, Stores]


@dataclass
class _Shared:
    """The embedded store that several benches use in turn."""

    stack: ExitStack
    store: Running | None = None


_shared: list[_Shared] = []


@contextmanager
def shared() -> Iterator[None]:
    """Let all embedded stores in this block be the same one, which starts when it is needed."""
    with ExitStack() as stack:
        _shared.append(_Shared(stack))
        stack.callback(_shared.clear)
        yield


@contextmanager
def running(environ: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A store with all its processes, and its stores opened by this process too."""
    if _shared and not environ:
        yield _shared_store(_shared[0])
    else:
        with _started(environ) as found:
            yield found


def _shared_store(one: _Shared) -> Running:
    if one.store is None:
        one.store = one.stack.enter_context(_started({}))
    return one.store


@contextmanager
def _started(environ: Mapping[str, str] | None) -> Iterator[Running]:
    environ = {"STORE_LOG_LEVEL": "WARNING", **(environ or {})}
    with local_store.temporary_home() as home, local_store.running_store(home, environ) as one:
        own = {"STORE_HOME": str(home), "STORE_SECRET_KEY": load_secret(home, given="").decode()}
        settings = load_settings({**environ, **own})
        opened = connect(settings, notices=MemoryPubSub())
        yield one, settings, opened
        opened.catalog.close()
