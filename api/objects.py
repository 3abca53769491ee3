"""The bytes of a folder bucket, to whoever holds a signed URL: ranges, sendfile, no scripts.

A depositor's file may be HTML. It is served from our origin, so the browser is told to sandbox it,
not to guess its type, and to save it, whatever the URL was signed for.
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

from api.dispositions import as_attachment
from api.errors import answer
from api.replication import served_by
from api.services import Services
from api.throttle import throttle
from pipelines.keeping import failover
from pipelines.keeping.checksums import PREFIX
from pipelines.keeping.copying import INLINE
from storage import keys
from storage.blobs.local import LocalBlobs
from storage.blobs.signing import Grant
from storage.errors import NotFound
from storage.model import REPLICAS, Replica
from storage.protocols import BLOCK, DEFAULT_TYPE, BlobInfo, BlobStore
from storage.stores import Stores

_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})", re.ASCII)

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=0",
    "Accept-Ranges": "bytes",
}


def register_objects(app: Flask, services: Services) -> None:
    """Serve the signed URLs of those buckets that are folders."""
    folders = served(services.stores)

    @app.get("/v1/objects/<bucket>/<path:key>", endpoint="get_object")
    def get_object(bucket: str, key: str) -> Response:
        g.operation = "get_object"
        # Whoever has the URL may ask, and is known by nothing but an address.
        throttle(services.stores.rates, services.settings, request, None)
        if bucket not in folders:
            raise NotFound("There is no such bucket.")
        return _object(services, folders[bucket], key)


def served(stores: Stores) -> Mapping[str, LocalBlobs]:
    """Folder buckets by the name that their URLs have."""
    every = [*stores.replicas.values(), stores.areas, *stores.checkouts.values()]
    return {blobs.signer.bucket: blobs for blobs in every if isinstance(blobs, LocalBlobs)}


def _object(services: Services, blobs: LocalBlobs, key: str) -> Response:
    grant = blobs.signer.verify(key, request.args)
    asked = next((name for name in REPLICAS if services.stores.replicas[name] is blobs), None)
    served, bucket = _serving(services.stores, asked, blobs, key)
    told = served_by(asked, served) if asked and served else {}
    if not isinstance(bucket, LocalBlobs):
        return _elsewhere(services, bucket, key, grant, told)
    file, size, info = bucket.open_payload(key)
    verified = _is_verified(services.stores, served, file, info)
    headers = {
        **SAFE,
        **told,
        **repr_digest(file, info),
        "Content-Type": grant.content_type or info.content_type or DEFAULT_TYPE,
        "Content-Disposition": as_attachment(grant.disposition),
    }
    span = byte_range(request.headers.get("Range"), size)
    if span is None:
        file.close()
        return _unsatisfiable(size)
    start, length = span
    headers["Content-Length"] = str(length)
    if length < size:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    if length < size:
        return _streamed(file, start, length, status=206, headers=headers)
    sha256 = keys.parse_blob(key)
    if verified or served is None or sha256 is None:
        return _streamed(file, start, length, status=200, headers=headers)
    noted = partial(failover.note_read, services.stores, served, info)
    return _checked(_CheckedBlocks(file, size, sha256, noted), headers)


def _serving(
    stores: Stores, asked: Replica | None, blobs: LocalBlobs, key: str
) -> tuple[Replica | None, BlobStore]:
    """Return the replica and the bucket whose object is whole; areas have no replica."""
    if asked is None:
        return None, blobs
    served = failover.serving_replica(stores, asked, key)
    return served, stores.replicas[served]


def _is_verified(stores: Stores, served: Replica | None, file: BinaryIO, info: BlobInfo) -> bool:
    """Return whether a payload can be sent without hashing it; Damaged, and the file is closed, if
    it is known to be damaged: then not even a range of it is sent."""
    if served is None or keys.parse_blob(info.key) is None:
        return True
    try:
        return failover.is_verified(stores, served, info)
    except BaseException:
        file.close()
        raise


def _elsewhere(
    services: Services, bucket: BlobStore, key: str, grant: Grant, told: Mapping[str, str]
) -> Response:
    """Redirect to the object in a bucket of a cloud."""
    url = bucket.sign(
        key,
        expires_s=services.settings.signed_url_s,
        content_type=grant.content_type,
        disposition=grant.disposition,
    )
    return Response(None, 302, headers={**told, "Location": url, "Cache-Control": "no-store"})


def repr_digest(file: BinaryIO, info: BlobInfo) -> dict[str, str]:
    """Return the header that lets any client check what it was served (RFC 9530): of a blob by its
    key, of what is small by reading it, of a large file in an area once it was checksummed."""
    sha256 = keys.parse_blob(info.key)
    if sha256 is not None:
        digest = bytes.fromhex(sha256)
    elif info.size <= INLINE:
        digest = hashlib.sha256(os.pread(file.fileno(), info.size, file.tell())).digest()
    else:
        try:
            digest = bytes.fromhex(info.metadata.get(f"{PREFIX}sha256", ""))
        except ValueError:
            return {}
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(digest).decode()}:"} if digest else {}


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and length that a Range header asks for; None when it lies outside. The whole when
    there is no header or one that may be ignored: several ranges, another unit, bad syntax."""
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


def _unsatisfiable(size: int) -> Response:
    response = answer(416, "range_not_satisfiable", f"The object has {size} bytes.")
    response.headers["Content-Range"] = f"bytes */{size}"
    return response


def _streamed(
    file: BinaryIO, start: int, length: int, *, status: int, headers: Mapping[str, str]
) -> Response:
    """The bytes by the server's own means where it has any, which then ends at Content-Length."""
    if request.method == "HEAD":
        file.close()
        return Response(None, status, headers=dict(headers))
    file.seek(start, 1)
    wrapper = request.environ.get("wsgi.file_wrapper")
    body: Iterable[bytes] = wrapper(file, BLOCK) if wrapper else _Blocks(file, length)
    return Response(body, status, headers=dict(headers), direct_passthrough=True)


def _checked(body: "_CheckedBlocks", headers: Mapping[str, str]) -> Response:
    """Answer with bytes that are verified as they are sent."""
    if request.method == "HEAD":
        body.close()
        return Response(None, 200, headers=dict(headers))
    return Response(body, 200, headers=dict(headers), direct_passthrough=True)


class _Blocks:
    """A file's next bytes, for a server that has no means of its own. The file is closed at their
    end, or by the server, also when nobody took a byte: a generator that was never begun would
    keep it open."""

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


class _CheckedBlocks(_Blocks):
    """The bytes of a blob, hashed on their way. The last block of damaged ones is held back, so
    that no client takes them for the whole; ConnectionResetError."""

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
            right = self._digest.hexdigest() == self._sha256
            self._note(right)
            if not right:
                self.close()
                # The server ends the connection for it, and takes it for no failure of its own.
                raise ConnectionResetError(errno.ECONNRESET, "The object is damaged.")
        return block
