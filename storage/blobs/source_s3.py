"""A depositor's object in S3, read by its version or entity tag."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
)

from storage.errors import (
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
    Unprocessable,
)
from storage.model import CHECKSUMS
from storage.protocols import BLOCK, BlobInfo

_NO_TYPE = "binary/octet-stream"
"""What S3 says of an object that was given no content type."""
_BROKEN_STREAMS = 3
"""Times that a stream may break without a byte in between before the read is given up."""


class S3Source:
    """A Source in S3."""

    def __init__(self, bucket: str, key: str, client: Callable[[], Any]) -> None:
        self._where = {"Bucket": bucket, "Key": key}
        self._client = client

    def head(self) -> BlobInfo:
        """See Source; tags are asked for only when metadata does not declare every checksum."""
        try:
            reply = self._client().head_object(**self._where)
        except (ClientError, BotoCoreError) as error:
            raise _ours(error) from error
        pin = _pin(reply)
        metadata = {name.lower(): value for name, value in reply["Metadata"].items()}
        if not all(any(name.endswith(field) for name in metadata) for field in CHECKSUMS):
            metadata = {**self._tags(pin), **metadata}
        declared = reply.get("ContentType")
        return BlobInfo(
            key=self._where["Key"],
            size=reply["ContentLength"],
            pin=pin,
            content_type=None if declared == _NO_TYPE else declared,
            metadata=metadata,
            etag=reply["ETag"].strip('"'),
        )

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source; a stream that breaks is taken up where it broke, which the pin makes safe."""
        end = None if length is None else start + length
        broken = 0
        while end is None or start < end:
            try:
                for block in self._stream(pin, start, end):
                    yield block
                    start, broken = start + len(block), 0
                return
            except (HTTPClientError, IncompleteReadError) as error:
                broken += 1
                if broken > _BROKEN_STREAMS:
                    raise Unavailable(f"the source broke off: {error}") from error

    def _stream(self, pin: str, start: int, end: int | None) -> Iterator[bytes]:
        wanted = _pinned(pin)
        if start or end is not None:
            wanted["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            reply = self._client().get_object(**self._where, **wanted)
        except ClientError as error:
            if _status(error) == 416 and start == 0:
                return
            raise _ours_when_pinned(error) from error
        except HTTPClientError:
            raise
        except BotoCoreError as error:
            raise _ours(error) from error
        with closing(reply["Body"]) as body:
            yield from body.iter_chunks(BLOCK)

    def _tags(self, pin: str) -> Mapping[str, str]:
        """The object's tags; none when we may not see them."""
        version = {"VersionId": pin[2:]} if pin.startswith("v:") else {}
        try:
            reply = self._client().get_object_tagging(**self._where, **version)
        except ClientError as error:
            if _status(error) >= 500:
                raise _ours(error) from error
            return {}
        except BotoCoreError as error:
            raise _ours(error) from error
        return {tag["Key"].lower(): tag["Value"] for tag in reply["TagSet"]}


def _pin(reply: Mapping[str, Any]) -> str:
    version = reply.get("VersionId", "null")
    return f"v:{version}" if version != "null" else f"e:{reply['ETag']}"


def _pinned(pin: str) -> dict[str, Any]:
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {"IfMatch": pin[2:]}


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _ours_when_pinned(error: ClientError) -> StoreError:
    status = _status(error)
    if status == 416:
        return RangeNotSatisfiable("the range lies outside of the source")
    if status in (404, 412):
        return SourceChanged("the source is no longer what it was")
    return _ours(error)


def _ours(error: ClientError | BotoCoreError) -> StoreError:
    """A depositor's mistake, or something that may pass."""
    if isinstance(error, ParamValidationError):
        return Unprocessable("the source URL names no object", code="source_not_found")
    if not isinstance(error, ClientError):
        return Unavailable(f"the source cannot be reached: {error}")
    why = error.response.get("Error", {}).get("Code", "")
    if _status(error) >= 500 or _status(error) == 429 or why == "SlowDown":
        return Unavailable(f"the source cannot be read now: {why}")
    return Unprocessable(f"the source cannot be read: {why}", code="source_not_found")
