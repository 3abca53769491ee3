"""Encode, digest, put and parse the JSON records that make a bucket self-describing.

A record is encoded from the catalog's row alone, so any process can finish a write that another one
began. The envelope is frozen (`docs/decisions/0001-frozen-formats.md`).

Parsing raises DamagedObjectError if the bytes are no record of their key, if a member has the wrong
type, or if the digest differs.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import orjson
from msgspec import Struct, field
from msgspec.json import Encoder

from pipelines.formats import version_from_us, version_to_us
from storage import json_codec
from storage.catalog import bundles, files
from storage.catalog.collections import Collection
from storage.catalog.files import NewFileVersion
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import AlreadyExists, DamagedObjectError, NotFoundError
from storage.keys import MarkerKey, RecordKey
from storage.model import FQID, REPLICAS, Checksums, CollectionLink, ManifestEntry, Replica
from storage.protocols import BlobStore

FORMAT = "store-record/1"
CONTENT_TYPE = "application/json"


def _encode_sorted(value: Any) -> bytes:
    return json_codec.encode(value, sort_keys=True)


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
    return _encode_sorted(value).decode()


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


def encode_file_record(row: files.FileRow) -> bytes:
    """Return the record of a file."""
    sums = row.file.checksums
    return _encode_sorted(
        {
            **_make_envelope("file", row.file.fqid, row.digest, row.file.created_us, row.event_id),
            "origin": row.file.origin,
            "author": row.author,
            "creator_uid": row.file.creator_uid,
            "content_type": row.file.content_type,
            "size": row.file.size,
            "sha1": sums.sha1,
            "sha256": sums.sha256,
            "crc32c": sums.crc32c,
            "s3_etag": sums.s3_etag,
        }
    )


def encode_bundle_record(row: bundles.BundleRow, manifest_json: bytes) -> bytes:
    """Return the record of a bundle, with its manifest."""
    bundle = row.bundle
    head = _encode_sorted(
        {
            **_make_envelope("bundle", bundle.fqid, row.digest, bundle.created_us, row.event_id),
            "origin": bundle.origin,
            "author": row.author,
            "parent": bundle.parent,
        }
    )
    # The manifest is encoded once for the response and the record.
    return b"".join([head[:-1], b',"manifest":', manifest_json, b"}"])


def encode_collection_record(row: Collection, links: Iterable[CollectionLink]) -> bytes:
    """Return the record of a collection, with all of its links."""
    return _encode_sorted(
        {
            **_make_envelope("collection", row.fqid, row.digest, row.created_us, row.event_id),
            "origin": row.origin,
            "author": row.owner,
            "owner": row.owner,
            "parent": row.parent,
            "name": row.name,
            "description": row.description,
            "details": orjson.Fragment(row.details),
            "contents": [format_link(link) for link in links],
        }
    )


def format_link(link: CollectionLink) -> dict[str, str]:
    """Return a link as the specification shows it."""
    value = {"type": link.type, "uuid": link.target.uuid, "version": link.target.version}
    return value if link.path is None else {**value, "path": link.path}


def encode_marker_record(row: Tombstone | Purge) -> bytes:
    """Return the record of a tombstone, or of a purge marker."""
    kind = "tombstone" if isinstance(row, Tombstone) else "purge"
    fqid = FQID(row.uuid, row.version)
    return _encode_sorted(
        {
            **_make_envelope(kind, fqid, row.digest, row.created_us, row.event_id),
            "origin": row.origin,
            "author": row.author,
            "of": row.kind,
            "reason": row.reason,
        }
    )


def _make_envelope(
    kind: str, fqid: FQID, digest: str, created_us: int, event_id: str
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": kind,
        "uuid": fqid.uuid,
        "version": fqid.version,
        "digest": digest,
        "created": version_from_us(created_us),
        "event_id": event_id,
    }


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


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What the records of all kinds of versions share."""

    fqid: FQID
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int


@dataclass(frozen=True, slots=True)
class FileRecord(VersionRecord):
    """A file as its record describes it."""

    creator_uid: int
    content_type: str
    size: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class BundleRecord(VersionRecord):
    """A bundle as its record describes it; entries are (name, file, indexed) in manifest order."""

    creator_uid: int
    parent: str | None
    entries: tuple[tuple[str, FQID, bool], ...]


@dataclass(frozen=True, slots=True)
class CollectionRecord(VersionRecord):
    """A collection as its record describes it."""

    owner: str
    parent: str | None
    name: str
    description: str
    details: Mapping[str, Any]
    contents: tuple[CollectionLink, ...]


def parse_file_record(key: RecordKey, data: bytes) -> FileRecord:
    """Parse the record of a file; raise Damaged."""
    members = _decode_record(data, "file", key.fqid)
    with _raise_damaged(str(key.fqid)):
        sums = Checksums(members["sha1"], members["sha256"], members["crc32c"], members["s3_etag"])
        _require_texts(members["content_type"], sums.sha1, sums.sha256, sums.crc32c, sums.s3_etag)
        _require_numbers(members["creator_uid"], members["size"])
        record = FileRecord(
            **_parse_common(members, key.fqid),
            creator_uid=members["creator_uid"],
            content_type=members["content_type"],
            size=members["size"],
            checksums=sums,
        )
        digest = file_digest(record.creator_uid, record.content_type, record.size, sums)
    return _check_digest(record, digest)


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
    """Parse the record of a bundle; raise Damaged."""
    members = _decode_record(data, "bundle", key.fqid)
    with _raise_damaged(str(key.fqid)):
        manifest = members["manifest"]
        entries = tuple(
            (line["name"], FQID(line["uuid"], line["version"]), line["indexed"])
            for line in manifest["files"]
        )
        _require_texts(
            members["parent"] or "", *(text for name, file, _ in entries for text in (name, *file))
        )
        _require_numbers(manifest["creator_uid"])
        _require_flags(indexed for _, _, indexed in entries)
        record = BundleRecord(
            **_parse_common(members, key.fqid),
            creator_uid=manifest["creator_uid"],
            parent=members["parent"],
            entries=entries,
        )
        digest = bundle_digest(record.creator_uid, entries)
    return _check_digest(record, digest)


def parse_collection_record(key: RecordKey, data: bytes) -> CollectionRecord:
    """Parse the record of a collection; raise Damaged."""
    members = _decode_record(data, "collection", key.fqid)
    with _raise_damaged(str(key.fqid)):
        contents = tuple(
            CollectionLink(line["type"], FQID(line["uuid"], line["version"]), line.get("path"))
            for line in members["contents"]
        )
        own = {
            name: members[name] for name in ("owner", "parent", "name", "description", "details")
        }
        _require_texts(own["owner"], own["parent"] or "", own["name"], own["description"])
        for link in contents:
            _require_texts(link.type, *link.target, link.path or "")
        record = CollectionRecord(**_parse_common(members, key.fqid), **own, contents=contents)
        digest = collection_digest(
            record.owner, record.name, record.description, record.details, contents
        )
    return _check_digest(record, digest)


def parse_tombstone_record(key: MarkerKey, data: bytes) -> Tombstone:
    """Parse the record of a tombstone; raise Damaged."""
    record = Tombstone(**_parse_marker(key, data, "tombstone"))
    digest = tombstone_digest(record.kind, record.uuid, record.version, record.reason)
    return _check_digest(record, digest)


def parse_purge_record(key: MarkerKey, data: bytes) -> Purge:
    """Parse the record of a purge marker; raise Damaged."""
    record = Purge(**_parse_marker(key, data, "purge"), finished_us=None)
    digest = purge_digest(record.kind, record.uuid, record.version, record.reason)
    return _check_digest(record, digest)


def _parse_marker(key: MarkerKey, data: bytes, kind: str) -> dict[str, Any]:
    """Return the members that tombstones and purge markers share."""
    fqid = FQID(key.uuid, key.version or "")
    members = _decode_record(data, kind, fqid)
    with _raise_damaged(str(fqid)):
        _require_texts(members["reason"])
        if members["of"] != key.kind:
            raise DamagedObjectError(f"The marker of {key.kind} {key.uuid} is for another kind.")
        own = {
            "kind": key.kind,
            "reason": members["reason"],
            **_parse_provenance(members),
        }
    return {"id": 0, **fqid._asdict(), **own}


def _decode_record(data: bytes, kind: str, fqid: FQID) -> Mapping[str, Any]:
    try:
        members: Mapping[str, Any] = json_codec.decode(data)
        names = (members["format"], members["kind"], members["uuid"], members["version"])
        # A key may have a date that does not exist.
        if fqid.version:
            version_to_us(fqid.version)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedObjectError(f"The object at {kind} {fqid} is no record.") from error
    if names != (FORMAT, kind, *fqid):
        raise DamagedObjectError(f"The object at {kind} {fqid} is the record of something else.")
    return members


def _parse_common(members: Mapping[str, Any], fqid: FQID) -> dict[str, Any]:
    return {"fqid": fqid, **_parse_provenance(members)}


def _require_texts(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("must be a string")


def _require_numbers(*values: object) -> None:
    if not all(type(value) is int and 0 <= value < 2**63 for value in values):
        raise TypeError("must be an integer from 0 to 2**63 - 1")


def _require_flags(values: Iterable[object]) -> None:
    if not all(isinstance(value, bool) for value in values):
        raise TypeError("must be a boolean")


def _parse_provenance(members: Mapping[str, Any]) -> dict[str, Any]:
    _require_texts(members["author"], members["event_id"])
    return {
        "digest": members["digest"],
        "origin": next(replica for replica in REPLICAS if replica == members["origin"]),
        "author": members["author"],
        "event_id": members["event_id"],
        "created_us": version_to_us(members["created"]),
    }


@contextmanager
def _raise_damaged(name: str) -> Iterator[None]:
    """Raise Damaged for missing members and for members of the wrong type."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise DamagedObjectError(f"The record of {name} cannot be read.") from error


Record = TypeVar("Record", FileRecord, BundleRecord, CollectionRecord, Tombstone, Purge)


def _check_digest(record: Record, digest: str) -> Record:
    if record.digest != digest:
        raise DamagedObjectError(f"The digest of a record is {digest}, not {record.digest}.")
    return record
