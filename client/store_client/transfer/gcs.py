"""Upload objects to Google Cloud Storage by resumable sessions; needs google-cloud-storage."""

import base64
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

from store_client.checksums import MB, FileChecksums, FileHasher
from store_client.errors import (
    Damaged,
    NotAllowed,
    NotFound,
    Refused,
    StoreError,
    Unreachable,
)
from store_client.http.pool import ConnectionPool
from store_client.http.retries import (
    MAX_SMALL_ANSWER,
    ConnectionBroken,
    RetryableRequest,
    RetryPolicy,
)
from store_client.identifiers import parse_version
from store_client.local_files import LocalFile
from store_client.transfer.engine import TransferContext, import_extra
from store_client.transfer.parts import hash_file_blocks

log = logging.getLogger(__name__)

CHUNK = 16 * MB
"""Bytes of one request of a session; a multiple of 256 KiB."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
ATTEMPTS = 6

RenewToken = Callable[[], Mapping[str, Any]]
"""Requests new credentials for the same area."""


class UploadSessionEnded(Damaged):
    """A resumable session that cannot be continued."""


def connect() -> Any:
    """A client of Google's library with the ambient credentials and endpoint."""
    storage = _import_library("google.cloud.storage")
    with translate_errors("Google Cloud Storage"):
        # Objects belong to buckets; the project does not matter.
        return storage.Client(project="store-client")


def open_bucket(credentials: Mapping[str, Any], renew: RenewToken, **more: Any) -> Any:
    """The bucket of an upload area, by a token that the store renews."""

    def refresh(request: object, scopes: object) -> tuple[str, datetime]:
        renewed = renew()
        return renewed["access_token"], _naive_utc(renewed["expires"])

    token = _import_library("google.oauth2.credentials").Credentials(
        credentials["access_token"],
        expiry=_naive_utc(credentials["expires"]),
        refresh_handler=refresh,
    )
    storage = _import_library("google.cloud.storage")
    # No project is needed to write an object; the library only wants one to be named.
    client = storage.Client(project="none", credentials=token, **more)
    return client.bucket(credentials["bucket"])


def _naive_utc(version: str) -> datetime:
    """A moment as Google's library takes it: in UTC, without a time zone."""
    return parse_version(version).replace(tzinfo=None)


@contextmanager
def translate_errors(place: str, *, hint: str = "") -> Iterator[None]:
    """Raise the errors of Google's libraries as StoreError; `hint` is for refused credentials."""
    calls = _import_library("google.api_core.exceptions")
    auth = _import_library("google.auth.exceptions")
    network = _import_library("requests.exceptions")
    try:
        yield
    except calls.GoogleAPICallError as error:
        raise _error_from_call(error, place, hint) from error
    except auth.GoogleAuthError as error:
        raise NotAllowed(
            f"Google refuses the credentials for {place}: {error}",
            hint=hint or "set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials",
        ) from error
    except (network.RequestException, calls.RetryError) as error:
        raise Unreachable(f"{place}: {error}") from error


def _error_from_call(error: Any, place: str, hint: str) -> StoreError:
    status = int(error.code or 0)
    message = f"{place}: {error.message} ({status})"
    if status >= 500:
        return Unreachable(message)
    if status in (401, 403):
        return NotAllowed(f"Google refuses the request to {message}", hint=hint, status=status)
    return (NotFound if status == 404 else Refused)(message, status=status)


def _import_library(name: str) -> Any:
    return import_extra(name, "Google Cloud Storage needs google-cloud-storage", extra="gcs")


def send_file(
    blob: Any,
    file: LocalFile,
    content_type: str,
    context: TransferContext,
    *,
    session: str,
    record: Callable[[str], None],
) -> FileChecksums:
    """Send a file through a resumable session: this one of an earlier run, else a new one.

    `record` is given the URL of a new session, which is its own credential.
    """
    if session:
        try:
            return _send_through(session, file, context, new=False)
        except UploadSessionEnded as error:
            log.info("%s begins anew: %s", file.name, error)
    blob.content_type = content_type
    session = blob.create_resumable_upload_session(content_type=content_type, size=file.size)
    record(session)
    return _send_through(session, file, context, new=True)


def _send_through(
    session: str, file: LocalFile, context: TransferContext, *, new: bool
) -> FileChecksums:
    """Send what a session does not have yet; UploadSessionEnded when it cannot be continued."""
    hasher = FileHasher(file.size)
    chunks = _join_chunks(hash_file_blocks(file, hasher))
    with closing(ConnectionPool(RetryPolicy())) as pool:
        _ResumableUpload(pool, session, file.size).send(chunks, context, new=new)
    return hasher.checksums()


class _ResumableUpload:
    """A resumable upload: its URL is its own credential."""

    def __init__(self, pool: ConnectionPool, url: str, size: int) -> None:
        self._pool, self._url, self._size = pool, url, size

    def send(self, chunks: Iterator[bytes], context: TransferContext, *, new: bool) -> None:
        """All chunks; those that arrived before, which none did if it is new, are not sent."""
        at, arrived = 0, 0 if new else self._query_offset()
        for chunk in chunks:
            context.stop.check()
            end = at + len(chunk)
            for _ in range(ATTEMPTS):
                if arrived >= end:
                    break
                arrived = self._put(chunk[max(0, arrived - at) :], max(arrived, at))
            else:
                raise Unreachable("Google Cloud Storage accepts no more of the upload")
            context.tell.bytes(len(chunk))
            at = end

    def _put(self, data: bytes, start: int) -> int:
        found = self._send_range(data, f"bytes {start}-{start + len(data) - 1}/{self._size}")
        return self._query_offset() if found is None else found

    def _query_offset(self) -> int:
        """How many bytes have arrived."""
        for pause in PAUSES_S:
            found = self._send_range(b"", f"bytes */{self._size}")
            if found is not None:
                return found
            time.sleep(pause)
        raise Unreachable("Google Cloud Storage does not answer")

    def _send_range(self, data: bytes, span: str) -> int | None:
        """How many bytes have arrived; None when it cannot be said. Ended, when there is no such
        session any more."""
        headers = {"Content-Range": span}
        request = RetryableRequest("PUT", self._url, headers, lambda: data, limit=MAX_SMALL_ANSWER)
        try:
            answer = self._pool.send(request)
            # Nothing of the body is wanted; read, it leaves the connection for the next part.
            self._pool.read_body(answer)
        except (ConnectionBroken, Damaged) as error:
            log.info("Google Cloud Storage: %s", error)
            return None
        if answer.status_code in (200, 201):
            return self._size
        if answer.status_code == 308:
            received = answer.headers.get("Range", "")
            return int(received.rpartition("-")[2]) + 1 if received else 0
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            return None
        raise UploadSessionEnded(f"Google Cloud Storage answered {answer.status_code} to an upload")


def _join_chunks(found: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of CHUNK."""
    waiting, size = list[bytes](), 0
    for block in found:
        waiting.append(block)
        size += len(block)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def encode_crc32c(crc32c: str) -> str:
    """A CRC-32C as Google writes it."""
    return base64.b64encode(bytes.fromhex(crc32c)).decode()
