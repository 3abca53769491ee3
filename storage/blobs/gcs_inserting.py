"""Sending bytes to GCS: in one request, or in a session that goes on where it broke.

Either way their CRC-32C goes ahead of them: what arrives otherwise is not stored.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import urllib3

from storage.blobs.gcs_asking import Bucket, Reply, pause
from storage.blobs.gcs_client import Call
from storage.blobs.gcs_reading import TOLD
from storage.blobs.spooling import IN_MEMORY, Spooled
from storage.errors import AlreadyExists, NotFound, SourceChanged, StoreError, Unavailable

ONE_REQUEST: Final = IN_MEMORY
"""Bytes up to which everything is sent at once."""
_SESSIONS: Final = 3
"""Times that a session may break without a byte in between before it is given up."""

Params = Mapping[str, object]
Described = Mapping[str, Any]


def insert(
    bucket: Bucket, key: str, content: Spooled, described: Described, condition: Params
) -> Reply:
    """Store an object; what GCS tells of it."""
    words = {**described, "name": key, "crc32c": base64.b64encode(content.crc32c).decode()}
    try:
        if content.size <= ONE_REQUEST:
            content.file.seek(0)
            return _at_once(bucket, content.file.read(), words, condition)
        return _in_session(bucket, content, words, condition)
    except NotFound as error:
        raise Unavailable(f"GCS bucket {bucket.name} takes nothing in: {error}") from error
    except SourceChanged as error:
        # The end of a session does not repeat the condition that it was started under.
        raise AlreadyExists(f"{key} exists already") from error


def _at_once(bucket: Bucket, data: bytes, words: Described, condition: Params) -> Reply:
    boundary = secrets.token_hex(16)
    front = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{json.dumps(words)}\r\n"
    # A part without a content type: the object shall have none.
    body = b"%s--%s\r\n\r\n%s\r\n--%s--" % (
        front.encode(),
        boundary.encode(),
        data,
        boundary.encode(),
    )
    where = bucket.objects(service="upload/storage")
    kind = {"Content-Type": f"multipart/related; boundary={boundary}"}
    params = {"uploadType": "multipart", "fields": TOLD, **condition}
    return bucket.ask(Call("POST", where, params, kind, body))


def start_session(
    bucket: Bucket, words: Described, condition: Params, size: int | None = None
) -> str:
    """Ask to be allowed to store an object; the URL that takes its bytes."""
    length = {} if size is None else {"X-Upload-Content-Length": str(size)}
    headers = {"Content-Type": "application/json; charset=UTF-8", **length}
    params = {"uploadType": "resumable", "fields": TOLD, **condition}
    where = bucket.objects(service="upload/storage")
    answer = bucket.send(Call("POST", where, params, headers, json.dumps(words).encode()))
    return answer.headers["Location"]


def _in_session(bucket: Bucket, content: Spooled, words: Described, condition: Params) -> Reply:
    session = start_session(bucket, words, condition, content.size)
    at = broken = 0
    while True:
        try:
            answer = _rest(bucket, session, content, at)
        except Unavailable:
            answer = _state(bucket, session, content.size)
        if answer.status != 308:
            reply: Reply = answer.json()
            return reply
        stored = _stored(answer)
        broken = 0 if stored > at else broken + 1
        if broken > _SESSIONS:
            raise Unavailable("GCS takes no more bytes of an upload")
        if broken:
            pause(broken)
        at = stored


def _rest(bucket: Bucket, session: str, content: Spooled, at: int) -> urllib3.BaseHTTPResponse:
    """Send all bytes that are missing; tried once, for only GCS knows where to go on."""
    count = content.size - at
    reach = f"bytes {at}-{content.size - 1}/{content.size}"
    headers = {"Content-Range": reach, "Content-Length": str(count)}
    return bucket.send(Call("PUT", session, {}, headers, content.file, start=at, tries=1))


def _state(bucket: Bucket, session: str, size: int) -> urllib3.BaseHTTPResponse:
    """How far a session has come."""
    headers = {"Content-Range": f"bytes */{size}", "Content-Length": "0"}
    return bucket.send(Call("PUT", session, {}, headers, b""))


def _stored(answer: urllib3.BaseHTTPResponse) -> int:
    """Bytes that GCS has, by its `Range: bytes=0-<last>`; without one, none."""
    reach = answer.headers.get("Range", "")
    return int(reach.rpartition("-")[2]) + 1 if reach else 0


def may_write(bucket: Bucket, key: str) -> None:
    """NotFound or Forbidden unless we may create objects there; nothing is left behind."""
    session = start_session(bucket, {"name": key}, {})
    try:
        bucket.send(Call("DELETE", session))
    except StoreError:
        # GCS answers 499 to what was called off; what was not, ends by itself after a week.
        return
