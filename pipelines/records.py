"""Encode, digest, put and parse the JSON records that make a bucket self-describing.

A record is encoded from the catalog's row alone, so any process can finish a write that another one
began. The envelope is frozen (`docs/decisions/0001-frozen-formats.md`).

Parsing raises DamagedObjectError if the bytes are no record of their key, if a member has the wrong
type, or if the digest differs.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from msgspec import Meta, Raw, Struct, field
from msgspec.json import Encoder

from pipelines.formats import version_from_us, version_to_us
from storage import json_codec
from storage.catalog import bundles
from storage.catalog.collections import Collection
from storage.catalog.files import NewFileVersion
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import AlreadyExists, DamagedObjectError, NotFoundError
from storage.keys import MarkerKey, RecordKey
from storage.model import (
    FQID,
    BundleVersion,
    Checksums,
    CollectionLink,
    FileVersion,
    ManifestEntry,
    Replica,
)
from storage.protocols import BlobStore

FORMAT = "store-record/1"
CONTENT_TYPE = "application/json"


def _hash_json(value: Any) -> str:
    return hashlib.sha256(json_codec.encode(value, sort_keys=True)).hexdigest()


def file_digest(creator_uid: int, content_type: str, size: int, checksums: Checksums) -> str:
    """Return the digest that files of equal content share, whatever their source."""
    sums = [checksums.sha1, checksums.sha256, checksums.crc32c, checksums.s3_etag]
    return _hash_json([creator_uid, content_type, size, *sums])


def bundle_digest(creator_uid: int, rows: Iterable[tuple[str, tuple[str, str], bool]]) -> str:
    """Return the digest that bundles of equal entries share, in any order."""
    # Formatting a boolean would take as long as all the rest.
    flags = ("False", "True")
    lines = [
        f"{name}\0{uuid}\0{version}\0{flags[indexed]}" for name, (uuid, version), indexed in rows
    ]
    return _hash_json([creator_uid, *sorted(lines)])


def collection_digest(
    owner: str,
    name: str,
    description: str,
    details: Mapping[str, Any],
    links: Iterable[CollectionLink],
) -> str:
    """Return the digest that collections of equal content share, their links in any order."""
    lines = sorted(
        [link.type, *link.target, *([] if link.path is None else [link.path])] for link in links
    )
    return _hash_json([owner, name, description, details, lines])


def encode_details(value: Mapping[str, Any]) -> str:
    """Return a collection's details as JSON for the catalog."""
    return json_codec.encode(value, sort_keys=True).decode()


def request_digest(value: Any) -> str:
    """Return the digest of a request, from all of its content."""
    return _hash_json(value)


def tombstone_digest(kind: str, uuid: str, version: str, reason: str) -> str:
    """Return the digest of a tombstone."""
    return _hash_json([kind, uuid, version, reason])


def purge_digest(kind: str, uuid: str, version: str, reason: str) -> str:
    """Return the digest of a purge marker."""
    return _hash_json(["purge", kind, uuid, version, reason])


def format_entries(entries: Sequence[ManifestEntry]) -> list[dict[str, Any]]:
    """Return file entries as the specification shows them."""
    return [
        {
            "content-type": entry.content_type,
            "crc32c": entry.checksums.crc32c,
            "indexed": entry.indexed,
            "name": entry.name,
            "s3_etag": entry.checksums.s3_etag,
            "sha1": entry.checksums.sha1,
            "sha256": entry.checksums.sha256,
            "size": entry.size,
            "uuid": entry.file.uuid,
            "version": entry.file.version,
        }
        for entry in entries
    ]


class _EntryLine(Struct, gc=False):
    """An entry of a manifest as JSON; members must stay in the order of their names."""

    content_type: str = field(name="content-type")
    crc32c: str
    indexed: bool
    name: str
    s3_etag: str
    sha1: str
    sha256: str
    size: int
    uuid: str
    version: str


def encode_entries(
    entries: Sequence[tuple[str, tuple[str, str], bool]], facts: bundles.FileFacts
) -> bytes:
    """Return the JSON of entries (name, file, indexed) and their facts, separated by commas."""
    # Column by column, to build neither rows nor dictionaries of thousands of entries.
    first, second, third = map(itemgetter, range(3))
    file_keys = [*map(second, entries)]
    content_type, size, sha1, sha256, crc32c, s3_etag = facts
    lines = map(
        _EntryLine,
        *(content_type, crc32c, map(third, entries), map(first, entries), s3_etag),
        *(sha1, sha256, size, map(first, file_keys), map(second, file_keys)),
    )
    return _ENCODER.encode([*lines])[1:-1]


_ENCODER = Encoder()


def encode_stored_entries(entries: Sequence[ManifestEntry]) -> bytes:
    """Return the JSON of entries that were read from the catalog."""
    rows = [(entry.name, entry.file, entry.indexed) for entry in entries]
    sums = [entry.checksums for entry in entries]
    facts: list[Sequence[Any]] = [
        [entry.content_type for entry in entries],
        [entry.size for entry in entries],
        *([*map(attrgetter(name), sums)] for name in ("sha1", "sha256", "crc32c", "s3_etag")),
    ]
    return encode_entries(rows, facts)


def encode_manifest(creator_uid: int, *runs: bytes) -> bytes:
    """Return a bundle's manifest as JSON, from runs of entries as JSON in manifest order."""
    # Sorted like every record, without sorting the members of 20,000 entries.
    files_json = b",".join(filter(None, runs))
    return b'{"creator_uid":%d,"files":[%b]}' % (creator_uid, files_json)


def encode_file_record(row: FileVersion) -> bytes:
    """Return the record of a file."""
    return _encode_record(
        "file",
        row.fqid,
        row,
        created_us=row.created_us,
        origin=row.origin,
        author=row.author,
        creator_uid=row.creator_uid,
        content_type=row.content_type,
        size=row.size,
        sha1=row.checksums.sha1,
        sha256=row.checksums.sha256,
        crc32c=row.checksums.crc32c,
        s3_etag=row.checksums.s3_etag,
    )


def encode_bundle_record(row: BundleVersion, manifest_json: bytes) -> bytes:
    """Return the record of a bundle, with its manifest."""
    head = _encode_record(
        "bundle",
        row.fqid,
        row,
        created_us=row.created_us,
        origin=row.origin,
        author=row.author,
        parent=row.parent,
    )
    # The manifest is encoded once for the response and the record.
    return b"".join([head[:-1], b',"manifest":', manifest_json, b"}"])


def encode_collection_record(row: Collection, links: Iterable[CollectionLink]) -> bytes:
    """Return the record of a collection, with all of its links."""
    return _encode_record(
        "collection",
        row.fqid,
        row,
        created_us=row.created_us,
        origin=row.origin,
        author=row.owner,
        owner=row.owner,
        parent=row.parent,
        name=row.name,
        description=row.description,
        details=orjson.Fragment(row.details),
        contents=[format_link(link) for link in links],
    )


def format_link(link: CollectionLink) -> dict[str, str]:
    """Return a link as the specification shows it."""
    value = {"type": link.type, "uuid": link.target.uuid, "version": link.target.version}
    return value if link.path is None else {**value, "path": link.path}


def encode_marker_record(row: Tombstone | Purge) -> bytes:
    """Return the record of a tombstone, or of a purge marker."""
    return _encode_record(
        "tombstone" if isinstance(row, Tombstone) else "purge",
        FQID(row.uuid, row.version),
        row,
        created_us=row.created_us,
        origin=row.origin,
        author=row.author,
        of=row.kind,
        reason=row.reason,
    )


def _encode_record(
    record_kind: str,
    fqid: FQID,
    row: FileVersion | BundleVersion | Collection | Tombstone | Purge,
    *,
    created_us: int,
    **members: Any,
) -> bytes:
    envelope = {
        "format": FORMAT,
        "kind": record_kind,
        "uuid": fqid.uuid,
        "version": fqid.version,
        "digest": row.digest,
        "created": version_from_us(created_us),
        "event_id": row.event_id,
    }
    return json_codec.encode(envelope | members, sort_keys=True)


log = logging.getLogger(__name__)


def read_object(blobs: BlobStore, key: str) -> bytes:
    """Return all bytes of a small object."""
    return b"".join(blobs.read(key))


def has_object(blobs: BlobStore, key: str) -> bool:
    """Return whether an object exists."""
    try:
        blobs.head(key)
    except NotFoundError:
        return False
    return True


def put_if_absent(blobs: BlobStore, key: str, data: bytes, *, content_type: str) -> bool:
    """Put an object; return False if one with other bytes exists, which stays."""
    try:
        blobs.put(key, data, content_type=content_type)
    except AlreadyExists:
        if read_object(blobs, key) != data:
            log.warning("%s has other bytes than the catalog expects", blobs.direct_url(key))
            return False
    return True


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class VersionRecord(Struct):
    """The members of every record."""

    format: str
    kind: str
    uuid: str
    version: str
    digest: str
    created: str
    event_id: str
    origin: Replica
    author: str

    @property
    def fqid(self) -> FQID:
        """The version that the record describes."""
        return FQID(self.uuid, self.version)

    @property
    def created_us(self) -> int:
        """When the version was written, in microseconds since 1970."""
        return version_to_us(self.created)


class FileRecord(VersionRecord):
    """A file as its record describes it."""

    creator_uid: Number
    content_type: str
    size: Number
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str

    @property
    def checksums(self) -> Checksums:
        """The checksums of the file's bytes."""
        return Checksums(self.sha1, self.sha256, self.crc32c, self.s3_etag)


class _EntryMembers(Struct):
    name: str
    uuid: str
    version: str
    indexed: bool


class _ManifestMembers(Struct):
    creator_uid: Number
    files: list[_EntryMembers]


class BundleRecord(VersionRecord, dict=True):
    """A bundle as its record describes it."""

    parent: str | None
    manifest: _ManifestMembers

    @property
    def creator_uid(self) -> int:
        """The creator's number."""
        return self.manifest.creator_uid

    @cached_property
    def entries(self) -> list[tuple[str, FQID, bool]]:
        """The entries (name, file, indexed) in manifest order."""
        return [(one.name, FQID(one.uuid, one.version), one.indexed) for one in self.manifest.files]


class _LinkMembers(Struct):
    type: str
    uuid: str
    version: str
    path: str | None = None


class CollectionRecord(VersionRecord, dict=True):
    """A collection as its record describes it."""

    owner: str
    parent: str | None
    name: str
    description: str
    raw_details: Raw = field(name="details")
    links: list[_LinkMembers] = field(name="contents")

    @cached_property
    def details(self) -> Any:
        """The details, with exact integers; raise ValueError if they are not JSON."""
        return json_codec.decode(bytes(self.raw_details))

    @cached_property
    def contents(self) -> list[CollectionLink]:
        """The links in order."""
        return [
            CollectionLink(link.type, FQID(link.uuid, link.version), link.path)
            for link in self.links
        ]


class _MarkerRecord(VersionRecord):
    reason: str
    of: str


def parse_file_record(key: RecordKey, data: bytes) -> FileRecord:
    """Parse the record of a file; raise DamagedObjectError."""
    record = _decode_record(data, "file", key.fqid, FileRecord)
    _check_digest(
        record,
        file_digest(record.creator_uid, record.content_type, record.size, record.checksums),
    )
    return record


def make_file_row(record: FileRecord) -> NewFileVersion:
    """Return the catalog row of a file's record."""
    return NewFileVersion(
        fqid=record.fqid,
        digest=record.digest,
        origin=record.origin,
        creator_uid=record.creator_uid,
        author=record.author,
        content_type=record.content_type,
        size=record.size,
        checksums=record.checksums,
        blob_etag=record.checksums.s3_etag,
        event_id=record.event_id,
    )


def parse_bundle_record(key: RecordKey, data: bytes) -> BundleRecord:
    """Parse the record of a bundle; raise DamagedObjectError."""
    record = _decode_record(data, "bundle", key.fqid, BundleRecord)
    _check_digest(record, bundle_digest(record.creator_uid, record.entries))
    return record


def parse_collection_record(key: RecordKey, data: bytes) -> CollectionRecord:
    """Parse the record of a collection; raise DamagedObjectError."""
    record = _decode_record(data, "collection", key.fqid, CollectionRecord)
    try:
        details = record.details
    except ValueError as error:
        raise DamagedObjectError(f"The details of collection {key.fqid} are not JSON.") from error
    _check_digest(
        record,
        collection_digest(record.owner, record.name, record.description, details, record.contents),
    )
    return record


def parse_tombstone_record(key: MarkerKey, data: bytes) -> Tombstone:
    """Parse the record of a tombstone; raise DamagedObjectError."""
    return Tombstone(**_parse_marker(key, data, "tombstone", tombstone_digest))


def parse_purge_record(key: MarkerKey, data: bytes) -> Purge:
    """Parse the record of a purge marker; raise DamagedObjectError."""
    return Purge(**_parse_marker(key, data, "purge", purge_digest), finished_us=None)


def _parse_marker(
    key: MarkerKey, data: bytes, kind: str, digest: Callable[[str, str, str, str], str]
) -> dict[str, Any]:
    """Return the members that tombstones and purge markers share."""
    record = _decode_record(data, kind, FQID(key.uuid, key.version or ""), _MarkerRecord)
    if record.of != key.kind:
        raise DamagedObjectError(f"The marker of {key.kind} {key.uuid} is for another kind.")
    _check_digest(record, digest(key.kind, *record.fqid, record.reason))
    same = ("uuid", "version", "reason", "digest", "origin", "author", "event_id", "created_us")
    return {"id": 0, "kind": key.kind, **{name: getattr(record, name) for name in same}}


Record = TypeVar("Record", bound=VersionRecord)


def _decode_record(data: bytes, kind: str, fqid: FQID, record_type: type[Record]) -> Record:
    """Decode the record of a version; raise DamagedObjectError if it is another's."""
    try:
        record = msgspec.json.decode(data, type=record_type)
        # A key may have a date that does not exist.
        for version in (fqid.version or record.created, record.created):
            version_to_us(version)
    except (ValueError, RecursionError) as error:
        raise DamagedObjectError(f"The object at {kind} {fqid} is no record: {error}.") from error
    if (record.format, record.kind, *record.fqid) != (FORMAT, kind, *fqid):
        raise DamagedObjectError(f"The object at {kind} {fqid} is the record of something else.")
    return record


def _check_digest(record: VersionRecord, digest: str) -> None:
    if record.digest != digest:
        raise DamagedObjectError(f"The digest of a record is {digest}, not {record.digest}.")
