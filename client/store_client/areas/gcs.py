"""An area in a bucket of Google Cloud Storage, written to with a token of the area's own: the extra
`gcs`.

The one module of upload areas that needs that library. A file goes in one stream, whose pieces are
repeated by the library; another run begins it anew.
"""

import importlib
import io
from collections.abc import Iterator, Mapping
from typing import Any

from store_client.areas.bodies import Body
from store_client.areas.journal import Journal
from store_client.areas.reading import Outgoing, read
from store_client.areas.sent import Sending
from store_client.checksums import MB, Checksums, Hashing
from store_client.errors import NotAllowed, Unreachable

PIECE = 32 * MB
"""Bytes of one request of a resumable upload, which are in memory until they are acknowledged."""


def bucket(sending: Sending, said: Mapping[str, Any]) -> "GoogleBucket":
    """The bucket that this token is for."""
    return GoogleBucket(said, open_bucket(said))


def open_bucket(said: Mapping[str, Any], **more: Any) -> Any:
    """The library's bucket, by a token that it cannot renew."""
    storage = importlib.import_module("google.cloud.storage")
    credentials = importlib.import_module("google.oauth2.credentials")
    token = credentials.Credentials(said["access_token"])
    # A project is not needed to write an object, but its absence is an error.
    return storage.Client(project="none", credentials=token, **more).bucket(said["bucket"])


class GoogleBucket:
    """The bucket, as far as the area reaches."""

    def __init__(self, said: Mapping[str, Any], opened: Any) -> None:
        self._said, self._bucket = said, opened

    def url(self, name: str) -> str:
        """`gs://<bucket>/<key>`."""
        return f"gs://{self._said['bucket']}/{self._key(name)}"

    def fill(self, sending: Sending, outgoing: Outgoing, journal: Journal) -> Checksums:
        """Send a file in one stream."""
        errors = importlib.import_module("google.api_core.exceptions")
        hashing = Hashing(outgoing.size)

        def blocks() -> Iterator[bytes]:
            return hashing.over(read(outgoing.path, outgoing.size, stop=sending.stop))

        blob = self._bucket.blob(self._key(outgoing.name), chunk_size=PIECE)
        try:
            with Body(blocks, tell=sending.tell, stop=sending.stop) as body:
                blob.upload_from_file(
                    _Stream(body.blocks()), size=outgoing.size, content_type=outgoing.content_type
                )
        except (errors.Forbidden, errors.Unauthorized) as error:
            raise NotAllowed(f"Google refuses the token of the area: {error}") from error
        except errors.GoogleAPIError as error:
            raise Unreachable(f"Google Cloud Storage does not answer: {error}") from error
        return hashing.result()

    def _key(self, name: str) -> str:
        return f"{self._said['prefix'].rstrip('/')}/{name}"


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
