"""A depositor's object in S3, read by its version or entity tag."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from botocore.exceptions import (
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
)

from storage.blobs import s3_objects
from storage.blobs.clients import Reader
from storage.blobs.s3_client import Bucket, Connection
from storage.errors import Forbidden, Invalid, NotFound, StoreError, Unavailable, Unprocessable
from storage.model import CHECKSUMS
from storage.protocols import BlobInfo


class S3Source:
    """A Source in S3."""

    def __init__(self, bucket: str, key: str, reader: Callable[[], Reader[Connection]]) -> None:
        self._name, self._key, self._reader = bucket, key, reader

    @property
    def _bucket(self) -> Bucket:
        reader = self._reader()
        connection = reader.client
        small = (lambda: connection.small) if reader.signed else None
        return Bucket(self._name, lambda: connection.client, own=False, small=small)

    def head(self) -> BlobInfo:
        """See Source; tags are asked for only when metadata does not declare every checksum."""
        with _speaking_of_a_source(), _unreachable_as_unreadable():
            info = s3_objects.look(self._bucket, self._key)
            if all(any(name.endswith(field) for name in info.metadata) for field in CHECKSUMS):
                return info
            return replace(info, metadata={**self._tags(info.pin), **info.metadata})

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source; a stream that breaks is taken up where it broke, which the pin makes safe."""
        with _speaking_of_a_source():
            yield from s3_objects.stream(
                self._bucket, self._key, pin=pin, start=start, length=length
            )

    def _tags(self, pin: str) -> dict[str, str]:
        """The object's tags; none when we may not see them."""
        try:
            found = s3_objects.get_tags(self._bucket, self._key, pin)
        except Unavailable:
            raise
        except StoreError:
            return {}
        return {name.lower(): value for name, value in found.items()}


@contextmanager
def _speaking_of_a_source() -> Iterator[None]:
    """What a depositor named and what may not be read is theirs to mend."""
    try:
        yield
    except (NotFound, Invalid) as error:
        said = f"the source cannot be read: {error.detail}"
        raise Unprocessable(said, code="source_not_found") from error
    except Forbidden as error:
        raise unreadable(error) from error
    except Unavailable as error:
        if isinstance(error.__cause__, _CREDENTIALS):
            raise unreadable(error) from error
        raise


@contextmanager
def _unreachable_as_unreadable() -> Iterator[None]:
    """A server that cannot be reached at all, or a bucket that it does not have, cannot be read.

    Only when a deposit begins: later it is a fault that may pass, like every 5xx.
    """
    try:
        yield
    except Unavailable as error:
        cause = error.__cause__
        if isinstance(cause, EndpointConnectionError | ConnectTimeoutError) or moved(cause):
            raise unreadable(error) from error
        raise


def moved(cause: BaseException | None) -> bool:
    """Whether S3 sends us to another region, which its client did not find."""
    status = getattr(cause, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in (301, 307)


_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


def unreadable(error: StoreError) -> Unprocessable:
    """The answer to the depositor of a source that is closed to the store."""
    said = f"the source cannot be read: {error.detail}"
    return Unprocessable(said, code="source_not_readable")
