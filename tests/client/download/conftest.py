"""A misbehaving bucket, and what fetches from it without waiting."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store_client.client import Client
from store_client.download import cache
from store_client.download.entries import Wanted
from store_client.download.fetching import Fetching
from store_client.download.options import Options
from store_client.download.slots import Slots
from store_client.download.stopping import Stop
from store_client.download.wire import Wire
from tests.client.download.bucket import Bucket, served
from tests.client.download.depositing import Depositor

Make = Callable[..., Fetching]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with served() as found:
        yield found


class Unhurried(Stop):
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
    wires: list[Wire] = []

    def url_of(wanted: Wanted) -> str:
        return bucket.signed(wanted.name)

    def make(*, num_retries: int = 3, large_from: int = 1 << 40, part: int = 1 << 20) -> Fetching:
        wires.append(Wire(proxies={}, silence_s=5.0))
        stop.wakes(wires[-1].close)
        return Fetching(
            cache=cache.opened(tmp_path / ".store", make=True),
            wire=wires[-1],
            url_of=url_of,
            options=Options("aws", num_retries=num_retries),
            stop=stop,
            slots=Slots(4),
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
def options(tmp_path: Path) -> Options:
    """What a person says who works in the folder `here`."""
    (tmp_path / "here").mkdir()
    return Options("aws", directory=tmp_path / "here", cache=tmp_path / "here" / ".store")
