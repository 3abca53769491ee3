"""A depositor's object in Google Cloud Storage, read by its generation."""

from collections.abc import Callable, Iterator

from storage.blobs import gcs_reading
from storage.blobs.gcs_asking import Bucket
from storage.blobs.gcs_client import Connection
from storage.errors import Forbidden, Invalid, NotFound, StoreError, Unprocessable
from storage.protocols import BlobInfo


class GcsSource:
    """A Source in GCS."""

    def __init__(self, bucket: str, key: str, connected: Callable[[], Connection]) -> None:
        self._bucket, self._key = Bucket(bucket, connected, own=False), key

    def head(self) -> BlobInfo:
        """See Source."""
        try:
            return gcs_reading.head(self._bucket, self._key)
        except (NotFound, Forbidden, Invalid) as error:
            raise _unreadable(error) from error

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source."""
        try:
            yield from gcs_reading.stream(
                self._bucket, self._key, pin=pin, start=start, length=length
            )
        except (NotFound, Forbidden, Invalid) as error:
            raise _unreadable(error) from error


def _unreadable(error: StoreError) -> Unprocessable:
    """It is the depositor's to mend."""
    return Unprocessable(f"the source cannot be read: {error.detail}", code="source_not_found")
