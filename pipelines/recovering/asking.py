"""Asking a bucket while catalog and buckets are held to each other: one that is away is named."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.keeping import placing
from storage.errors import Unavailable
from storage.model import Replica
from storage.protocols import BlobInfo
from storage.stores import Stores


@contextmanager
def bucket(replica: Replica) -> Iterator[None]:
    """Whose bucket it was that did not answer is said: with it away nothing is known of what it
    holds, so that nothing may be concluded."""
    try:
        yield
    except Unavailable as error:
        said = f"Bucket {replica} does not answer: {error.detail}"
        raise Unavailable(said, retry_after_s=error.retry_after_s) from error


def listed(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """What lies under a prefix."""
    with bucket(replica):
        yield from stores.replicas[replica].list(prefix)


def whole(stores: Stores, replica: Replica, key: str) -> bytes:
    """All bytes of a record."""
    with bucket(replica):
        return placing.whole(stores.replicas[replica], key)


def lacking(stores: Stores, key: str) -> list[Replica]:
    """Replicas whose bucket has no such record: their subscribers were never told of it either."""
    return [name for name in stores.replicas if not _there(stores, name, key)]


def _there(stores: Stores, replica: Replica, key: str) -> bool:
    with bucket(replica):
        return placing.there(stores.replicas[replica], key)
