"""The calls that are made a thousand times, without the client's ceremony.

The client spends a millisecond of processor on a small call, most of it on describing the call to
itself; signed by hand, and sent through the client's own connections, it is a third. Only
plain success, and conditions that do not hold, are taken from here. Whatever else an answer says,
the client makes the call again: retries, redirects, clocks that differ, credentials that ran out
and every other error are its business alone.
"""

import hashlib
import hmac
import html
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import BotoCoreError
from botocore.response import StreamingBody

from storage.blobs.s3_signing import Credentials, Place
from storage.errors import AlreadyExists, NotFound, SourceChanged, Unavailable

_METHODS: Final = {
    "copy_object": "PUT",
    "get_object": "GET",
    "head_object": "HEAD",
    "put_object": "PUT",
}
_HEADERS: Final = {
    "ChecksumAlgorithm": "x-amz-checksum-algorithm",
    "ChecksumCRC32C": "x-amz-checksum-crc32c",
    "ChecksumMode": "x-amz-checksum-mode",
    "ContentType": "content-type",
    "CopySourceIfMatch": "x-amz-copy-source-if-match",
    "IfMatch": "if-match",
    "IfNoneMatch": "if-none-match",
    "Range": "range",
}
_SPELLED: Final = {*_HEADERS, "Body", "CopySource", "Metadata", "VersionId"}
_META: Final = "x-amz-meta-"
_TOLD: Final = {
    "content-range": "ContentRange",
    "content-type": "ContentType",
    "etag": "ETag",
    "x-amz-checksum-crc32c": "ChecksumCRC32C",
    "x-amz-checksum-type": "ChecksumType",
    "x-amz-version-id": "VersionId",
}
_RESULT: Final = re.compile(r"<(ETag|ChecksumCRC32C|ChecksumType)>([^<]*)</")
_PLAIN_BUCKET: Final = re.compile(r"[a-z0-9.-]+(?<!--x-s3)")
"""Neither an access point nor a directory bucket, which want another signature."""
_REFUSALS, _SILENCE_S = 3, 60.0
"""After so many failures in a row the client is asked alone, for so long."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, not signed yet."""

    method: str
    url: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Direct:
    """Threads share it as they share the client."""

    def __init__(
        self, session: Any, place: Callable[[str], Place], credentials: Callable[[], Credentials]
    ) -> None:
        self._session, self._place, self._credentials = session, place, credentials
        self._refused = 0
        self._silent_until = 0.0

    def ask(
        self, verb: str, bucket: str, key: str, wanted: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The client's answer to this call, or None: ask the client. NotFound for a HEAD's 404,
        AlreadyExists or SourceChanged when the call's condition does not hold."""
        if verb not in _METHODS or not wanted.keys() <= _SPELLED:
            return None
        if not _PLAIN_BUCKET.fullmatch(bucket) or time.monotonic() < self._silent_until:
            return None
        try:
            place = self._place(bucket)
            call = _spelled(verb, place, key, wanted)
            answer = self._sent(call, place, streamed=verb == "get_object")
            reply = _read(verb, answer)
        except (BotoCoreError, Unavailable):
            self._note(refused=True)
            return None
        # That something is absent, or a condition not met, is an answer like another.
        self._note(refused=reply is None and answer.status_code not in (404, 409, 412, 416))
        if reply is None:
            _tell(
                verb, f"S3 bucket {bucket}", answer.status_code, conditional="IfNoneMatch" in wanted
            )
        return reply

    def _sent(self, call: Call, place: Place, *, streamed: bool) -> Any:
        headers: Any = _signed(call, place.region, self._credentials(), now=time.time())
        url = f"{call.url}?{call.query}" if call.query else call.url
        body = call.body if call.method == "PUT" else None
        return self._session.send(AWSPreparedRequest(call.method, url, headers, body, streamed))

    def _note(self, *, refused: bool) -> None:
        self._refused = self._refused + 1 if refused else 0
        if self._refused >= _REFUSALS:
            self._silent_until = time.monotonic() + _SILENCE_S


def _tell(verb: str, where: str, status: int, *, conditional: bool) -> None:
    """What has one meaning only need not be asked for twice."""
    if status == 404 and verb == "head_object":
        raise NotFound(f"{where}: 404")
    if status == 412:
        raise (AlreadyExists if conditional else SourceChanged)(
            f"{where}: PreconditionFailed (412)"
        )


def _spelled(verb: str, place: Place, key: str, wanted: Mapping[str, Any]) -> Call:
    headers = {_HEADERS[name]: str(said) for name, said in wanted.items() if name in _HEADERS}
    headers |= {f"{_META}{name}": said for name, said in wanted.get("Metadata", {}).items()}
    if "CopySource" in wanted:
        headers["x-amz-copy-source"] = _original(wanted["CopySource"])
    elif verb == "put_object":
        # It says here what the checksum beside it is; for a copy, what is to be computed.
        headers.pop("x-amz-checksum-algorithm", None)
    version = wanted.get("VersionId")
    query = f"versionId={quote(version, safe='~')}" if version else ""
    url = f"{place.base}/{quote(key, safe='/~')}"
    return Call(_METHODS[verb], url, query, headers, wanted.get("Body", b""))


def _original(source: Mapping[str, str]) -> str:
    version = source.get("VersionId")
    named = quote(f"{source['Bucket']}/{source['Key']}", safe="/~")
    return f"{named}?versionId={quote(version, safe='~')}" if version else named


# Signing


def _signed(call: Call, region: str, who: Credentials, *, now: float) -> dict[str, str]:
    """The headers of a request with its signature (Signature Version 4)."""
    parts, at = urlsplit(call.url), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    payload = "UNSIGNED-PAYLOAD"
    if parts.scheme == "http":
        payload = hashlib.sha256(call.body).hexdigest()
    headers = {
        **call.headers,
        "host": parts.netloc,
        "x-amz-content-sha256": payload,
        "x-amz-date": at,
        **({"x-amz-security-token": who.token} if who.token else {}),
    }
    names = sorted(headers)
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    asked = f"{call.method}\n{parts.path}\n{call.query}\n{lines}\n{';'.join(names)}\n{payload}"
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}"
    signature = _hmac(_key(who.secret_key, scope), text).hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={who.access_key}/{scope},"
        f"SignedHeaders={';'.join(names)},Signature={signature}"
    )
    return headers


@lru_cache(maxsize=64)
def _key(secret: str, scope: str) -> bytes:
    """Good for a day."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


# Answers


def _read(verb: str, answer: Any) -> dict[str, Any] | None:
    """What the client would tell of plain success, as far as anybody here asks for it."""
    if answer.status_code not in (200, 206):
        if verb == "get_object":
            answer.raw.close()
        return None
    reply: dict[str, Any] = {"Metadata": {}}
    for name, said in answer.headers.items():
        lower = name.lower()
        if lower in _TOLD:
            reply[_TOLD[lower]] = said
        elif lower.startswith(_META):
            reply["Metadata"][lower.removeprefix(_META)] = said
    length = answer.headers.get("content-length")
    if verb == "get_object":
        reply["Body"] = StreamingBody(answer.raw, length)
    if length and length.isdecimal():
        reply["ContentLength"] = int(length)
    return _with_result(reply, answer.content) if verb == "copy_object" else reply


def _with_result(reply: dict[str, Any], body: bytes) -> dict[str, Any] | None:
    """A copy's findings are in its body, which may tell of an error although all began well."""
    text = body.decode(errors="replace")
    found = {name: html.unescape(said) for name, said in _RESULT.findall(text)}
    whole = "<CopyObjectResult" in text and "ETag" in found
    return {**reply, "CopyObjectResult": found} if whole else None
