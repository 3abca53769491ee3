"""Rebuild a catalog from a bucket's records; fingerprints and epochs.

Existing rows stay as they are: rebuilding again, or from another bucket, adds what is missing. A
fingerprint covers the data, not row ids or times of verification: rows are identified and sorted by
their names. Decision 0023 lists what no bucket can restore.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError, StatementError

from storage.catalog import sql, store_state
from storage.catalog.files import NewFileVersion, new_file_columns
from storage.catalog.purges import Purge
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    heads,
    presence,
    purge_replicas,
    purges,
    tombstones,
    visible,
)
from storage.catalog.versions import Tombstone
from storage.errors import DamagedObjectError
from storage.model import FQID, REPLICAS, Replica


@contextmanager
def begin_savepoint(tx: Tx) -> Iterator[None]:
    """Roll the block back if it fails; raise DamagedObjectError for values no catalog can store."""
    try:
        with tx.begin_nested():
            yield
    except (StatementError, OverflowError, ValueError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        raise DamagedObjectError(
            f"The catalog cannot store it ({type(error).__name__})."
        ) from error


def raise_changes(tx: Tx, kind: str, uuids: Iterable[str], floor: int) -> None:
    """Raise the change counts of locked heads to `floor`, above everything an index has seen."""
    names = sorted(set(uuids))
    statement = update(heads).where(
        heads.c.kind == kind, heads.c.uuid.in_(names), heads.c.changes < floor
    )
    tx.execute(statement.values(changes=floor))


_BLOBS = (
    "INSERT INTO blobs (sha256, sha1, crc32c, s3_etag, size)"
    " SELECT sha256, sha1, crc32c, s3_etag, size FROM {source} WHERE true"
    " ON CONFLICT (sha256) DO NOTHING"
)
_FILES = (
    "INSERT INTO files (uuid, version, digest, origin, creator_uid, author, content_type, s3_etag,"
    " blob_id, event_id, created_us, published_us)"
    " SELECT fresh.uuid, fresh.version, fresh.digest, fresh.origin, fresh.creator_uid,"
    " fresh.author, fresh.content_type, fresh.s3_etag, b.id, fresh.event_id, fresh.created_us,"
    " fresh.created_us"
    " FROM {source} {blob} WHERE true ON CONFLICT (uuid, version) DO NOTHING"
)


def insert_files(tx: Tx, found: Sequence[tuple[NewFileVersion, int]]) -> None:
    """Insert files with their original times, which are also those of their publication."""
    columns: sql.Columns = {
        **new_file_columns([new for new, _ in found]),
        "created_us": ("bigint", [created_us for _, created_us in found]),
    }
    source, parameters = sql.derive_table(tx, "fresh", columns)
    blob = sql.join_one(tx, "blobs", "b", "b.sha256 = fresh.sha256")
    tx.execute(sql.parse(_BLOBS.format(source=source)), parameters)
    tx.execute(sql.parse(_FILES.format(source=source, blob=blob)), parameters)


def find_digests(tx: Tx, kind: str, fqids: Sequence[FQID]) -> dict[FQID, tuple[int, str]]:
    """Return ids and digests of those versions that exist."""
    named = (VERSION_TABLES[kind].name, "t", _IS_SAME_VERSION)
    columns = "t.uuid, t.version, t.id, t.digest"
    rows = sql.look_up_rows(tx, columns, sql.fqid_columns(fqids), named)
    return {FQID(row.uuid, row.version): (row.id, row.digest) for row in rows}


_IS_SAME_VERSION = "t.uuid = wanted.uuid AND t.version = wanted.version"


def record_stored(tx: Tx, kind: str, replica: Replica, idents: Iterable[int]) -> None:
    """Record that a bucket holds these records."""
    now = now_us(tx)
    rows = [{"kind": kind, "id": ident, "replica": replica, "at_us": now} for ident in idents]
    sql.insert_missing(tx, presence, [{**row, "diverged": False} for row in rows])


_INSERT_STORED_BLOBS = (
    "INSERT INTO blob_replicas (blob_id, replica, state, at_us)"
    " SELECT b.id, :replica, 'present', :now FROM {source} {blob} WHERE true"
    " ON CONFLICT (blob_id, replica) DO NOTHING"
)


def record_stored_blobs(tx: Tx, replica: Replica, listed: Sequence[tuple[str, int]]) -> None:
    """Record that a bucket holds blobs with these SHA-256 sums and sizes."""
    columns = sql.tuple_columns(listed, sha256="text", size="bigint")
    source, parameters = sql.derive_table(tx, "there", columns)
    blob = sql.join_one(tx, "blobs", "b", "b.sha256 = there.sha256 AND b.size = there.size")
    statement = _INSERT_STORED_BLOBS.format(source=source, blob=blob)
    sql.execute(tx, statement, {**parameters, "replica": replica})


_SELECT_STORED_FILES = sql.parse(
    "SELECT p.id, f.uuid, f.version, r.blob_id IS NOT NULL AS whole FROM presence AS p"
    " JOIN files AS f ON f.id = p.id LEFT JOIN blob_replicas AS r ON r.blob_id = f.blob_id"
    " AND r.replica = :replica AND r.state = 'present'"
    " WHERE p.kind = 'file' AND p.replica = :replica AND p.id > :after ORDER BY p.id LIMIT :limit"
)


def list_stored_files(
    tx: Tx, replica: Replica, after: int, *, limit: int
) -> list[tuple[int, FQID, bool]]:
    """List files whose records a bucket holds, by id, and whether it holds their bytes."""
    parameters = {"replica": replica, "after": after, "limit": limit}
    rows = tx.execute(_SELECT_STORED_FILES, parameters)
    return [(row.id, FQID(row.uuid, row.version), bool(row.whole)) for row in rows]


def publish_versions(
    tx: Tx, kind: str, replica: Replica, versions: Sequence[tuple[int, FQID]]
) -> None:
    """Make versions visible in a replica."""
    common = {"kind": kind, "replica": replica}
    sql.insert_missing(
        tx, visible, [{**common, **fqid._asdict(), "id": ident} for ident, fqid in versions]
    )


def insert_tombstones(tx: Tx, rows: Sequence[Tombstone]) -> None:
    """Insert tombstones with the values of their records."""
    sql.insert_missing(tx, tombstones, [_drop_id(row) for row in rows])


def insert_purges(tx: Tx, markers: Sequence[Purge], replica: Replica) -> None:
    """Insert purges with the values of their markers, which this bucket holds."""
    sql.insert_missing(tx, purges, [_drop_id(row) for row in markers])
    marked = update(purge_replicas).where(purge_replicas.c.marked_us.is_(None))
    for row in markers:
        query = select(purges.c.id).where(
            purges.c.kind == row.kind, purges.c.uuid == row.uuid, purges.c.version == row.version
        )
        ident = tx.execute(query).scalar_one()
        rows = [{"purge_id": ident, "replica": name} for name in REPLICAS]
        sql.insert_missing(tx, purge_replicas, rows)
        condition = (purge_replicas.c.purge_id == ident) & (purge_replicas.c.replica == replica)
        tx.execute(marked.where(condition).values(marked_us=sql.clock(tx)))


def _drop_id(row: Tombstone | Purge) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__ if name != "id"}


def list_purges(tx: Tx, after: int, *, limit: int) -> list[Purge]:
    """List purges by id, after a given one."""
    query = select(purges).where(purges.c.id > after).order_by(purges.c.id).limit(limit)
    return sql.map_rows(Purge, tx.execute(query))


def list_tombstones(tx: Tx, after: int, *, limit: int) -> list[Tombstone]:
    """List tombstones by id, after a given one."""
    query = select(tombstones).where(tombstones.c.id > after).order_by(tombstones.c.id)
    return sql.map_rows(Tombstone, tx.execute(query.limit(limit)))


def filter_tombstoned(tx: Tx, kind: str, fqids: Sequence[FQID]) -> set[FQID]:
    """Return versions that a tombstone hides, their own or that of the whole uuid."""
    query = select(tombstones.c.uuid, tombstones.c.version).where(
        tombstones.c.kind == kind, tombstones.c.uuid.in_(sorted({fqid.uuid for fqid in fqids}))
    )
    graves = {(row[0], row[1]) for row in tx.execute(query)}
    return {fqid for fqid in fqids if {(fqid.uuid, ""), tuple(fqid)} & graves}


_RECORD_TABLES = {**VERSION_TABLES, "tombstone": tombstones, "purge": purges}


def set_created(tx: Tx, kind: str, ident: int, created_us: int) -> None:
    """Restore the original time, so that the record is rebuilt byte for byte."""
    table = _RECORD_TABLES[kind]
    names = [name for name in ("created_us", "published_us") if name in table.c]
    values = dict.fromkeys(names, created_us)
    tx.execute(update(table).filter_by(id=ident).values(**values))


def filter_stored(tx: Tx, kind: str, replica: Replica, fqids: Sequence[FQID]) -> set[FQID]:
    """Return versions whose records a bucket holds, according to the catalog."""
    table = _RECORD_TABLES[kind]
    stored = ("presence", "p", "p.kind = :kind AND p.id = t.id AND p.replica = :replica")
    named = (table.name, "t", _IS_SAME_VERSION)
    values = {"kind": kind, "replica": replica}
    columns = "t.uuid, t.version"
    rows = sql.look_up_rows(tx, columns, sql.fqid_columns(fqids), named, stored, **values)
    return {FQID(row.uuid, row.version) for row in rows}


def find_file_ids(tx: Tx, fqids: Collection[FQID]) -> dict[FQID, int]:
    """Return the ids of files by version, in any replica."""
    return {fqid: ident for fqid, (ident, _) in find_digests(tx, "file", [*fqids]).items()}


FINGERPRINT_PAGE = 10_000

_JOIN_PRESENCE = (
    "JOIN presence AS p ON p.kind = '{kind}' AND p.id = t.id AND p.replica = :replica"
    " AND NOT p.diverged"
)
_VERSION_COLUMNS = "t.uuid, t.version, t.digest, t.origin"
_MARKER_COLUMNS = "t.kind, t.uuid, t.version, t.reason, t.author, t.origin, t.digest, t.event_id"

FINGERPRINT_PARTS: dict[str, str] = {
    "files": f"SELECT {_VERSION_COLUMNS},"
    " t.creator_uid, t.author, t.content_type, t.s3_etag, t.event_id,"
    " t.created_us, b.sha256, b.sha1, b.crc32c, b.s3_etag AS blob_etag, b.size FROM files AS t"
    f" {_JOIN_PRESENCE.format(kind='file')} JOIN blobs AS b ON b.id = t.blob_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "blobs": "SELECT b.sha256, b.size FROM blob_replicas AS r JOIN blobs AS b ON b.id = r.blob_id"
    " WHERE r.replica = :replica AND r.state = 'present' ORDER BY b.sha256",
    "bundles": f"SELECT {_VERSION_COLUMNS},"
    " t.creator_uid, t.author, t.parent, t.file_count, t.event_id,"
    f" t.created_us FROM bundles AS t {_JOIN_PRESENCE.format(kind='bundle')}"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "entries": "SELECT t.uuid, t.version, s.start + e.position AS ordinal, e.name,"
    " f.uuid AS file_uuid, f.version AS file_version, CAST(e.indexed AS integer) AS indexed"
    f" FROM bundles AS t {_JOIN_PRESENCE.format(kind='bundle')}"
    " JOIN bundle_segments AS s ON s.bundle_id = t.id"
    " JOIN entries AS e ON e.segment_id = s.segment_id JOIN files AS f ON f.id = e.file_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version, ordinal",
    "collections": f"SELECT {_VERSION_COLUMNS},"
    " t.owner, t.parent, t.name, t.description, t.details,"
    f" t.event_id, t.created_us FROM collections AS t {_JOIN_PRESENCE.format(kind='collection')}"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version",
    "links": "SELECT t.uuid, t.version, s.position, l.links FROM collections AS t"
    f" {_JOIN_PRESENCE.format(kind='collection')}"
    " JOIN collection_segments AS s ON s.collection_id = t.id"
    " JOIN link_segments AS l ON l.id = s.segment_id"
    " WHERE t.published_us IS NOT NULL ORDER BY t.uuid, t.version, s.position",
    "owned": "SELECT t.owner, t.uuid, t.version FROM owned AS t JOIN visible AS v"
    " ON v.kind = 'collection' AND v.replica = :replica AND v.uuid = t.uuid"
    " AND v.version = t.version ORDER BY t.owner, t.uuid, t.version",
    "visible": "SELECT kind, uuid, version FROM visible WHERE replica = :replica"
    " ORDER BY kind, uuid, version",
    "tombstones": f"SELECT {_MARKER_COLUMNS}, t.created_us FROM tombstones AS t"
    f" {_JOIN_PRESENCE.format(kind='tombstone')} ORDER BY t.kind, t.uuid, t.version",
    "purges": f"SELECT {_MARKER_COLUMNS}, t.created_us FROM purges AS t"
    " JOIN purge_replicas AS r ON r.purge_id = t.id AND r.replica = :replica"
    " AND r.marked_us IS NOT NULL ORDER BY t.kind, t.uuid, t.version",
    "events": "SELECT t.id, t.replica, t.type, t.uuid, t.version, t.at_us, t.seq, t.seq_us,"
    " t.byte_offset, t.byte_size, CASE WHEN t.bundle_id = 0 THEN 0 ELSE 1 END AS leads"
    " FROM events AS t WHERE t.byte_offset IS NOT NULL ORDER BY t.replica, t.seq",
    "journals": "SELECT replica, first_seq, last_seq, generation, size FROM journals"
    " WHERE state = 'current' ORDER BY replica, first_seq",
}
"""The rows of each part, in a stable order."""


@dataclass(frozen=True, slots=True)
class FingerprintPart:
    """Number of rows of a part, and their digest."""

    name: str
    rows: int
    sha256: str


def compute_fingerprint(tx: Tx, replica: Replica) -> Iterator[FingerprintPart]:
    """Compute the fingerprint of a replica, part by part; memory holds one page of rows."""
    for name, statement in FINGERPRINT_PARTS.items():
        count, digest = 0, hashlib.sha256()
        paged = {"yield_per": FINGERPRINT_PAGE}
        rows = tx.execute(sql.parse(statement), {"replica": replica}, execution_options=paged)
        for row in rows:
            count += 1
            digest.update(_format_line(name, tuple(row)))
        yield FingerprintPart(name, count, digest.hexdigest())


def _format_line(name: str, row: tuple[object, ...]) -> bytes:
    if name == "links":
        # How links are split into segments is internal to a catalog.
        *version, _, links = row
        each = [[*version, *link] for link in orjson.loads(str(links))]
        return b"".join(orjson.dumps(link) + b"\n" for link in each)
    return orjson.dumps(row) + b"\n"


CURRENT_EPOCH, NEXT_EPOCH = "epoch", "epoch_coming"
REBUILDING_KEY = "rebuilding"
"""Row of `meta` that exists while a rebuild is not reconciled: the floor of change counts."""


def read_epochs(tx: Tx) -> tuple[str | None, str | None]:
    """Return the epoch that every bucket is marked with, and the next, which some are."""
    return store_state.read_value(tx, CURRENT_EPOCH), store_state.read_value(tx, NEXT_EPOCH)


def announce_epoch(tx: Tx, name: str) -> None:
    """Announce an epoch: from now on buckets may be marked with it."""
    store_state.write_value(tx, NEXT_EPOCH, name)


def confirm_epoch(tx: Tx, name: str) -> None:
    """Confirm the announced epoch once every bucket is marked; idempotent."""
    if store_state.read_value(tx, NEXT_EPOCH) == name:
        store_state.write_value(tx, CURRENT_EPOCH, name)
        store_state.write_value(tx, NEXT_EPOCH, None)


def has_data(tx: Tx) -> bool:
    """Return whether there are files, bundles or purges."""
    return _has_rows(tx, "files", "bundles", "purges")


def has_any_rows(tx: Tx) -> bool:
    """Return whether there is anything that buckets also hold, tombstones and journals included."""
    markers = ("collections", "tombstones", "events", "journals")
    return _has_rows(tx, "files", "bundles", "purges", *markers)


def _has_rows(tx: Tx, *tables: str) -> bool:
    condition = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables)
    return tx.execute(sql.parse(f"SELECT 1 WHERE {condition}")).first() is not None


def begin_unmarked_epoch(tx: Tx, name: str) -> None:
    """Start an epoch no bucket is marked with, so that writes stop until buckets are reconciled."""
    store_state.write_value(tx, NEXT_EPOCH, None)
    store_state.write_value(tx, CURRENT_EPOCH, name)
