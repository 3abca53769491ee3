"""A bucket of Google Cloud Storage as a blob store; pins are generations.

Nothing of GCS's own is needed but objects: no versioning (what is deleted is gone), no bucket
metadata. What is unfinished lies under a prefix that listings leave out.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Final

from google.auth.exceptions import GoogleAuthError

from storage.blobs import gcs_reading, gcs_upload
from storage.blobs.clients import Limits, PerProcess
from storage.blobs.envelope import checked_head
from storage.blobs.gcs_asking import FREE, Bucket
from storage.blobs.gcs_client import Call, Connection, Server
from storage.blobs.gcs_copy import Original, rewrite
from storage.blobs.gcs_inserting import insert, may_write
from storage.blobs.gcs_signing import signed_get, signed_put
from storage.blobs.gcs_upload import HIDDEN, GcsUpload, Words, in_memory
from storage.blobs.layout import checked
from storage.blobs.urls import taken_apart
from storage.errors import Invalid, NotFound, Unavailable
from storage.protocols import DEFAULT_TYPE, BlobInfo, BlobStore, Progress, SignedUpload

_BEYOND_HIDDEN: Final = HIDDEN[:-1] + chr(ord("/") + 1)
"""The first key after all hidden ones."""


def open_bucket(url: str, limits: Limits) -> "GcsBlobs":
    """The bucket of `gs://name?endpoint=&public=&project=`, not yet touched; all options may be
    absent. SettingsError names what cannot be used."""
    name, options = taken_apart(url, "gs", frozenset(Server.__slots__))
    server = Server(**options)
    return GcsBlobs(name, server, _shared(server, limits))


@cache
def _shared(server: Server, limits: Limits) -> PerProcess[Connection]:
    """All buckets of one server share its connections."""
    return PerProcess(lambda: Connection(server, limits))


class GcsBlobs:
    """See BlobStore. Threads may share it, and forked children: each makes its own connections."""

    def __init__(self, name: str, server: Server, connected: PerProcess[Connection]) -> None:
        self.name = name
        self._server, self._connected = server, connected
        self._bucket = Bucket(name, connected)

    def sibling(self, name: str) -> "GcsBlobs":
        """Another bucket by the same client; NotFound when there is none, Forbidden when it is not
        ours to write, which only trying tells."""
        may_write(Bucket(name, self._connected, own=False), HIDDEN + "probe")
        return GcsBlobs(name, self._server, self._connected)

    def head(self, key: str) -> BlobInfo:
        """See BlobStore."""
        _checked(key)
        return gcs_reading.head(self._bucket, key)

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """See BlobStore."""
        _checked(key)
        yield from gcs_reading.stream(self._bucket, key, pin=pin, start=start, length=length)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """See BlobStore."""
        _checked(key)
        checked_head(key, content_type, metadata)
        described = gcs_reading.described(content_type, metadata)
        condition = {} if replace else FREE
        reply = insert(self._bucket, key, in_memory(data), described, condition)
        return gcs_reading.info_of(key, reply)

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> GcsUpload:
        """See BlobStore."""
        _checked(key)
        if token is not None:
            return GcsUpload.resume(self._bucket, key, token)
        words = Words(key, part_size, content_type, dict(metadata or {}))
        return GcsUpload.begin(self._bucket, words)

    def copy(
        self,
        source: BlobStore,
        key: str,
        target_key: str,
        *,
        pin: str | None,
        part_size: int,
        size: int | None = None,
        resume: str | None = None,
        progress: Progress | None = None,
    ) -> BlobInfo | None:
        """See BlobStore; GCS needs to know neither size nor parts."""
        if not isinstance(source, GcsBlobs) or source._server.endpoint != self._server.endpoint:
            return None
        _checked(key)
        _checked(target_key)
        original = Original(source._bucket, key, pin)
        return rewrite(original, self._bucket, target_key, resume=resume, progress=progress)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore; unfinished uploads, of which there may be thousands, are jumped over."""
        for start in (after, max(after, _BEYOND_HIDDEN, key=str.encode)):
            for entry in gcs_reading.listed(self._bucket, prefix, start=start):
                key = entry["name"]
                if key.startswith(HIDDEN):
                    break
                if key != after:
                    stored = datetime.fromisoformat(entry["updated"]).timestamp()
                    yield BlobInfo(
                        key,
                        int(entry["size"]),
                        str(entry["generation"]),
                        modified_us=int(stored * 1_000_000),
                    )
            else:
                return

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """See BlobStore."""
        _checked(key)
        condition = {} if pin is None else {"ifGenerationMatch": pin}
        gcs_upload.remove(self._bucket, key, condition)

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """See BlobStore; a generation stays the same when its metadata change."""
        _checked(key)
        try:
            info = gcs_reading.head(self._bucket, key, pin)
            checked_head(key, info.content_type or "", {**info.metadata, **metadata})
            reply = self._bucket.ask(_amending(self._bucket.object(key), metadata, pin))
        except NotFound as error:
            raise gcs_reading.gone(self._bucket, key) from error
        return gcs_reading.info_of(key, reply)

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """See BlobStore; without a key of our own each URL is a call."""
        _checked(key)
        answered = {"content-type": content_type, "content-disposition": disposition}
        with _signing():
            connection = self._connected()
            return signed_get(
                f"{connection.public}/{self.name}",
                key,
                connection.signer(),
                now=time.time(),
                expires_s=expires_s,
                answered=answered,
            )

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """See BlobStore; GCS itself holds what arrives to the size that the header says."""
        _checked(key)
        headers = {"x-goog-content-length-range": f"0,{max_bytes}"}
        with _signing():
            connection = self._connected()
            url = signed_put(
                f"{connection.public}/{self.name}",
                key,
                connection.signer(),
                now=time.time(),
                expires_s=expires_s,
                headers=headers,
            )
        return SignedUpload(url, headers, max_bytes)

    def direct_url(self, key: str) -> str:
        """See BlobStore."""
        return f"gs://{self.name}/{key}"

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """See BlobStore."""
        return gcs_upload.sweep(self._bucket, before=now - older_than_s, moment=_moment)


@contextmanager
def _signing() -> Iterator[None]:
    """What Google's library says of it, in our words."""
    try:
        yield
    except GoogleAuthError as error:
        raise Unavailable(f"GCS signs no URL for us: {error}") from error


def _amending(where: str, metadata: Mapping[str, str], pin: str) -> Call:
    """Adds metadata to one generation; what else it has stays."""
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    body = json.dumps({"metadata": dict(metadata)}).encode()
    return Call(
        "PATCH", where, {"fields": gcs_reading.TOLD, "ifGenerationMatch": pin}, headers, body
    )


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _checked(key: str) -> None:
    """Invalid when it can be no key here."""
    checked(key)
    if key in (".", "..") or key.startswith(HIDDEN):
        raise Invalid("GCS takes no such key")
