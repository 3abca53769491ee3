"""S3 objects: metadata in headers and tags, resumable reads, deletion of all versions.

Metadata that is known only at an upload's end becomes tags, of which S3 takes ten. Plain pairs are
plain tags. What does not fit is one compressed text in base64, spread over keys
`store-packed-<n>.<piece>` and their values.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import HTTPClientError, IncompleteReadError
from urllib3.exceptions import HTTPError

from storage import errors
from storage.blobs.s3_client import S3BucketClient, S3Reply
from storage.blobs.s3_obstore import BrokenStreamError
from storage.keys import MAX_METADATA_BYTES, check_key, check_metadata
from storage.protocols import BLOCK, BlobInfo

TAGS_FOLLOW: Final = "tags-follow"
"""Metadata of an object with tags of the store; tags of other objects are not read."""

DESCRIBED_ETAG: Final = "store-described"
"""A tag with the ETag that the other tags describe: in an unversioned bucket tags belong to the
key, which may hold other bytes by then."""

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")

_MAX_TAGS: Final = 10
_MAX_TAG_KEY, _MAX_TAG_VALUE = 128, 256
"""Longest key and value of a tag, in characters."""
_PLAIN_TAG = re.compile(r"[A-Za-z0-9 +\-=._:/@]*")
_PACKED_PREFIX: Final = "store-packed-"
_PACKED_KEY_ROOM: Final = _MAX_TAG_KEY - len(f"{_PACKED_PREFIX}0.")


def make_header_params(
    key: str, content_type: str, metadata: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return arguments for type and metadata of a new object; Invalid if unsuitable."""
    check_key(key)
    pairs = check_metadata(content_type, metadata)
    if not content_type.isascii():
        raise errors.Invalid("content type: must be ASCII")
    if any(
        not _HEADER_NAME.fullmatch(name) or value != value.strip() for name, value in pairs.items()
    ):
        raise errors.Invalid(
            "metadata: must fit into HTTP headers (no special characters in names, no outer spaces)"
        )
    return {"ContentType": content_type, "Metadata": pairs}


def add_tags_mark(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata with TAGS_FOLLOW, unless S3's limit leaves no room."""
    size = sum(len(name) + len(value) for name, value in metadata.items())
    return {
        **metadata,
        **({TAGS_FOLLOW: ""} if size + len(TAGS_FOLLOW) <= MAX_METADATA_BYTES else {}),
    }


def make_completion_tags(early: Mapping[str, str], late: Mapping[str, str]) -> dict[str, str]:
    """Return tags for metadata added at completion; Invalid if all is too large."""
    check_metadata("", {**early, **late})
    if late and TAGS_FOLLOW not in add_tags_mark(early):
        raise errors.Invalid("metadata: no room left beside the metadata of the upload's start")
    return encode_tags(late)


def encode_tags(metadata: Mapping[str, str]) -> dict[str, str]:
    """Encode metadata as tags for `decode_tags`; Invalid if ten tags cannot hold it."""
    if len(metadata) <= _MAX_TAGS and all(_fits_tag(*pair) for pair in metadata.items()):
        return dict(metadata)
    text = json.dumps(dict(metadata), separators=(",", ":")).encode()
    packed = base64.b64encode(zlib.compress(text, 9)).decode()
    step = _PACKED_KEY_ROOM + _MAX_TAG_VALUE
    pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
    if len(pieces) > _MAX_TAGS:
        raise errors.Invalid("metadata: does not fit into ten S3 tags")
    return {
        f"{_PACKED_PREFIX}{n}.{piece[:_PACKED_KEY_ROOM]}": piece[_PACKED_KEY_ROOM:]
        for n, piece in enumerate(pieces)
    }


def decode_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of tags, ours or a depositor's, under lower-case names."""
    packed = sorted(key for key in tags if key.startswith(_PACKED_PREFIX))
    plain = {key.lower(): value for key, value in tags.items() if key not in packed}
    if not packed:
        return plain
    text = "".join(key.partition(".")[2] + tags[key] for key in packed)
    return {**plain, **json.loads(zlib.decompress(base64.b64decode(text)))}


def decode_described_tags(tags: Mapping[str, str], etag: str | None) -> dict[str, str] | None:
    """Return metadata that `write_metadata` stored as tags.

    None if the tags name no ETag, empty if they describe another one.
    """
    metadata = decode_tags(tags)
    described = metadata.pop(DESCRIBED_ETAG, None)
    if described is None:
        return None
    return metadata if described == etag else {}


def _fits_tag(name: str, value: str) -> bool:
    """Return whether a tag can hold a pair; S3 strips spaces at ends, and some servers drop empty
    values."""
    fits = (
        len(name) <= _MAX_TAG_KEY and len(value) <= _MAX_TAG_VALUE and value == value.strip() != ""
    )
    return fits and bool(_PLAIN_TAG.fullmatch(name) and _PLAIN_TAG.fullmatch(value))


def merge_tags(info: BlobInfo, tags: Mapping[str, str]) -> dict[str, str]:
    """Merge an object's metadata with its tags.

    Tags win where an upload announced them or where `write_metadata` wrote them for this ETag;
    metadata wins over a depositor's tags.
    """
    own = {name: value for name, value in info.metadata.items() if name != TAGS_FOLLOW}
    described = decode_described_tags(tags, info.etag)
    if described is not None:
        return {**own, **described}
    plain = decode_tags(tags)
    return {**own, **plain} if TAGS_FOLLOW in info.metadata else {**plain, **own}


_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")


def parse_range_end(content_range: str, start: int, end: int | None) -> int | None:
    """Return where a response ends by its `Content-Range`.

    None unless its bytes are those from `start` to `end`, or to the object's end if that is sooner.
    """
    match = _CONTENT_RANGE.fullmatch(content_range)
    if match is None or int(match[1]) != start:
        return None
    last, size = int(match[2]) + 1, match[3]
    ends = [bound for bound in (end, None if size == "*" else int(size)) if bound is not None]
    return last if last == min(ends, default=last) else None


_DEFAULT_S3_TYPE: Final = "binary/octet-stream"
"""S3's content type for objects uploaded without one."""
_MAX_STREAM_BREAKS: Final = 3
"""Times in a row that a stream may break without a byte in between."""


# Heads


def reply_pin(reply: S3Reply) -> str:
    """Return the version id in a versioned bucket, else the ETag."""
    version = reply.get("VersionId") or "null"
    return f"v:{version}" if version != "null" else f"e:{reply['ETag']}"


def pin_params(pin: str | None) -> dict[str, str]:
    """Return parameters that restrict a GET or HEAD to these bytes."""
    if pin is None:
        return {}
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {"IfMatch": pin[2:]}


def version_params(pin: str) -> dict[str, str]:
    """Return parameters that name a version; none for an unversioned bucket."""
    return {"VersionId": pin[2:]} if pin.startswith("v:") else {}


def make_info(
    key: str,
    size: int,
    reply: S3Reply,
    *,
    content_type: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> BlobInfo:
    """Build the info of an object from a response and what the caller knows."""
    return BlobInfo(
        key=key,
        size=size,
        pin=reply_pin(reply),
        content_type=None if content_type == _DEFAULT_S3_TYPE else content_type,
        metadata=dict(metadata or {}),
        etag=str(reply["ETag"]).strip('"'),
        crc32c=_decode_crc32c(reply),
    )


def _decode_crc32c(reply: S3Reply) -> str | None:
    """Return the CRC-32C of all bytes if the response has it; None for a checksum of checksums."""
    encoded = str(reply.get("ChecksumCRC32C") or "")
    if not encoded or "-" in encoded or reply.get("ChecksumType") == "COMPOSITE":
        return None
    return base64.b64decode(encoded).hex()


def head_object(
    bucket: S3BucketClient, key: str, pin: str | None = None
) -> tuple[BlobInfo, S3Reply]:
    """Return an object's info and the whole response of a HEAD."""
    reply = bucket.call("head_object", key, ChecksumMode="ENABLED", **pin_params(pin))
    return _make_head_info(key, reply), reply


def look_up(bucket: S3BucketClient, key: str) -> BlobInfo:
    """Return an object's info, without its CRC-32C."""
    return look_up_fast(bucket, key) or head_object(bucket, key)[0]


def look_up_fast(bucket: S3BucketClient, key: str) -> BlobInfo | None:
    """Return an object's info through obstore, or None."""
    reply = bucket.small.head(bucket.name, key)
    return None if reply is None else _make_head_info(key, reply)


def _make_head_info(key: str, reply: S3Reply) -> BlobInfo:
    metadata = {name.lower(): value for name, value in reply["Metadata"].items()}
    declared = reply.get("ContentType")
    size = int(reply["ContentLength"])
    return make_info(key, size, reply, content_type=declared, metadata=metadata)


def object_exists(bucket: S3BucketClient, key: str) -> bool:
    """Return whether an object has this key now."""
    exists = bucket.small.exists(bucket.name, key)
    if exists is not None:
        return exists
    try:
        bucket.call("head_object", key)
    except errors.NotFoundError:
        return False
    return True


def explain_mismatch(bucket: S3BucketClient, key: str) -> errors.DomainError:
    """Return the error for a pin that does not match: NotFoundError or SourceChanged."""
    try:
        bucket.call("head_object", key)
    except errors.NotFoundError as error:
        return error
    except errors.DomainError:
        pass
    return errors.SourceChanged(f"{key} has changed")


# Tags


def get_tags(bucket: S3BucketClient, key: str, pin: str) -> dict[str, str]:
    """Return the tags of these bytes; in an unversioned bucket, of the current object."""
    reply = bucket.call("get_object_tagging", key, **version_params(pin))
    return {tag["Key"]: tag["Value"] for tag in reply["TagSet"]}


def put_tags(bucket: S3BucketClient, key: str, tags: Mapping[str, str], pin: str) -> None:
    """Replace the tags of these bytes; in an unversioned bucket, of the current object."""
    pairs = [{"Key": name, "Value": value} for name, value in tags.items()]
    bucket.call("put_object_tagging", key, Tagging={"TagSet": pairs}, **version_params(pin))


def write_metadata(
    bucket: S3BucketClient, key: str, metadata: Mapping[str, str], pin: str
) -> BlobInfo:
    """Add metadata to an object by tags, which name the ETag they describe.

    A HEAD checks the pin before and after: in an unversioned bucket the tags of an object that was
    put in between may be lost, and its depositor repairs that after SourceChanged.
    """
    info = _head_pinned(bucket, key, pin)
    tags = get_tags(bucket, key, info.pin)
    described = decode_described_tags(tags, info.etag)
    merged = {**(decode_tags(tags) if described is None else described), **metadata}
    check_metadata("", {**info.metadata, **merged})
    put_tags(bucket, key, encode_tags({**merged, DESCRIBED_ETAG: info.etag or ""}), pin)
    _head_pinned(bucket, key, pin)
    own = {name: value for name, value in info.metadata.items() if name != TAGS_FOLLOW}
    return replace(info, metadata={**own, **merged})


def _head_pinned(bucket: S3BucketClient, key: str, pin: str) -> BlobInfo:
    """Return the current object; SourceChanged if its pin differs."""
    info, _ = head_object(bucket, key)
    if info.pin != pin:
        raise errors.SourceChanged(f"{key} has changed")
    return info


# Streams


def stream_object(
    bucket: S3BucketClient, key: str, *, pin: str | None, start: int, length: int | None
) -> Iterator[bytes]:
    """Yield blocks of a range.

    A stream that breaks is resumed under the caller's pin, or that of the first response, so bytes
    of another object are never appended.
    """
    end = None if length is None else start + length
    breaks = 0
    while end is None or start < end:
        reply = _open_range(bucket, key, pin, start, end)
        if reply is None:
            return
        pin = pin or reply_pin(reply)
        last = start + int(reply["ContentLength"])
        try:
            with closing(reply["Body"]) as body:
                for block in body.iter_chunks(BLOCK):
                    yield block
                    start, breaks = start + len(block), 0
            return
        except (BrokenStreamError, HTTPClientError, HTTPError, IncompleteReadError) as error:
            # botocore passes on urllib3's errors of broken TLS.
            if start == last:
                return
            breaks += 1
            if breaks > _MAX_STREAM_BREAKS:
                raise errors.Unavailable(f"S3 interrupted a read: {error}") from error


def _open_range(
    bucket: S3BucketClient, key: str, pin: str | None, start: int, end: int | None
) -> S3Reply | None:
    """Send one GET and return its response; None for any range of an empty object."""
    params = pin_params(pin)
    reply: S3Reply | None = bucket.small.get(bucket.name, key, params, start, end)
    if start or end is not None:
        params["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
    try:
        reply = reply or bucket.call("get_object", key, **params)
    except errors.RangeNotSatisfiable:
        if start == 0:
            return None
        raise
    except (errors.NotFoundError, errors.SourceChanged) as error:
        raise (error if pin is None else explain_mismatch(bucket, key)) from error
    if defect := _find_defect(reply, start, end):
        reply["Body"].close()
        raise errors.Unavailable(f"S3 bucket {bucket.name} {defect}")
    return reply


def _find_defect(reply: S3Reply, start: int, end: int | None) -> str:
    """Return what is wrong with the response to a range, or an empty text."""
    if start or end is not None:
        last = parse_range_end(str(reply.get("ContentRange", "")), start, end)
        if last is None:
            return "sent another range than requested"
        if int(reply.get("ContentLength", last - start)) != last - start:
            return "sent a Content-Length that contradicts its Content-Range"
    # Truncated headers lack it.
    return "" if "ContentLength" in reply else "sent a response without Content-Length"


# Deletion


def delete_object(bucket: S3BucketClient, key: str) -> None:
    """Delete an object: one call, or a few if a delete marker shows versioning."""
    with suppress(errors.NotFoundError):
        reply = bucket.call("delete_object", key)
        if reply.get("DeleteMarker"):
            _delete_versions(bucket, key, reply["VersionId"])


def delete_pinned_object(bucket: S3BucketClient, key: str, pin: str) -> None:
    """Delete these bytes; SourceChanged if they changed meanwhile."""
    if pin.startswith("v:"):
        _delete_versions(bucket, key, pin[2:])
        return
    with suppress(errors.NotFoundError):
        bucket.call("delete_object", key, IfMatch=pin[2:])


def _delete_versions(bucket: S3BucketClient, key: str, newest: str) -> None:
    """Delete a version and all older ones, itself last, so that no older one becomes current.

    A version that a listing marks as latest is newer than all others in it; otherwise only those
    with an earlier time are surely older.
    """
    entries = {entry["VersionId"]: entry for entry in _list_versions(bucket, key)}
    top = entries.pop(newest, None)
    if top is None:
        return
    older = [
        version
        for version, entry in entries.items()
        if top["IsLatest"] or entry["LastModified"] < top["LastModified"]
    ]
    for version in (*older, newest):
        with suppress(errors.NotFoundError):
            bucket.call("delete_object", key, VersionId=version)


def _list_versions(bucket: S3BucketClient, key: str) -> Iterator[S3Reply]:
    """List all versions and delete markers of a key, which sorts first under its prefix."""
    for page in bucket.pages("list_object_versions", Prefix=key):
        entries = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        yield from (entry for entry in entries if entry["Key"] == key)
        if page.get("NextKeyMarker", key) != key:
            return
