"""Serve objects of folder buckets behind presigned URLs, with ranges and checksums.

Deposited files may be HTML. They are served from our origin, so headers make browsers sandbox them,
not guess their type, and save them, whatever the URL was signed for.
"""

import base64
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import BinaryIO

from flask import Flask, Response, g, request

from api.http.errors import error_response
from api.http.limits import check_rate_limit
from api.http.operation import Services
from api.http.responses import force_attachment
from api.replication import served_by_header
from pipelines import failover
from pipelines.checksums import METADATA_PREFIX
from pipelines.copies import INLINE_BYTES
from storage import keys
from storage.blobs.folder import FolderBlobs
from storage.blobs.signed_urls import DownloadGrant
from storage.errors import NotFoundError
from storage.model import REPLICAS, Replica
from storage.protocols import BLOCK, DEFAULT_CONTENT_TYPE, BlobInfo, BlobStore
from storage.stores import Stores

_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})", re.ASCII)

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=0",
    "Accept-Ranges": "bytes",
}


def register_objects(app: Flask, services: Services) -> None:
    """Serve the presigned URLs of folder buckets."""
    folders = folder_buckets(services.stores)

    @app.get("/v1/objects/<bucket>/<path:key>", endpoint="get_object")
    def get_object(bucket: str, key: str) -> Response:
        g.operation = "get_object"
        # The URL is the credential: clients are anonymous.
        check_rate_limit(services.stores.rate_limiter, services.settings, request, None)
        if bucket not in folders:
            raise NotFoundError("There is no such bucket.")
        return _serve_object(services, folders[bucket], key)


def folder_buckets(stores: Stores) -> Mapping[str, FolderBlobs]:
    """Return folder buckets by their name in URLs."""
    buckets = [*stores.replicas.values(), stores.areas, *stores.checkouts.values()]
    return {blobs.signer.bucket: blobs for blobs in buckets if isinstance(blobs, FolderBlobs)}


def _serve_object(services: Services, blobs: FolderBlobs, key: str) -> Response:
    grant = blobs.signer.verify(key, request.args)
    replica = next((name for name in REPLICAS if services.stores.replicas[name] is blobs), None)
    served, bucket = _find_intact(services.stores, replica, blobs, key)
    replica_headers = served_by_header(replica, served) if replica and served else {}
    if not isinstance(bucket, FolderBlobs):
        return _redirect_to_cloud(services, bucket, key, grant, replica_headers)
    file, size, info = bucket.open_payload(key)
    verified = _is_verified(services.stores, served, file, info)
    headers = {
        **SAFE_HEADERS,
        **replica_headers,
        **repr_digest_header(file, info),
        "Content-Type": grant.content_type or info.content_type or DEFAULT_CONTENT_TYPE,
        "Content-Disposition": force_attachment(grant.disposition),
    }
    span = parse_range(request.headers.get("Range"), size)
    if span is None:
        file.close()
        return _unsatisfiable_response(size)
    start, length = span
    headers["Content-Length"] = str(length)
    if length < size:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    if length < size:
        return _stream_range(file, start, length, status=206, headers=headers)
    sha256 = keys.parse_blob(key)
    if verified or served is None or sha256 is None:
        return _stream_range(file, start, length, status=200, headers=headers)
    record = partial(failover.record_read, services.stores, served, info)
    return _stream_verified(_VerifiedBlocks(file, size, sha256, record), headers)


def _find_intact(
    stores: Stores, replica: Replica | None, blobs: FolderBlobs, key: str
) -> tuple[Replica | None, BlobStore]:
    """Return replica and bucket of the intact object; areas have no replica."""
    if replica is None:
        return None, blobs
    served = failover.find_intact_replica(stores, replica, key)
    return served, stores.replicas[served]


def _is_verified(stores: Stores, served: Replica | None, file: BinaryIO, info: BlobInfo) -> bool:
    """Return whether a payload can be sent without hashing it. If it is known to be
    damaged, close the file and raise Damaged."""
    if served is None or keys.parse_blob(info.key) is None:
        return True
    try:
        return failover.is_verified(stores, served, info)
    except BaseException:
        file.close()
        raise


def _redirect_to_cloud(
    services: Services,
    bucket: BlobStore,
    key: str,
    grant: DownloadGrant,
    headers: Mapping[str, str],
) -> Response:
    """Redirect to the object in a bucket of a cloud."""
    url = bucket.sign(
        key,
        expires_s=services.settings.signed_url_s,
        content_type=grant.content_type,
        disposition=grant.disposition,
    )
    return Response(None, 302, headers={**headers, "Location": url, "Cache-Control": "no-store"})


def repr_digest_header(file: BinaryIO, info: BlobInfo) -> dict[str, str]:
    """Return Repr-Digest (RFC 9530), so that clients can verify the bytes: a blob's key, a small
    object's computed digest, or a large area file's stored checksum."""
    sha256 = keys.parse_blob(info.key)
    if sha256 is not None:
        digest = bytes.fromhex(sha256)
    elif info.size <= INLINE_BYTES:
        digest = hashlib.sha256(os.pread(file.fileno(), info.size, file.tell())).digest()
    else:
        try:
            digest = bytes.fromhex(info.metadata.get(f"{METADATA_PREFIX}sha256", ""))
        except ValueError:
            return {}
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(digest).decode()}:"} if digest else {}


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return start and length of a Range header; None if it is unsatisfiable. Without a header,
    or with several ranges, another unit or bad syntax, that is the whole object."""
    parts = _RANGE.fullmatch((header or "").replace(" ", ""))
    if parts is None or not (parts["first"] or parts["last"]):
        return 0, size
    if not parts["first"]:
        length = min(int(parts["last"]), size)
        return (size - length, length) if length or not size else None
    first = int(parts["first"])
    last = min(int(parts["last"] or size), size - 1)
    if parts["last"] and int(parts["last"]) < first:
        return 0, size
    return (first, last - first + 1) if first < size else None


def _unsatisfiable_response(size: int) -> Response:
    response = error_response(416, "range_not_satisfiable", f"The object has {size} bytes.")
    response.headers["Content-Range"] = f"bytes */{size}"
    return response


def _stream_range(
    file: BinaryIO, start: int, length: int, *, status: int, headers: Mapping[str, str]
) -> Response:
    """Send bytes by the server's file wrapper if it has one; that ends at Content-Length."""
    if request.method == "HEAD":
        file.close()
        return Response(None, status, headers=dict(headers))
    file.seek(start, 1)
    wrapper = request.environ.get("wsgi.file_wrapper")
    body: Iterable[bytes] = wrapper(file, BLOCK) if wrapper else _FileBlocks(file, length)
    return Response(body, status, headers=dict(headers), direct_passthrough=True)


def _stream_verified(body: "_VerifiedBlocks", headers: Mapping[str, str]) -> Response:
    """Answer with bytes that are verified as they are sent."""
    if request.method == "HEAD":
        body.close()
        return Response(None, 200, headers=dict(headers))
    return Response(body, 200, headers=dict(headers), direct_passthrough=True)


class _FileBlocks:
    """Blocks of a file, for servers without a file wrapper.

    The file is closed at its end or by `close`; a generator never started would keep it open."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._rest = length

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        block = self._file.read(min(BLOCK, self._rest)) if self._rest else b""
        if not block:
            self.close()
            raise StopIteration
        self._rest -= len(block)
        return block

    def close(self) -> None:
        self._file.close()


class _VerifiedBlocks(_FileBlocks):
    """Blocks of a blob, hashed on their way. A damaged blob ends with ConnectionResetError before
    its last block, so no client gets it whole."""

    def __init__(
        self, file: BinaryIO, length: int, sha256: str, note: Callable[[bool], object]
    ) -> None:
        super().__init__(file, length)
        self._sha256, self._note = sha256, note
        self._digest = hashlib.sha256()

    def __next__(self) -> bytes:
        block = super().__next__()
        self._digest.update(block)
        if not self._rest:
            is_intact = self._digest.hexdigest() == self._sha256
            self._note(is_intact)
            if not is_intact:
                self.close()
                # The server closes the connection, and does not log a failure.
                raise ConnectionResetError(errno.ECONNRESET, "The object is damaged.")
        return block
