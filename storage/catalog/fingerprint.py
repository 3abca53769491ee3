"""Fingerprints: what a catalog says of one replica's data, as one digest for each part of it.

Two catalogs of the same data have the same, whatever ids and times of looking they have: rows are
named by what they are, and ordered by that. What no bucket can tell is left out; decision 0023 says
what that is, and why.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from storage.catalog.engine import Tx, sql
from storage.model import Replica

PAGE = 10_000

_HERE = (
    "JOIN presence AS p ON p.kind = '{kind}' AND p.id = t.id AND p.replica = :replica"
    " AND NOT p.diverged"
)
_VERSION = "t.uuid, t.version, t.digest, t.origin"
_MARK = "t.kind, t.uuid, t.version, t.reason, t.author, t.origin, t.digest, t.event_id"

PARTS: dict[str, str] = {
    "files": f"SELECT {_VERSION}, t.creator_uid, t.author, t.content_type, t.s3_etag, t.event_id,"
    " t.created_us, b.sha256, b.sha1, b.crc32c, b.s3_etag AS blob_etag, b.size FROM files AS t"
    f" {_HERE.format(kind='file')} JOIN blobs AS b ON b.id = t.blob_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "blobs": "SELECT b.sha256, b.size FROM blob_replicas AS r JOIN blobs AS b ON b.id = r.blob_id"
    " WHERE r.replica = :replica AND r.state = 'present' ORDER BY b.sha256",
    "bundles": f"SELECT {_VERSION}, t.creator_uid, t.author, t.parent, t.file_count, t.event_id,"
    f" t.created_us FROM bundles AS t {_HERE.format(kind='bundle')}"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "entries": "SELECT t.uuid, t.version, s.start + e.position AS ordinal, e.name,"
    " f.uuid AS file_uuid, f.version AS file_version, CAST(e.indexed AS integer) AS indexed"
    f" FROM bundles AS t {_HERE.format(kind='bundle')}"
    " JOIN bundle_segments AS s ON s.bundle_id = t.id"
    " JOIN entries AS e ON e.segment_id = s.segment_id JOIN files AS f ON f.id = e.file_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version, ordinal",
    "collections": f"SELECT {_VERSION}, t.owner, t.parent, t.name, t.description, t.details,"
    f" t.event_id, t.created_us FROM collections AS t {_HERE.format(kind='collection')}"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "links": "SELECT t.uuid, t.version, s.position, l.links FROM collections AS t"
    f" {_HERE.format(kind='collection')} JOIN collection_segments AS s ON s.collection_id = t.id"
    " JOIN link_segments AS l ON l.id = s.segment_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version, s.position",
    "owned": "SELECT t.owner, t.uuid, t.version FROM owned AS t JOIN visible AS v"
    " ON v.kind = 'collection' AND v.replica = :replica AND v.uuid = t.uuid"
    " AND v.version = t.version ORDER BY t.owner, t.uuid, t.version",
    "visible": "SELECT kind, uuid, version FROM visible WHERE replica = :replica"
    " ORDER BY kind, uuid, version",
    "tombstones": f"SELECT {_MARK}, t.created_us FROM tombstones AS t"
    f" {_HERE.format(kind='tombstone')} ORDER BY t.kind, t.uuid, t.version",
    "purges": f"SELECT {_MARK}, t.created_us FROM purges AS t"
    " JOIN purge_replicas AS r ON r.purge_id = t.id AND r.replica = :replica"
    " AND r.marked_us IS NOT NULL ORDER BY t.kind, t.uuid, t.version",
    "events": "SELECT t.id, t.replica, t.type, t.uuid, t.version, t.at_us, t.seq, t.seq_us,"
    " t.byte_offset, t.byte_size, CASE WHEN t.bundle_id = 0 THEN 0 ELSE 1 END AS leads"
    " FROM events AS t WHERE t.byte_offset IS NOT NULL ORDER BY t.replica, t.seq",
    "journals": "SELECT replica, first_seq, last_seq, generation, size FROM journals"
    " WHERE state = 'current' ORDER BY replica, first_seq",
}
"""Each part's rows, in an order of their own."""


@dataclass(frozen=True, slots=True)
class Part:
    """How many rows a part has, and their digest."""

    name: str
    rows: int
    sha256: str


def of(tx: Tx, replica: Replica) -> Iterator[Part]:
    """The parts of what a catalog knows to be in a replica; memory holds one page of rows."""
    for name, statement in PARTS.items():
        count, digest = 0, hashlib.sha256()
        paged = {"yield_per": PAGE}
        rows = tx.execute(sql(statement), {"replica": replica}, execution_options=paged)
        for row in rows:
            count += 1
            digest.update(_line(name, tuple(row)))
        yield Part(name, count, digest.hexdigest())


def _line(name: str, row: tuple[object, ...]) -> bytes:
    if name == "links":
        # Where a list was cut into segments is the catalog's own affair.
        *version, _, links = row
        each = [[*version, *link] for link in orjson.loads(str(links))]
        return b"".join(orjson.dumps(link) + b"\n" for link in each)
    return orjson.dumps(row) + b"\n"
