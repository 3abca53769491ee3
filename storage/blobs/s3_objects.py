"""One object of S3: head, streams that resume, tags, and deletion with all versions."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import HTTPClientError, IncompleteReadError
from urllib3.exceptions import HTTPError

from storage.blobs.envelope import checked_head
from storage.blobs.ranges import promised_end
from storage.blobs.s3_client import Bucket, Reply
from storage.blobs.s3_metadata import MARK, OF, as_tags, described_by, from_tags
from storage.blobs.s3_obstore import BrokenStreamError
from storage.errors import NotFound, RangeNotSatisfiable, SourceChanged, StoreError, Unavailable
from storage.protocols import BLOCK, BlobInfo

_NO_TYPE: Final = "binary/octet-stream"
"""S3's content type for objects that were given none."""
_BROKEN_STREAMS: Final = 3
"""Times that a stream may break without a byte in between before the read fails."""


# Heads


def pin_of(reply: Reply) -> str:
    """The version id where the bucket has versions, else the ETag."""
    version = reply.get("VersionId") or "null"
    return f"v:{version}" if version != "null" else f"e:{reply['ETag']}"


def pin_params(pin: str | None) -> dict[str, str]:
    """Parameters by which a GET or HEAD returns these bytes only."""
    if pin is None:
        return {}
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {"IfMatch": pin[2:]}


def version_params(pin: str) -> dict[str, str]:
    """Parameters of calls about one version; none where the bucket has no versions."""
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {}


def make_info(
    key: str,
    size: int,
    reply: Reply,
    *,
    content_type: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> BlobInfo:
    """What a response says of an object, with what the caller knows."""
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
    """The CRC-32C of all bytes, if the response has it; None for a checksum of checksums."""
    encoded = str(reply.get("ChecksumCRC32C") or "")
    if not encoded or "-" in encoded or reply.get("ChecksumType") == "COMPOSITE":
        return None
    return base64.b64decode(encoded).hex()


def head(bucket: Bucket, key: str, pin: str | None = None) -> tuple[BlobInfo, Reply]:
    """One HEAD: the object's info, and the whole response."""
    reply = bucket.call("head_object", key, ChecksumMode="ENABLED", **pin_params(pin))
    return _described(key, reply), reply


def look(bucket: Bucket, key: str) -> BlobInfo:
    """An object's info; its CRC-32C is not asked for."""
    return look_cheaply(bucket, key) or head(bucket, key)[0]


def look_cheaply(bucket: Bucket, key: str) -> BlobInfo | None:
    """The same; None where obstore cannot tell."""
    reply = None if bucket.small is None else bucket.small().head(bucket.name, key)
    return None if reply is None else _described(key, reply)


def _described(key: str, reply: Reply) -> BlobInfo:
    metadata = {name.lower(): value for name, value in reply["Metadata"].items()}
    declared = reply.get("ContentType")
    size = int(reply["ContentLength"])
    return make_info(key, size, reply, content_type=declared, metadata=metadata)


def exists(bucket: Bucket, key: str) -> bool:
    """Whether an object has this key now."""
    if bucket.small is not None:
        found = bucket.small().exists(bucket.name, key)
        if found is not None:
            return found
    try:
        bucket.call("head_object", key)
    except NotFound:
        return False
    return True


def explain_mismatch(bucket: Bucket, key: str) -> StoreError:
    """The error for a pin that does not match: NotFound, or SourceChanged."""
    try:
        bucket.call("head_object", key)
    except NotFound as error:
        return error
    except StoreError:
        pass
    return SourceChanged(f"{key} is no longer what it was")


# Tags


def get_tags(bucket: Bucket, key: str, pin: str) -> dict[str, str]:
    """The tags of these bytes; in an unversioned bucket, those of the current object."""
    reply = bucket.call("get_object_tagging", key, **version_params(pin))
    return {tag["Key"]: tag["Value"] for tag in reply["TagSet"]}


def put_tags(bucket: Bucket, key: str, tags: Mapping[str, str], pin: str) -> None:
    """Replace the tags of these bytes; in an unversioned bucket, those of the current object."""
    pairs = [{"Key": name, "Value": value} for name, value in tags.items()]
    bucket.call("put_object_tagging", key, Tagging={"TagSet": pairs}, **version_params(pin))


def describe(bucket: Bucket, key: str, metadata: Mapping[str, str], pin: str) -> BlobInfo:
    """Add metadata to an object by tags, which name the bytes they describe.

    The object is looked at before and after: in a bucket without versions the tags of an object
    that came in between may be lost, and its depositor repairs that after SourceChanged.
    """
    info = _matching_head(bucket, key, pin)
    tags = get_tags(bucket, key, info.pin)
    described = described_by(tags, info.etag)
    merged = {**(from_tags(tags) if described is None else described), **metadata}
    checked_head(key, "", {**info.metadata, **merged})
    put_tags(bucket, key, as_tags({**merged, OF: info.etag or ""}), pin)
    _matching_head(bucket, key, pin)
    own = {name: value for name, value in info.metadata.items() if name != MARK}
    return replace(info, metadata={**own, **merged})


def _matching_head(bucket: Bucket, key: str, pin: str) -> BlobInfo:
    """The current object; SourceChanged when it is not the one that the pin names."""
    info, _ = head(bucket, key)
    if info.pin != pin:
        raise SourceChanged(f"{key} is no longer what it was")
    return info


# Streams


def stream(
    bucket: Bucket, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Blocks of a range. A stream that breaks is resumed under the caller's pin, or that of the
    first response: bytes of another object are never appended."""
    end = None if length is None else start + length
    broken = 0
    while end is None or start < end:
        reply = _open_range(bucket, key, pin, start, end)
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
        except (BrokenStreamError, HTTPClientError, HTTPError, IncompleteReadError) as error:
            # botocore lets urllib3's errors of broken TLS through.
            if start == last:
                return
            broken += 1
            if broken > _BROKEN_STREAMS:
                raise Unavailable(f"S3 broke off: {error}") from error


def _open_range(
    bucket: Bucket, key: str, pin: str | None, start: int, end: int | None
) -> Reply | None:
    """The response to one GET; None for any range of an empty object."""
    params = pin_params(pin)
    ranged = bool(start) or end is not None
    try:
        reply = _get(bucket, key, params, start, end)
    except RangeNotSatisfiable:
        if start == 0:
            return None
        raise
    except (NotFound, SourceChanged) as error:
        raise (error if pin is None else explain_mismatch(bucket, key)) from error
    if wrong := _range_defect(reply, start, end) if ranged else _length_defect(reply):
        reply["Body"].close()
        raise Unavailable(f"S3 bucket {bucket.name} {wrong}")
    return reply


def _get(bucket: Bucket, key: str, params: dict[str, str], start: int, end: int | None) -> Reply:
    if bucket.small is not None:
        reply = bucket.small().get(bucket.name, key, params, start, end)
        if reply is not None:
            return reply
    if start or end is not None:
        params["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
    return bucket.call("get_object", key, **params)


def _length_defect(reply: Reply) -> str:
    """What is wrong if headers were cut off: truncated bytes would pass unnoticed, too."""
    return "" if "ContentLength" in reply else "does not say how long its answer is"


def _range_defect(reply: Reply, start: int, end: int | None) -> str:
    """What is wrong with the response to a range, or an empty text."""
    last = promised_end(str(reply.get("ContentRange", "")), start, end)
    if last is None:
        return "answers other ranges than it is asked for"
    other = int(reply.get("ContentLength", last - start)) != last - start
    return "answers with other bytes than it says" if other else _length_defect(reply)


# Deletion


def delete(bucket: Bucket, key: str) -> None:
    """Delete an object: one call, or a few where a delete marker shows that versions are kept."""
    with suppress(NotFound):
        reply = bucket.call("delete_object", key)
        if reply.get("DeleteMarker"):
            _delete_versions(bucket, key, reply["VersionId"])


def delete_pinned(bucket: Bucket, key: str, pin: str) -> None:
    """Delete these bytes, which were just seen; SourceChanged if they changed meanwhile."""
    if pin.startswith("v:"):
        _delete_versions(bucket, key, pin[2:])
        return
    with suppress(NotFound):
        bucket.call("delete_object", key, IfMatch=pin[2:])


def _delete_versions(bucket: Bucket, key: str, newest: str) -> None:
    """Delete a version and all older ones, it last, so that no older one becomes current again.

    A version that a listing marks as latest is newer than all others in it; of one that is not,
    only those with an earlier time are surely older.
    """
    entries = {entry["VersionId"]: entry for entry in _versions(bucket, key)}
    top = entries.pop(newest, None)
    if top is None:
        return
    for version, entry in entries.items():
        if top["IsLatest"] or entry["LastModified"] < top["LastModified"]:
            _delete_version(bucket, key, version)
    _delete_version(bucket, key, newest)


def _delete_version(bucket: Bucket, key: str, version: str) -> None:
    with suppress(NotFound):
        bucket.call("delete_object", key, VersionId=version)


def _versions(bucket: Bucket, key: str) -> Iterator[Reply]:
    """All versions and delete markers of a key, which is the first that its prefix finds."""
    params: dict[str, Any] = {"Prefix": key}
    while True:
        page = bucket.call("list_object_versions", **params)
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        yield from (entry for entry in found if entry["Key"] == key)
        if not page.get("IsTruncated") or page["NextKeyMarker"] != key:
            return
        params["KeyMarker"] = page["NextKeyMarker"]
        params["VersionIdMarker"] = page["NextVersionIdMarker"]
