"""The bytes of a folder bucket, to whoever holds a signed URL: ranges, sendfile, no scripts.

A depositor's file may be HTML. It is served from our origin, so the browser is told to sandbox it,
not to guess its type, and to save it, whatever the URL was signed for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from flask import Flask, Response, g, request

from api.errors import answer
from api.services import Services
from api.throttle import throttle
from storage.blobs.local import LocalBlobs
from storage.errors import NotFound
from storage.protocols import BLOCK, DEFAULT_TYPE
from storage.stores import Stores

_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})", re.ASCII)

_KINDS = ("attachment", "inline")

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
        return _object(folders[bucket], key)


def served(stores: Stores) -> Mapping[str, LocalBlobs]:
    """Folder buckets by the name that their URLs have."""
    every = [*stores.replicas.values(), stores.areas, *stores.checkouts.values()]
    return {blobs.signer.bucket: blobs for blobs in every if isinstance(blobs, LocalBlobs)}


def _object(blobs: LocalBlobs, key: str) -> Response:
    grant = blobs.signer.verify(key, request.args)
    file, size, info = blobs.open_payload(key)
    headers = {
        **SAFE,
        "Content-Type": grant.content_type or info.content_type or DEFAULT_TYPE,
        "Content-Disposition": attached(grant.disposition),
    }
    span = byte_range(request.headers.get("Range"), size)
    if span is None:
        file.close()
        return _unsatisfiable(size)
    start, length = span
    headers["Content-Length"] = str(length)
    if length < size:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    return _streamed(file, start, length, status=206 if length < size else 200, headers=headers)


def attached(asked: str | None) -> str:
    """The disposition that was asked for, as an attachment: only its parameters, above all the
    file's name, are the asker's to choose."""
    kind, semicolon, parameters = (asked or "").partition(";")
    kind = kind.strip().lower()
    # Of what is neither, nobody knows what a browser makes of it.
    return f"attachment{semicolon}{parameters}" if kind in _KINDS else "attachment"


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
