"""A depositor's object in Google Cloud Storage, read by its generation."""

from collections.abc import Callable, Iterator

from google.auth.exceptions import GoogleAuthError, TransportError
from requests import ConnectionError as RequestsConnectionError
from requests import ConnectTimeout
from urllib3.exceptions import NewConnectionError

from storage.blobs import gcs_objects
from storage.blobs.gcs_client import Bucket, GcsClient
from storage.errors import Forbidden, Invalid, NotFound, StoreError, Unavailable, Unprocessable
from storage.protocols import BlobInfo


class GcsSource:
    """A depositor's object; see Source. The credentials are ambient, or there are none."""

    def __init__(self, bucket: str, key: str, client: Callable[[], GcsClient]) -> None:
        self._bucket, self._key = Bucket(bucket, client, own=False), key

    def head(self) -> BlobInfo:
        """See Source."""
        try:
            return gcs_objects.head(self._bucket, self._key)
        except (NotFound, Forbidden, Invalid, Unavailable) as error:
            raise _as_told(error, deposit=True) from error

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source."""
        try:
            yield from gcs_objects.read(
                self._bucket, self._key, pin=pin, start=start, length=length
            )
        except (NotFound, Forbidden, Invalid, Unavailable) as error:
            raise _as_told(error) from error


def _as_told(error: StoreError, *, deposit: bool = False) -> StoreError:
    """The answer to the depositor: 422 for what is absent or closed, the same for what may pass.

    A server that cannot be reached at all is closed only when a deposit begins.
    """
    said = f"the source cannot be read: {error.detail}"
    if isinstance(error, NotFound | Invalid):
        return Unprocessable(said, code="source_not_found")
    if isinstance(error, Forbidden) or _is_closed(error.__cause__, deposit=deposit):
        return Unprocessable(said, code="source_not_readable")
    return error


def _is_closed(cause: BaseException | None, *, deposit: bool) -> bool:
    if isinstance(cause, GoogleAuthError):
        return not isinstance(cause, TransportError) and not cause.retryable
    if isinstance(cause, RequestsConnectionError) and cause.args:
        refused = isinstance(getattr(cause.args[0], "reason", None), NewConnectionError)
        return deposit and (refused or isinstance(cause, ConnectTimeout))
    return False
