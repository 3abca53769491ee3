"""What a mirrored store answers, parsed before anything is written."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from storage.errors import Unavailable
from storage.model import EventType

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that the API accepts."""
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class SourceEvent(Struct, frozen=True):
    """An event of the other store's feed."""

    bundle_uuid: str
    bundle_version: str
    event_type: EventType
    event_timestamp: str = ""


class FeedPage(Struct, frozen=True):
    """Some events, and the cursor after them."""

    events: list[SourceEvent]
    cursor: Annotated[str, Meta(min_length=1, max_length=4096)]


class BundleEntry(Struct, frozen=True):
    """A file of a bundle of the other store."""

    uuid: str
    version: str
    name: str
    indexed: bool
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str


class MirroredBundle(Struct, frozen=True):
    """A bundle of the other store."""

    creator_uid: Integer
    files: list[BundleEntry]


class SourceBundle(Struct, frozen=True):
    """A page of a bundle."""

    bundle: MirroredBundle


class FileHeaders(Struct, frozen=True):
    """What the other store declares about a file."""

    size: Size
    creator_uid: Integer
    content_type: str
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str


T = TypeVar("T")


def decode_answer(where: str, body: bytes | bytearray, expected: type[T]) -> T:
    """Decode what a store answered; Unavailable if no store answers so."""
    try:
        return msgspec.json.decode(body, type=expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable(f"{where}: not a store's answer: {error}") from error


def parse_headers(where: str, values: Mapping[str, str]) -> FileHeaders:
    """Parse the headers of a file; Unavailable if no store answers so."""
    try:
        return msgspec.convert(values, FileHeaders, strict=False)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{where}: not a store's answer: {error}") from error
