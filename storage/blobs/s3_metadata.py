"""How metadata travels: in headers with an object's first word, in tags with its last.

S3 takes nothing but tags at an upload's end, and at most ten. Plain pairs are plain tags, which
anybody may read. What tags cannot spell, or not in ten, is one compressed text in base64, spread
over keys `store-packed-<n>.<piece>` and their values.
"""

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from storage.blobs.envelope import MAX_METADATA_BYTES, checked_head
from storage.blobs.layout import checked
from storage.errors import Invalid
from storage.protocols import BlobInfo

MARK: Final = "tags-follow"
"""Metadata of an object whose tags count: all others are never asked for them."""

OF: Final = "store-described"
"""A tag that names the bytes of which the others tell, by their entity tag: tags are of a key, and
where a bucket keeps no versions, other bytes may lie there by then."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")

_MOST: Final = 10
_KEY, _VALUE = 128, 256
"""Longest key and value of a tag, in characters."""
_PLAIN = re.compile(r"[A-Za-z0-9 +\-=._:/@]*")
_PACKED: Final = "store-packed-"
_ROOM: Final = _KEY - len(f"{_PACKED}0.")


def in_headers(key: str, content_type: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """Arguments that give a new object its type and metadata; Invalid if headers cannot."""
    checked(key)
    kept = checked_head(key, content_type, metadata).metadata
    if not content_type.isascii():
        raise Invalid("a content type is ASCII")
    if any(not _NAME.fullmatch(name) or value != value.strip() for name, value in kept.items()):
        raise Invalid("metadata that is no header: a name with other signs, or spaces at an end")
    return {"ContentType": content_type, "Metadata": dict(kept)}


def marked(metadata: Mapping[str, str]) -> dict[str, str]:
    """With the mark that tags may follow, unless S3 would refuse so much."""
    full = sum(len(name) + len(value) for name, value in metadata.items())
    return {**metadata, **({MARK: ""} if full + len(MARK) <= MAX_METADATA_BYTES else {})}


def last_words(early: Mapping[str, str], late: Mapping[str, str]) -> dict[str, str]:
    """The tags for what is added at the end; Invalid when the whole is too much."""
    checked_head("", "", {**early, **late})
    if late and MARK not in marked(early):
        raise Invalid("the metadata of the start left no room for more")
    return as_tags(late)


def as_tags(metadata: Mapping[str, str]) -> dict[str, str]:
    """Tags that `from_tags` turns back; Invalid when ten cannot hold it."""
    if len(metadata) <= _MOST and all(_fits(*pair) for pair in metadata.items()):
        return dict(metadata)
    text = json.dumps(dict(metadata), separators=(",", ":")).encode()
    packed = base64.b64encode(zlib.compress(text, 9)).decode()
    step = _ROOM + _VALUE
    pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
    if len(pieces) > _MOST:
        raise Invalid("metadata at completion does not fit into ten tags")
    return {f"{_PACKED}{n}.{piece[:_ROOM]}": piece[_ROOM:] for n, piece in enumerate(pieces)}


def from_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The metadata that tags carry, ours or anybody's, under lower-case names."""
    ours = {key.removeprefix(_PACKED): value for key, value in tags.items() if _is_ours(key)}
    plain = {key.lower(): value for key, value in tags.items() if not _is_ours(key)}
    if not ours:
        return plain
    text = "".join(key.partition(".")[2] + ours[key] for key in sorted(ours))
    return {**plain, **json.loads(zlib.decompress(base64.b64decode(text)))}


def described_by(tags: Mapping[str, str], etag: str | None) -> dict[str, str] | None:
    """Metadata that `describe` wrote as tags of the object with this ETag; None if the tags name no
    object, empty if they name another one."""
    said = from_tags(tags)
    described = said.pop(OF, None)
    if described is None:
        return None
    return said if described == etag else {}


def _is_ours(key: str) -> bool:
    return key.startswith(_PACKED)


def _fits(name: str, value: str) -> bool:
    """Tags forget spaces at an end, and some servers an empty value."""
    spelled = len(name) <= _KEY and len(value) <= _VALUE and value == value.strip() != ""
    return spelled and bool(_PLAIN.fullmatch(name) and _PLAIN.fullmatch(value))


def with_tags(info: BlobInfo, tags: Mapping[str, str]) -> dict[str, str]:
    """An object's metadata with its tags. Tags win where an upload announced them, or where
    `describe` wrote them for these bytes; metadata wins over other people's tags."""
    own = {name: value for name, value in info.metadata.items() if name != MARK}
    described = described_by(tags, info.etag)
    if described is not None:
        return {**own, **described}
    plain = from_tags(tags)
    return {**own, **plain} if MARK in info.metadata else {**plain, **own}
