"""Files in a bucket that misbehaves, and what reads them in place without waiting."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from config import Settings
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.remote.content import RemoteBufferedFile, RemoteContent, RemoteRawFile
from store_client.transfer.connections import BucketConnections, FailureQuota
from store_client.transfer.streams import FileReader, PresignedUrl, RemoteFile
from tests.catalogs import Spares
from tests.client.conftest import ADMIN_TOKEN, Served, served
from tests.client.download import bucket as buckets
from tests.client.download.bucket import Bucket
from tests.client.download.conftest import Unhurried
from tests.client.download.deposits import Depositor
from tests.conftest import Outbox, draining, keyed

Deposit = Callable[[dict[str, bytes]], str]
OpenContent = Callable[..., RemoteContent]
OpenFile = Callable[..., RemoteBufferedFile]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with buckets.served() as found:
        yield found


@pytest.fixture
def stop() -> Unhurried:
    return Unhurried()


@pytest.fixture
def open_content(bucket: Bucket, stop: Unhurried) -> Iterator[OpenContent]:
    """Opens the content of a file of the bucket."""
    wire = BucketConnections(silence_s=5.0)

    def open_it(wanted: RemoteFile, *, num_retries: int = 3) -> RemoteContent:
        source = PresignedUrl(wanted, lambda one: bucket.signed(one.name))
        return RemoteContent(
            FileReader(wire, source, stop, wanted),
            lambda: FailureQuota(num_retries, 0.25, pause=stop.pause),
        )

    yield open_it
    wire.close()


@pytest.fixture
def open_file(bucket: Bucket, open_content: OpenContent) -> OpenFile:
    """Opens a file of these bytes in the bucket."""

    def open_it(data: bytes, **said: int) -> RemoteBufferedFile:
        content = open_content(bucket.wanted("a", data), **said)
        return RemoteBufferedFile(RemoteRawFile(content, lambda: None))

    return open_it


@pytest.fixture(scope="package")
def store(
    tmp_path_factory: pytest.TempPathFactory, spares: Spares, signing_file: Path
) -> Iterator[Served]:
    """A store that these tests share; each deposits what it needs."""
    folder = tmp_path_factory.mktemp("store")
    settings = Settings(home=folder / "home", secret_key="a secret for tests only", wait_s=0.0)
    keyed(settings.home, signing_file)
    with spares.lend("sqlite", folder) as url:
        stores = connect(replace(settings, catalog_url=url), notices=MemoryPubSub())
        job_queue = Outbox()
        with (
            closing(stores.catalog),
            served(settings, stores, job_queue, draining(stores, job_queue)) as found,
        ):
            yield found


@pytest.fixture(scope="package")
def depositor(store: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Depositor]:
    home = tmp_path_factory.mktemp("depositor")
    with Client(config=Configuration(home, home / "cache", store.url), token=ADMIN_TOKEN) as client:
        yield Depositor(client)


@pytest.fixture(scope="package")
def deposit(depositor: Depositor) -> Deposit:
    """Deposits bundles, each under a uuid of its own."""
    numbers = itertools.count(1)
    return lambda contents: depositor.bundle(next(numbers), contents)
