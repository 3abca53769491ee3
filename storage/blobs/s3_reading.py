"""Asking S3 and reading from it: one door for calls and their errors, pins, resumed streams.

Here a vendor's words become ours; replicas, uploads, copies and depositors' sources all ask so.
"""

import base64
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
)
from urllib3.exceptions import HTTPError

from storage.blobs.ranges import promised_end
from storage.blobs.s3_direct import Direct
from storage.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
)
from storage.protocols import BLOCK, BlobInfo

Reply = Mapping[str, Any]


class _Answer(dict[str, Any]):
    """What S3 said. What it did not say, because its answer was cut off, is Unavailable: headers
    that end too early look like headers that end."""

    def __missing__(self, name: str) -> Any:
        raise Unavailable(f"S3's answer was cut off: it lacks {name}")


_NO_TYPE: Final = "binary/octet-stream"
"""What S3 says of an object that was given no content type."""
_BROKEN_STREAMS: Final = 3
"""Times that a stream may break without a byte in between before the read is given up."""
_CONFLICTS: Final = 8
"""Times that a conditional write is tried again while another one is in flight."""
_PASSING: Final = frozenset(
    {
        "400",  # A HEAD's, which has no words: it may be any of these.
        "AuthorizationHeaderMalformed",
        "BadDigest",
        "ExpiredToken",
        "IncompleteBody",
        "InvalidToken",
        "RequestTimeout",
        "TokenRefreshRequired",
    }
)
"""What S3 says with a 400 of requests in order: of credentials, or bytes lost on the way."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and the client that reaches it. In one of our `own`, a refusal or an absent bucket
    is a fault of the installation, which may be mended; in a depositor's it is an answer."""

    name: str
    client: Callable[[], Any]
    own: bool = True
    direct: Callable[[], Direct] | None = None

    def ask(self, verb: str, key: str | None = None, **wanted: Any) -> Reply:
        """One call, without the client where that does; the client's errors in our words."""
        if self.direct is not None and key is not None:
            answered = self.direct().ask(verb, self.name, key, wanted)
            if answered is not None:
                return _Answer(answered)
        return self._by_client(verb, key, wanted)

    def _by_client(self, verb: str, key: str | None, wanted: Mapping[str, Any]) -> Reply:
        where = {"Bucket": self.name} if key is None else {"Bucket": self.name, "Key": key}
        for turn in range(_CONFLICTS):
            try:
                return _Answer(getattr(self.client(), verb)(**where, **wanted))
            except ClientError as error:
                # Two conditional writes met: ours may still win, or learns that it lost.
                if _code(error) != "ConditionalRequestConflict" or turn == _CONFLICTS - 1:
                    raise self._ours(error, conditional="IfNoneMatch" in wanted) from error
            except ParamValidationError as error:
                raise Invalid(f"S3 cannot be asked so: {error}") from error
            except BotoCoreError as error:
                raise Unavailable(f"S3 cannot be reached: {error}") from error
            time.sleep(random.uniform(0, 0.02 * 2**turn))
        raise AssertionError("unreachable")

    def _ours(self, error: ClientError, *, conditional: bool) -> StoreError:
        status, code = _status(error), _code(error)
        said = f"S3 bucket {self.name}: {code} ({status})"
        match status:
            case 404 if code == "NoSuchBucket":
                return Unavailable(said) if self.own else NotFound(said)
            # 405 is said of a version that is a delete marker.
            case 404 | 405:
                return NotFound(said)
            case 412:
                return AlreadyExists(said) if conditional else SourceChanged(said)
            case 416:
                return RangeNotSatisfiable(said)
            case 400 if code not in _PASSING:
                return Invalid(said)
            case 401 | 403:
                refused = f"{said}: check the store's credentials and the bucket's policy"
                return Unavailable(refused) if self.own else Forbidden(said)
        # 5xx, throttling, clocks that differ, another region's bucket.
        return Unavailable(said)


def upload_gone(error: StoreError) -> bool:
    """True when what was not found is an unfinished upload."""
    return isinstance(error.__cause__, ClientError) and _code(error.__cause__) == "NoSuchUpload"


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


# What answers tell


def pin_of(reply: Reply) -> str:
    """The version where the bucket has versions, else the entity tag."""
    version = reply.get("VersionId") or "null"
    return f"v:{version}" if version != "null" else f"e:{reply['ETag']}"


def pinned(pin: str | None) -> dict[str, str]:
    """Arguments by which a GET or HEAD answers with these bytes only."""
    if pin is None:
        return {}
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {"IfMatch": pin[2:]}


def info_of(
    key: str,
    size: int,
    reply: Reply,
    *,
    content_type: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> BlobInfo:
    """What an answer tells of an object, with what we know ourselves."""
    return BlobInfo(
        key=key,
        size=size,
        pin=pin_of(reply),
        content_type=None if content_type == _NO_TYPE else content_type,
        metadata=dict(metadata or {}),
        etag=str(reply["ETag"]).strip('"'),
        crc32c=_crc32c(reply),
    )


def _crc32c(reply: Reply) -> str | None:
    """The CRC-32C of all bytes, if the answer has it: a checksum of checksums is of no use."""
    told = str(reply.get("ChecksumCRC32C") or "")
    if not told or "-" in told or reply.get("ChecksumType") == "COMPOSITE":
        return None
    return base64.b64decode(told).hex()


def head(bucket: Bucket, key: str, pin: str | None = None) -> tuple[BlobInfo, Reply]:
    """One HEAD: what it tells, and the whole answer."""
    reply = bucket.ask("head_object", key, ChecksumMode="ENABLED", **pinned(pin))
    metadata = {name.lower(): value for name, value in reply["Metadata"].items()}
    declared = reply.get("ContentType")
    size = int(reply["ContentLength"])
    return info_of(key, size, reply, content_type=declared, metadata=metadata), reply


def there(bucket: Bucket, key: str) -> bool:
    """Whether anything lies there now."""
    try:
        bucket.ask("head_object", key)
    except NotFound:
        return False
    return True


def tags(bucket: Bucket, key: str, pin: str) -> dict[str, str]:
    """The tags of these bytes; of an unversioned bucket, those of whatever lies there."""
    version = {"VersionId": pin[2:]} if pin.startswith("v:") else {}
    reply = bucket.ask("get_object_tagging", key, **version)
    return {tag["Key"]: tag["Value"] for tag in reply["TagSet"]}


# Streams


def stream(
    bucket: Bucket, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Blocks of a range. A stream that breaks is taken up where it broke, under the pin that was
    given or that the first answer told: other bytes are never appended."""
    end = None if length is None else start + length
    broken = 0
    while end is None or start < end:
        reply = _opened(bucket, key, pin, start, end)
        if reply is None:
            return
        pin = pin or pin_of(reply)
        last = start + int(reply["ContentLength"])
        try:
            with closing(reply["Body"]) as body:
                for block in body.iter_chunks(BLOCK):
                    yield block
                    start, broken = start + len(block), 0
            return
        except (HTTPClientError, HTTPError, IncompleteReadError) as error:
            # The second is what the client lets through: TLS that breaks.
            if start == last:
                return
            broken += 1
            if broken > _BROKEN_STREAMS:
                raise Unavailable(f"S3 broke off: {error}") from error


def _opened(bucket: Bucket, key: str, pin: str | None, start: int, end: int | None) -> Reply | None:
    """The answer to one GET; None for any range of an empty object."""
    wanted = pinned(pin)
    ranged = bool(start) or end is not None
    if ranged:
        wanted["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
    try:
        reply = bucket.ask("get_object", key, **wanted)
    except RangeNotSatisfiable:
        if start == 0:
            return None
        raise
    except (NotFound, SourceChanged) as error:
        raise (error if pin is None else gone(bucket, key)) from error
    if wrong := _wrong(reply, start, end) if ranged else _unsaid(reply):
        reply["Body"].close()
        raise Unavailable(f"S3 bucket {bucket.name} {wrong}")
    return reply


def _unsaid(reply: Reply) -> str:
    """Its headers may be cut off: nobody would notice that its bytes are, too."""
    return "" if "ContentLength" in reply else "does not say how long its answer is"


def _wrong(reply: Reply, start: int, end: int | None) -> str:
    """What is wrong with the answer to a range, if anything is."""
    last = promised_end(str(reply.get("ContentRange", "")), start, end)
    if last is None:
        return "answers other ranges than it is asked for"
    other = int(reply.get("ContentLength", last - start)) != last - start
    return "answers with other bytes than it says" if other else _unsaid(reply)


def gone(bucket: Bucket, key: str) -> StoreError:
    """Why a pin does not fit: nothing lies there any more, or something else."""
    try:
        bucket.ask("head_object", key)
    except NotFound as error:
        return error
    except StoreError:
        pass
    return SourceChanged(f"{key} is no longer what it was")
