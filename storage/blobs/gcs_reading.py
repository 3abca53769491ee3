"""What GCS tells of objects: heads, listings, and their bytes as streams that may break."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import urllib3
from urllib3.exceptions import HTTPError

from storage.blobs.gcs_asking import Bucket, Reply, pause
from storage.blobs.gcs_client import Call
from storage.blobs.ranges import promised_end
from storage.errors import NotFound, RangeNotSatisfiable, SourceChanged, StoreError, Unavailable
from storage.protocols import BLOCK, DEFAULT_TYPE, BlobInfo

TYPE: Final = "store-content-type"
"""The metadata under which our objects keep their content type. GCS heeds a signed URL's wish for
one only where an object has none of its own."""
TOLD: Final = "size,generation,contentType,metadata,crc32c,etag"
"""What of an object's description is wanted."""
_PAGE: Final = 1000
_BROKEN_STREAMS: Final = 3
"""Times that a stream may break without a byte in between before the read is given up."""


def info_of(key: str, reply: Reply) -> BlobInfo:
    """What an object's description says."""
    told = {name.lower(): value for name, value in reply.get("metadata", {}).items()}
    declared = told.pop(TYPE, None) or reply.get("contentType") or DEFAULT_TYPE
    crc32c = reply.get("crc32c")
    return BlobInfo(
        key=key,
        size=int(reply["size"]),
        pin=str(reply["generation"]),
        content_type=declared,
        metadata=told,
        etag=reply.get("etag"),
        crc32c=base64.b64decode(crc32c).hex() if crc32c else None,
    )


def described(content_type: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The metadata that objects of ours carry; without a content type of GCS's own."""
    own = {} if content_type == DEFAULT_TYPE else {TYPE: content_type}
    return {"metadata": {**(metadata or {}), **own}}


def pinned(pin: str | None) -> dict[str, str]:
    """Parameters by which a GET answers with these bytes only."""
    return {} if pin is None else {"generation": pin, "ifGenerationMatch": pin}


def head(bucket: Bucket, key: str, pin: str | None = None) -> BlobInfo:
    """One object's description."""
    call = Call("GET", bucket.object(key), {"fields": TOLD, **pinned(pin)})
    return info_of(key, bucket.ask(call))


def listed(bucket: Bucket, prefix: str, *, start: str = "", fields: str = "") -> Iterator[Reply]:
    """Descriptions of the objects under a prefix from a key on, in byte order."""
    fields = fields or "name,size,generation,updated"
    wanted: dict[str, object] = {
        "prefix": prefix,
        "startOffset": start,
        "maxResults": _PAGE,
        "fields": f"items({fields}),nextPageToken",
    }
    while True:
        page = bucket.ask(Call("GET", bucket.objects(), wanted))
        yield from page.get("items", ())
        if not page.get("nextPageToken"):
            return
        wanted["pageToken"] = page["nextPageToken"]


def gone(bucket: Bucket, key: str) -> StoreError:
    """Why a pin does not fit: nothing lies there any more, or something else."""
    try:
        head(bucket, key)
    except StoreError as error:
        return error
    return SourceChanged(f"{key} is no longer what it was")


# Streams


def stream(
    bucket: Bucket, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Blocks of a range, as they are stored. A stream that breaks or ends early is taken up where
    it did, under the pin that was given or that the first answer told."""
    end = None if length is None else start + length
    broken = 0
    while end is None or start < end:
        answer = _opened(bucket, key, pin, start, end)
        if answer is None:
            return
        pin = pin or answer.headers.get("X-Goog-Generation")
        end = _end(bucket, answer, start, end)
        try:
            for block in answer.stream(BLOCK, decode_content=False):
                yield block
                start, broken = start + len(block), 0
            answer.release_conn()
        except HTTPError as error:
            why = str(error)
        else:
            why = "its answer is too short"
        finally:
            # Nobody may use a connection again on which there may be more to come.
            answer.close()
        if start < end:
            broken = _again(broken, why, pin)


def _again(broken: int, why: str, pin: str | None) -> int:
    if broken == _BROKEN_STREAMS or pin is None:
        raise Unavailable(f"GCS broke off: {why}")
    pause(broken + 1)
    return broken + 1


def _opened(
    bucket: Bucket, key: str, pin: str | None, start: int, end: int | None
) -> urllib3.BaseHTTPResponse | None:
    """The answer to one GET; None where there is nothing, because the object is empty."""
    ranged = bool(start) or end is not None
    reach = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if ranged else {}
    where = bucket.object(key, service="download/storage")
    try:
        call = Call("GET", where, {"alt": "media", **pinned(pin)}, headers=reach, stream=True)
        answer = bucket.send(call)
    except RangeNotSatisfiable:
        if start == 0:
            return None
        raise
    except (NotFound, SourceChanged) as error:
        raise (error if pin is None else gone(bucket, key)) from error
    if ranged and promised_end(answer.headers.get("Content-Range", ""), start, end) is None:
        answer.close()
        raise Unavailable(f"GCS bucket {bucket.name} answers other ranges than it is asked for")
    return answer


def _end(bucket: Bucket, answer: urllib3.BaseHTTPResponse, start: int, end: int | None) -> int:
    """Where the bytes of an answer end, as its headers promise."""
    headers = answer.headers
    last = promised_end(headers.get("Content-Range", ""), start, end)
    if last is not None:
        return last
    stored = headers.get("X-Goog-Stored-Content-Length") or headers.get("Content-Length")
    if stored is None and "chunked" not in headers.get("Transfer-Encoding", "").lower():
        # Its headers were cut off: nobody would notice that its bytes are, too.
        answer.close()
        raise Unavailable(f"GCS bucket {bucket.name} does not say how long its answer is")
    return start + int(stored or 0)
