"""Waiting in a bucket of Google Cloud Storage.

Small files go with their checksums as metadata. Larger ones go in order through a resumable
session, which any later run can take up where it is; their checksums follow as metadata, once what
Google computed is what was read.
"""

import base64
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from store_client.checksums import MB, Checksums, Hashing
from store_client.errors import Damaged, Unreachable
from store_client.transport.bodies import bound
from store_client.transport.limits import SMALL_ANSWER
from store_client.upload.gcs_client import speaking
from store_client.upload.journal import Journal, Unfinished
from store_client.upload.options import Bucket
from store_client.upload.parts import blocks, hashed, whole
from store_client.upload.sharing import Shared
from store_client.upload.staging import Item, Staged, object_key

log = logging.getLogger(__name__)

SMALL = 8 * MB
"""Larger files have a session."""
CHUNK = 16 * MB
"""What one request of a session brings; a multiple of 256 KiB."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
ATTEMPTS = 6
PATIENCE = httpx.Timeout(90, connect=10)


class Ended(Damaged):
    """A session that nobody can go on with."""


class GcsStaging:
    """See Staging; `client` is Google's."""

    def __init__(self, bucket: Bucket, client: Any, shared: Shared, journal: Journal) -> None:
        self._bucket = bucket
        self._objects = client.bucket(bucket.name)
        self._shared, self._journal = shared, journal

    def stage(self, item: Item) -> Staged:
        """See Staging."""
        key = object_key(self._bucket.prefix, item)
        url = f"gs://{self._bucket.name}/{key}"
        send = self._small if item.file.size <= SMALL else self._large
        with speaking(url):
            return Staged(url, send(item, self._objects.blob(key), url))

    def restate(self, item: Item, staged: Staged) -> bool:
        """See Staging: metadata is all there is."""
        return False

    def abandon(self, unfinished: Unfinished) -> None:
        """See Staging: sessions end by themselves."""

    def clear(self) -> None:
        """What waits in the depositor's bucket is the depositor's."""

    def _small(self, item: Item, blob: Any, url: str) -> Checksums:
        with self._shared.room(item.file.size):
            data = whole(item.file)
            sums = hashed(data)
            blob.metadata = sums.metadata()
            blob.crc32c = _base64(sums.crc32c)
            blob.upload_from_string(data, content_type=item.content_type)
        self._shared.tell.bytes(len(data))
        return sums

    def _large(self, item: Item, blob: Any, url: str) -> Checksums:
        sums = self._taken_up(item, url) or self._sent(item, self._begun(item, blob, url), new=True)
        blob.reload()
        if blob.crc32c != _base64(sums.crc32c):
            self._journal.forget(item.file.name)
            raise Damaged(f"{item.file.name} arrived as another file at {url}")
        blob.metadata = sums.metadata()
        blob.patch()
        return sums

    def _sent(self, item: Item, session: str, *, new: bool = False) -> Checksums:
        hashing = Hashing(item.file.size)
        chunks = _chunks(blocks(item.file, hashing))
        try:
            with httpx.Client(timeout=PATIENCE) as client:
                _Session(client, session, item.file.size).send(chunks, self._shared, new=new)
        except Damaged:
            self._journal.forget(item.file.name)
            raise
        return hashing.result()

    def _taken_up(self, item: Item, url: str) -> Checksums | None:
        """What an earlier run began, to its end; None when there is nothing to go on with."""
        before = self._journal.unfinished.get(item.file.name)
        if before is None or before.url != url or before.stamp != item.file.stamp:
            return None
        try:
            return self._sent(item, before.token)
        except Ended as error:
            log.info("%s begins anew: %s", item.file.name, error)
            return None

    def _begun(self, item: Item, blob: Any, url: str) -> str:
        blob.content_type = item.content_type
        session = str(
            blob.create_resumable_upload_session(
                content_type=item.content_type, size=item.file.size
            )
        )
        under_way = Unfinished(item.file.stamp, item.uuid, item.version, url, session)
        self._journal.under_way(item.file.name, under_way)
        return session


class _Session:
    """A resumable upload: its URL is its own credential."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        size: int,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._url, self._size, self._sleep = client, url, size, sleep

    def send(self, chunks: Iterator[bytes], shared: Shared, *, new: bool) -> None:
        """All chunks; those that arrived before, which none did if it is new, are not sent."""
        at, arrived = 0, 0 if new else self._ask()
        for chunk in chunks:
            shared.check()
            end = at + len(chunk)
            for _ in range(ATTEMPTS):
                if arrived >= end:
                    break
                arrived = self._put(chunk[max(0, arrived - at) :], max(arrived, at))
            else:
                raise Unreachable("Google Cloud Storage takes no more of the upload")
            shared.tell.bytes(len(chunk))
            at = end

    def _put(self, data: bytes, start: int) -> int:
        found = self._answered(data, f"bytes {start}-{start + len(data) - 1}/{self._size}")
        return self._ask() if found is None else found

    def _ask(self) -> int:
        """How many bytes have arrived."""
        for pause in PAUSES_S:
            found = self._answered(b"", f"bytes */{self._size}")
            if found is not None:
                return found
            self._sleep(pause)
        raise Unreachable("Google Cloud Storage does not answer")

    def _answered(self, data: bytes, span: str) -> int | None:
        """How many bytes have arrived; None when it cannot be said. Ended, when there is no such
        session any more."""
        try:
            with self._client.stream(
                "PUT", self._url, content=data, headers={"Content-Range": span}
            ) as answer:
                # Nothing of the body is wanted; read, it leaves the connection for the next part.
                bound(answer, SMALL_ANSWER)
                answer.read()
        except (httpx.TransportError, Damaged) as error:
            log.info("Google Cloud Storage: %s", error)
            return None
        if answer.status_code in (200, 201):
            return self._size
        if answer.status_code == 308:
            told = answer.headers.get("Range", "")
            return int(told.rpartition("-")[2]) + 1 if told else 0
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            return None
        raise Ended(f"Google Cloud Storage answered {answer.status_code} to an upload")


def _chunks(found: Iterator[bytes]) -> Iterator[bytes]:
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


def _base64(crc32c: str) -> str:
    return base64.b64encode(bytes.fromhex(crc32c)).decode()
