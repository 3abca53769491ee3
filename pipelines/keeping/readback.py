"""Reading records back: from a bucket's bytes to what the catalog keeps, with the digest checked.

The other direction of `records.py`. Damaged is raised for what is no record of its key, and for
values of the wrong kind, of which a digest says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines.formats import us_of
from pipelines.keeping import records
from storage import json_codec
from storage.catalog.files import NewFile
from storage.catalog.purges import Purge
from storage.catalog.tombstones import Tombstone
from storage.errors import Damaged
from storage.keys import MarkKey, RecordKey
from storage.model import FQID, REPLICAS, Checksums, Link, Replica


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as its record tells of it."""

    fqid: FQID
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int
    creator_uid: int
    content_type: str
    size: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """A bundle as its record tells of it; entries are (name, file, indexed) in manifest order."""

    fqid: FQID
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int
    creator_uid: int
    parent: str | None
    entries: tuple[tuple[str, FQID, bool], ...]


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A collection as its record tells of it."""

    fqid: FQID
    digest: str
    origin: Replica
    author: str
    event_id: str
    created_us: int
    owner: str
    parent: str | None
    name: str
    description: str
    details: Mapping[str, Any]
    contents: tuple[Link, ...]


def file(key: RecordKey, data: bytes) -> FileRecord:
    """The file's record under this key."""
    told = _told(data, "file", key.fqid)
    with _reading(str(key.fqid)):
        sums = Checksums(told["sha1"], told["sha256"], told["crc32c"], told["s3_etag"])
        _texts(told["content_type"], sums.sha1, sums.sha256, sums.crc32c, sums.s3_etag)
        _numbers(told["creator_uid"], told["size"])
        found = FileRecord(
            **_common(told, key.fqid),
            creator_uid=told["creator_uid"],
            content_type=told["content_type"],
            size=told["size"],
            checksums=sums,
        )
        digest = records.file_digest(found.creator_uid, found.content_type, found.size, sums)
    return _checked(found, digest)


def file_row(found: FileRecord) -> NewFile:
    """The row that a file's record tells of."""
    return NewFile(
        fqid=found.fqid,
        digest=found.digest,
        origin=found.origin,
        creator_uid=found.creator_uid,
        author=found.author,
        content_type=found.content_type,
        size=found.size,
        checksums=found.checksums,
        blob_etag=found.checksums.s3_etag,
        event_id=found.event_id,
    )


def bundle(key: RecordKey, data: bytes) -> BundleRecord:
    """The bundle's record under this key."""
    told = _told(data, "bundle", key.fqid)
    with _reading(str(key.fqid)):
        manifest = told["manifest"]
        entries = tuple(
            (line["name"], FQID(line["uuid"], line["version"]), line["indexed"])
            for line in manifest["files"]
        )
        _texts(told["parent"] or "", *(text for name, file, _ in entries for text in (name, *file)))
        _numbers(manifest["creator_uid"])
        _flags(indexed for _, _, indexed in entries)
        found = BundleRecord(
            **_common(told, key.fqid),
            creator_uid=manifest["creator_uid"],
            parent=told["parent"],
            entries=entries,
        )
        digest = records.bundle_digest(found.creator_uid, entries)
    return _checked(found, digest)


def collection(key: RecordKey, data: bytes) -> CollectionRecord:
    """The collection's record under this key."""
    told = _told(data, "collection", key.fqid)
    with _reading(str(key.fqid)):
        contents = tuple(
            Link(line["type"], FQID(line["uuid"], line["version"]), line.get("path"))
            for line in told["contents"]
        )
        same = {name: told[name] for name in ("owner", "parent", "name", "description", "details")}
        _texts(same["owner"], same["parent"] or "", same["name"], same["description"])
        for link in contents:
            _texts(link.type, *link.target, link.path or "")
        found = CollectionRecord(**_common(told, key.fqid), **same, contents=contents)
        digest = records.collection_digest(
            found.owner, found.name, found.description, found.details, contents
        )
    return _checked(found, digest)


def tombstone(key: MarkKey, data: bytes) -> Tombstone:
    """The tombstone's record under this key."""
    found = Tombstone(**_mark(key, data, "tombstone"))
    digest = records.tombstone_digest(found.kind, found.uuid, found.version, found.reason)
    return _checked(found, digest)


def purge(key: MarkKey, data: bytes) -> Purge:
    """The purge marker's record under this key."""
    found = Purge(**_mark(key, data, "purge"), finished_us=None)
    digest = records.purge_digest(found.kind, found.uuid, found.version, found.reason)
    return _checked(found, digest)


def _mark(key: MarkKey, data: bytes, kind: str) -> dict[str, Any]:
    """What markers of every kind say."""
    fqid = FQID(key.uuid, key.version or "")
    told = _told(data, kind, fqid)
    with _reading(str(fqid)):
        _texts(told["reason"])
        found = {"kind": _of(key, told), "reason": told["reason"], **_marked(told)}
    return {"id": 0, **fqid._asdict(), **found}


def _told(data: bytes, kind: str, fqid: FQID) -> Mapping[str, Any]:
    try:
        told = json_codec.decode(data)
        named = (told["format"], told["kind"], told["uuid"], told["version"])
        # A key may spell a day that no calendar has.
        if fqid.version:
            us_of(fqid.version)
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"What lies at {kind} {fqid} is no record.") from error
    if named != (records.FORMAT, kind, *fqid):
        raise Damaged(f"What lies at {kind} {fqid} is the record of something else.")
    whole: Mapping[str, Any] = told
    return whole


def _common(told: Mapping[str, Any], fqid: FQID) -> dict[str, Any]:
    return {"fqid": fqid, **_marked(told)}


def _of(key: MarkKey, told: Mapping[str, Any]) -> str:
    """The kind of what is marked: a marker of a file hides no bundle."""
    if told["of"] != key.kind:
        raise Damaged(f"The marker of {key.kind} {key.uuid} is that of another kind.")
    return key.kind


def _texts(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("not a text")


def _numbers(*values: object) -> None:
    if not all(type(value) is int and 0 <= value < 2**63 for value in values):
        raise TypeError("not a number that the catalog keeps")


def _flags(values: Iterable[object]) -> None:
    if not all(isinstance(value, bool) for value in values):
        raise TypeError("neither true nor false")


def _marked(told: Mapping[str, Any]) -> dict[str, Any]:
    _texts(told["author"], told["event_id"])
    return {
        "digest": told["digest"],
        "origin": next(replica for replica in REPLICAS if replica == told["origin"]),
        "author": told["author"],
        "event_id": told["event_id"],
        "created_us": us_of(told["created"]),
    }


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """What a record lacks, or has of the wrong kind, is damage."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise Damaged(f"The record of {name} cannot be read.") from error


Record = TypeVar("Record", FileRecord, BundleRecord, CollectionRecord, Tombstone, Purge)


def _checked(found: Record, digest: str) -> Record:
    if found.digest != digest:
        raise Damaged(f"The digest of a record is {digest}, not {found.digest}.")
    return found
