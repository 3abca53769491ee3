"""An area in a bucket of Google Cloud Storage, written to with a token of the area's own: the extra
`gcs`.

The one module of upload areas that needs that library. A file goes in one stream, whose pieces are
repeated by the library; another run begins it anew.
"""

import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from store_client.areas import asking
from store_client.areas.bodies import Body
from store_client.areas.journal import Journal
from store_client.areas.reading import Outgoing, read
from store_client.areas.sent import Sending
from store_client.checksums import MB, Checksums, Hashing
from store_client.errors import NotAllowed, Unreachable
from store_client.versions import parse_version

Renew = Callable[[], Mapping[str, Any]]
"""Gets other credentials for the same area."""

PIECE = 32 * MB
"""Bytes of one request of a resumable upload, which are in memory until they are acknowledged."""


def bucket(sending: Sending, said: Mapping[str, Any]) -> "GoogleBucket":
    """The bucket that this token is for."""

    def renew() -> Mapping[str, Any]:
        return asking.credentials(sending.client, sending.area)

    return GoogleBucket(said, open_bucket(said, renew))


def open_bucket(said: Mapping[str, Any], renew: Renew, **more: Any) -> Any:
    """The library's bucket, by a token that the store renews."""

    def again(request: object, scopes: object) -> tuple[str, datetime]:
        given = renew()
        return given["access_token"], _naive(given["expires"])

    token = importlib.import_module("google.oauth2.credentials").Credentials(
        said["access_token"], expiry=_naive(said["expires"]), refresh_handler=again
    )
    storage = importlib.import_module("google.cloud.storage")
    # No project is needed to write an object; the library only wants one to be named.
    return storage.Client(project="none", credentials=token, **more).bucket(said["bucket"])


def _naive(version: str) -> datetime:
    """As the library wants its moments: in UTC, and without saying so."""
    return parse_version(version).replace(tzinfo=None)


class GoogleBucket:
    """The bucket, as far as the area reaches."""

    def __init__(self, said: Mapping[str, Any], opened: Any) -> None:
        self._said, self._bucket = said, opened

    def url(self, name: str) -> str:
        """`gs://<bucket>/<key>`."""
        return f"gs://{self._said['bucket']}/{self._key(name)}"

    def fill(self, sending: Sending, outgoing: Outgoing, journal: Journal) -> Checksums:
        """Send a file in one stream."""
        hashing = Hashing(outgoing.size)

        def blocks() -> Iterator[bytes]:
            return hashing.over(read(outgoing.path, outgoing.size, stop=sending.stop))

        blob = self._bucket.blob(self._key(outgoing.name), chunk_size=PIECE)
        blob.content_type = outgoing.content_type
        with _speaking(), Body(blocks, tell=sending.tell, stop=sending.stop) as body:
            going = body.blocks()
            blob.upload_from_file(_Stream(going), size=outgoing.size)
            # Nothing is left, and hashing ends when the end is seen.
            for _ in going:
                raise AssertionError("more was read than announced")
        return hashing.result()

    def _key(self, name: str) -> str:
        return f"{self._said['prefix'].rstrip('/')}/{name}"


@contextmanager
def _speaking() -> Iterator[None]:
    """What the library raises, as ours."""
    calls = importlib.import_module("google.api_core.exceptions")
    auth = importlib.import_module("google.auth.exceptions")
    network = importlib.import_module("requests.exceptions")
    try:
        yield
    except (calls.Forbidden, calls.Unauthorized, auth.RefreshError) as error:
        raise NotAllowed(f"Google refuses the token of the area: {error}") from error
    except (calls.GoogleAPIError, auth.GoogleAuthError, network.RequestException) as error:
        raise Unreachable(f"Google Cloud Storage does not answer: {error}") from error


class _Stream(io.RawIOBase):
    """Blocks as a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks = blocks
        self._held = b""
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        found = [self._held]
        held = len(self._held)
        while size < 0 or held < size:
            block = next(self._blocks, None)
            if block is None:
                break
            found.append(block)
            held += len(block)
        whole = b"".join(found)
        cut = len(whole) if size < 0 else size
        self._held, given = whole[cut:], whole[:cut]
        self._at += len(given)
        return given

    def tell(self) -> int:
        return self._at
