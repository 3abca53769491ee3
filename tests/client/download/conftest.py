"""A misbehaving bucket, and what fetches from it without waiting."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store_client.client import Client
from store_client.downloads.options import DownloadOptions
from store_client.progress import NO_PROGRESS
from store_client.transfer import cache
from store_client.transfer.connections import BucketConnections, FailureQuota
from store_client.transfer.engine import StopSignal
from store_client.transfer.fetcher import FileFetcher
from store_client.transfer.streams import RemoteFile, StreamSlots
from tests.client.download.bucket import Bucket, served
from tests.client.download.deposits import Depositor

Make = Callable[..., FileFetcher]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with served() as found:
        yield found


class Unhurried(StopSignal):
    """Waits for nothing, and remembers for how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def pause(self, seconds: float) -> None:
        self.check()
        self.waits.append(seconds)


@pytest.fixture
def stop() -> Unhurried:
    return Unhurried()


@pytest.fixture
def fetching(tmp_path: Path, bucket: Bucket, stop: Unhurried) -> Iterator[Make]:
    """Makes what fetches into `.store` of the test's folder."""
    wires: list[BucketConnections] = []

    def url_of(wanted: RemoteFile) -> str:
        return bucket.signed(wanted.name)

    def make(
        *, num_retries: int = 3, large_from: int = 1 << 40, part: int = 1 << 20
    ) -> FileFetcher:
        wires.append(BucketConnections(silence_s=5.0))
        stop.add_waker(wires[-1].close)
        return FileFetcher(
            cache=cache.open_cache(tmp_path / ".store", make=True),
            wire=wires[-1],
            url_of=url_of,
            new_quota=lambda: FailureQuota(num_retries, 0.25, pause=stop.pause),
            tell=NO_PROGRESS,
            stop=stop,
            slots=StreamSlots(4),
            large_from=large_from,
            part=part,
        )

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def depositor(client: Client) -> Depositor:
    return Depositor(client)


@pytest.fixture
def options(tmp_path: Path) -> DownloadOptions:
    """What a person says who works in the folder `here`."""
    (tmp_path / "here").mkdir()
    return DownloadOptions("aws", directory=tmp_path / "here", cache=tmp_path / "here" / ".store")
