"""Files in a bucket that misbehaves, and what reads them in place without waiting."""

from collections.abc import Callable, Iterator

import pytest

from store_client.client import Client
from store_client.remote.content import RemoteContent
from store_client.remote.files import RemoteBufferedFile, RemoteRawFile
from store_client.transfer.connections import BucketConnections, FailureQuota
from store_client.transfer.streams import FileReader, PresignedUrl, RemoteFile
from tests.client.download.bucket import Bucket, served
from tests.client.download.conftest import Unhurried
from tests.client.download.deposits import Depositor

OpenContent = Callable[..., RemoteContent]
OpenFile = Callable[..., RemoteBufferedFile]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with served() as found:
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


@pytest.fixture
def depositor(client: Client) -> Depositor:
    return Depositor(client)
