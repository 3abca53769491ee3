"""The small JSON records that make a bucket self-describing: byte for byte the same everywhere.

A record is made from the catalog's row alone, so that any process may finish another's writing.
The envelope is frozen (`docs/decisions/0001-frozen-formats.md`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.json import Encoder

from pipelines.formats import version_at
from storage import json_codec
from storage.catalog import bundles, files
from storage.catalog.collections import Collection
from storage.catalog.purges import Purge
from storage.catalog.tombstones import Tombstone
from storage.model import FQID, Checksums, Entry, Link

FORMAT = "store-record/1"
CONTENT_TYPE = "application/json"


def _dump(value: Any) -> bytes:
    return json_codec.encode(value, sort_keys=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json_codec.encode(value, sort_keys=True)).hexdigest()


def file_digest(creator_uid: int, content_type: str, size: int, checksums: Checksums) -> str:
    """What two files must share to be the same content: not the source's address."""
    sums = [checksums.sha1, checksums.sha256, checksums.crc32c, checksums.s3_etag]
    return _digest([creator_uid, content_type, size, *sums])


def bundle_digest(creator_uid: int, rows: Iterable[tuple[str, tuple[str, str], bool]]) -> str:
    """The same for manifests of (name, file, indexed); their order does not matter."""
    # A text for each truth value: formatting one takes as long as all the rest.
    said = ("False", "True")
    lines = [
        f"{name}\0{uuid}\0{version}\0{said[indexed]}" for name, (uuid, version), indexed in rows
    ]
    return _digest([creator_uid, *sorted(lines)])


def collection_digest(
    owner: str, name: str, description: str, details: Mapping[str, Any], links: Iterable[Link]
) -> str:
    """The same for collections; the order of their links does not matter."""
    lines = sorted(_line(link) for link in links)
    return _digest([owner, name, description, details, lines])


def _line(link: Link) -> list[str]:
    """Type, uuid, version, and a path if there is one: an empty one names a whole document."""
    return [link.type, *link.target, *([] if link.path is None else [link.path])]


def details(value: Mapping[str, Any]) -> str:
    """A collection's details as the catalog keeps them."""
    return _dump(value).decode()


def request_digest(value: Any) -> str:
    """The same for requests: JSON of all that one asks for."""
    return _digest(value)


def tombstone_digest(kind: str, uuid: str, version: str, reason: str) -> str:
    """The same for tombstones."""
    return _digest([kind, uuid, version, reason])


def purge_digest(kind: str, uuid: str, version: str, reason: str) -> str:
    """The same for purge markers."""
    return _digest(["purge", kind, uuid, version, reason])


def stored_entries(entries: Sequence[Entry]) -> list[dict[str, Any]]:
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


class _Line(Struct, gc=False):
    """The same entry while it becomes JSON. Members are in the order of their names, which
    `manifest` relies on."""

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


def entries_json(
    entries: Sequence[tuple[str, tuple[str, str], bool]], facts: bundles.Facts
) -> bytes:
    """The JSON of entries (name, file, indexed) with what their files know, separated by commas."""
    # Column by column: neither rows nor dictionaries are made of thousands of entries.
    first, second, third = map(itemgetter, range(3))
    files_of = [*map(second, entries)]
    content_type, size, sha1, sha256, crc32c, s3_etag = facts
    lines = map(
        _Line,
        *(content_type, crc32c, map(third, entries), map(first, entries), s3_etag),
        *(sha1, sha256, size, map(first, files_of), map(second, files_of)),
    )
    return _ENCODER.encode([*lines])[1:-1]


_ENCODER = Encoder()


def stored_json(entries: Sequence[Entry]) -> bytes:
    """The same of entries that were read back from the catalog."""
    rows = [(entry.name, entry.file, entry.indexed) for entry in entries]
    sums = [entry.checksums for entry in entries]
    facts: list[Sequence[Any]] = [
        [entry.content_type for entry in entries],
        [entry.size for entry in entries],
        *([*map(attrgetter(name), sums)] for name in ("sha1", "sha256", "crc32c", "s3_etag")),
    ]
    return entries_json(rows, facts)


def manifest(creator_uid: int, *runs: bytes) -> bytes:
    """The manifest of a bundle as JSON, of runs of entries as JSON, in manifest order."""
    # As sorted as every record, without sorting ten members of each of 20,000 entries.
    files_json = b",".join(filter(None, runs))
    return b'{"creator_uid":%d,"files":[%b]}' % (creator_uid, files_json)


def of_file(row: files.Reserved) -> bytes:
    """A file's record."""
    sums = row.file.checksums
    return _dump(
        {
            **_envelope("file", row.file.fqid, row.digest, row.file.created_us, row.event_id),
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


def of_bundle(row: bundles.Reserved, manifest_json: bytes) -> bytes:
    """A bundle's record, with its full entries."""
    bundle = row.bundle
    head = _dump(
        {
            **_envelope("bundle", bundle.fqid, row.digest, bundle.created_us, row.event_id),
            "origin": bundle.origin,
            "author": row.author,
            "parent": bundle.parent,
        }
    )
    # The manifest is serialised once for the answer and the record.
    return b"".join([head[:-1], b',"manifest":', manifest_json, b"}"])


def of_collection(row: Collection, links: Iterable[Link]) -> bytes:
    """A collection's record, with all of its links."""
    return _dump(
        {
            **_envelope("collection", row.fqid, row.digest, row.created_us, row.event_id),
            "origin": row.origin,
            "author": row.owner,
            "owner": row.owner,
            "parent": row.parent,
            "name": row.name,
            "description": row.description,
            "details": orjson.Fragment(row.details),
            "contents": [item(link) for link in links],
        }
    )


def item(link: Link) -> dict[str, str]:
    """A link as the specification shows it."""
    shown = {"type": link.type, "uuid": link.target.uuid, "version": link.target.version}
    return shown if link.path is None else {**shown, "path": link.path}


def of_tombstone(row: Tombstone) -> bytes:
    """A tombstone's record."""
    return _marker("tombstone", row)


def of_purge(row: Purge) -> bytes:
    """A purge marker's record."""
    return _marker("purge", row)


def _marker(kind: str, row: Tombstone | Purge) -> bytes:
    fqid = FQID(row.uuid, row.version)
    return _dump(
        {
            **_envelope(kind, fqid, row.digest, row.created_us, row.event_id),
            "origin": row.origin,
            "author": row.author,
            "of": row.kind,
            "reason": row.reason,
        }
    )


def _envelope(kind: str, fqid: FQID, digest: str, created_us: int, event_id: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": kind,
        "uuid": fqid.uuid,
        "version": fqid.version,
        "digest": digest,
        "created": version_at(created_us),
        "event_id": event_id,
    }
