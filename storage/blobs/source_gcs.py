"""A depositor's object in Google Cloud Storage, read by its generation."""

from collections.abc import Callable, Iterator
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from requests import RequestException

from storage.blobs.clients import Limits
from storage.errors import (
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
    Unprocessable,
)
from storage.protocols import BLOCK, BlobInfo

CHUNK = 8 * BLOCK
"""Bytes of one request: the client answers and retries whole requests."""

_FAILURES = (exceptions.GoogleAPIError, GoogleAuthError, RequestException, ValueError)


class GcsSource:
    """A Source in GCS."""

    def __init__(self, bucket: str, key: str, client: Callable[[], Any]) -> None:
        self._bucket, self._key, self._client = bucket, key, client

    def head(self) -> BlobInfo:
        """See Source."""
        try:
            found = self._client().bucket(self._bucket).get_blob(self._key, timeout=_TIMEOUT)
        except _FAILURES as error:
            raise _ours(error) from error
        if found is None:
            raise Unprocessable("the source does not exist", code="source_not_found")
        return BlobInfo(
            key=self._key,
            size=found.size,
            pin=str(found.generation),
            content_type=found.content_type,
            metadata={name.lower(): value for name, value in (found.metadata or {}).items()},
            etag=found.etag,
        )

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source."""
        at, end = start, None if length is None else start + length
        while end is None or at < end:
            count = CHUNK if end is None else min(CHUNK, end - at)
            try:
                chunk = self._range(pin, at, count)
            except RangeNotSatisfiable:
                if at == start and start:
                    raise
                return
            yield from (chunk[n : n + BLOCK] for n in range(0, len(chunk), BLOCK))
            at += len(chunk)
            if len(chunk) < count:
                return

    def _range(self, pin: str, start: int, count: int) -> bytes:
        """One request for the bytes as they are stored, never unpacked on the way."""
        generation = int(pin)
        try:
            blob = self._client().bucket(self._bucket).blob(self._key, generation=generation)
            data: bytes = blob.download_as_bytes(
                start=start,
                end=start + count - 1,
                raw_download=True,
                if_generation_match=generation,
                timeout=_TIMEOUT,
                checksum=None,
            )
        except exceptions.RequestRangeNotSatisfiable as error:
            raise RangeNotSatisfiable("the range lies outside of the source") from error
        except (exceptions.NotFound, exceptions.PreconditionFailed) as error:
            raise SourceChanged("the source is no longer what it was") from error
        except _FAILURES as error:
            raise _ours(error) from error
        return data


_TIMEOUT = (Limits().connect_s, Limits().read_s)


def _ours(error: Exception) -> StoreError:
    """A depositor's mistake, or something that may pass."""
    if isinstance(error, exceptions.ClientError) and not isinstance(
        error, exceptions.TooManyRequests
    ):
        return Unprocessable(
            f"the source cannot be read: {type(error).__name__}", code="source_not_found"
        )
    if isinstance(error, ValueError) and not isinstance(error, RequestException):
        return Unprocessable("the source URL names no object", code="source_not_found")
    return Unavailable(f"the source cannot be reached: {type(error).__name__}")
