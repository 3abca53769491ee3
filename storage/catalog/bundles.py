"""Bundle versions: reserve, publish, and read entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, join, select

from storage.catalog import bulk, documents, events, heads, manifests, purges, versions
from storage.catalog import files as catalog_files
from storage.catalog.engine import (
    Tx,
    execute_now,
    execute_sql,
    find_row,
    list_columns,
    make_mapper,
    sql,
)
from storage.catalog.tables.versions import blobs, bundle_segments, bundles, entries, files
from storage.errors import NotFoundError
from storage.model import FQID, BundleVersion, Checksums, ManifestEntry, Replica


@dataclass(frozen=True, slots=True)
class BundleRow:
    """A bundle version with everything its record needs except the entries."""

    bundle: BundleVersion
    digest: str
    author: str
    event_id: str
    published: bool

    @property
    def id(self) -> int:
        """The row id of the version."""
        return self.bundle.id

    @property
    def fqid(self) -> FQID:
        """The uuid and version."""
        return self.bundle.fqid

    @property
    def origin(self) -> Replica:
        """The replica that the version was written to first."""
        return self.bundle.origin


FileFacts = Sequence[Sequence[Any]]
"""Columns of a manifest's files: content type, size, sha1, sha256, crc32c, s3_etag."""


@dataclass(frozen=True, slots=True)
class BundleReservation:
    """Result of reserving a version: its row, and whether a tombstone hides it.

    `facts` are set if the row is new. With `lacks_files` the caller must roll back: the origin does
    not publish all files.
    """

    row: BundleRow | None
    is_buried: bool
    facts: FileFacts | None = None
    lacks_files: bool = False


@dataclass(frozen=True, slots=True)
class BundlePublication:
    """Result of publishing in a replica: the id of the CREATE event if new, and `is_buried`."""

    event: str | None = None
    is_buried: bool = False


@dataclass(frozen=True, slots=True)
class NewBundleVersion:
    """A bundle to be reserved; `runs` are its manifest."""

    fqid: FQID
    digest: str
    origin: Replica
    creator_uid: int
    author: str
    parent: str | None
    event_id: str
    runs: Sequence[manifests.ManifestRun]


_map_bundle = make_mapper(BundleVersion)


def _bundle_from_row(row: Row[Any]) -> BundleRow:
    bundle = _map_bundle(row, fqid=FQID(row.uuid, row.version))
    return BundleRow(bundle, row.digest, row.author, row.event_id, row.published_us is not None)


def get(tx: Tx, ident: int) -> BundleRow:
    """Return a row by its id; raise NotFoundError once it was purged."""
    row = find_row(tx, _bundle_from_row, _BY_ID, {"id": ident})
    if row is None:
        raise NotFoundError("This bundle was purged.")
    return row


_BY_ID = select(bundles).where(bundles.c.id == bindparam("id"))


def find(tx: Tx, fqid: FQID) -> BundleRow | None:
    """Return the row of a version, published or not."""
    query = sql(
        f"SELECT {list_columns(bundles, 'b')} FROM bundles AS b"
        " WHERE uuid = :uuid AND version = :version"
    )
    return find_row(tx, _bundle_from_row, query, fqid._asdict())


def find_all(tx: Tx, fqids: Sequence[FQID]) -> list[BundleRow]:
    """Return the rows of those versions that exist, in any order."""
    bundle = ("bundles", "b", "b.uuid = wanted.uuid AND b.version = wanted.version")
    rows = bulk.look_up(tx, list_columns(bundles, "b"), bulk.fqid_columns(fqids), bundle)
    return [_bundle_from_row(row) for row in rows]


_IS_BURIED = (
    "EXISTS (SELECT 1 FROM tombstones AS t WHERE t.kind = 'bundle' AND t.uuid = :uuid"
    " AND t.version IN ('', :version))"
)
_SELECT_WITH_TOMBSTONE = (
    f"SELECT {_IS_BURIED} AS is_buried, {list_columns(bundles, 'b')} FROM (SELECT 1 AS one) AS one"
    " LEFT JOIN bundles AS b ON b.uuid = :uuid AND b.version = :version"
)
_PUBLISH = (
    "UPDATE bundles SET published_us = :now WHERE uuid = :uuid AND version = :version"
    f" AND published_us IS NULL RETURNING {_IS_BURIED} AS is_buried"
)


def find_with_tombstone(tx: Tx, fqid: FQID) -> tuple[BundleRow | None, bool]:
    """Return the row of a version, and whether a tombstone hides it: one query."""
    row = execute_sql(tx, _SELECT_WITH_TOMBSTONE, fqid._asdict()).one()
    return None if row.id is None else _bundle_from_row(row), bool(row.is_buried)


def publish(tx: Tx, row: BundleRow) -> BundlePublication | None:
    """Lock the head and publish a version in its origin; None if published before, or purged."""
    fqid = row.bundle.fqid
    change = heads.lock_and_count(tx, "bundle", fqid.uuid)
    found = execute_now(tx, _PUBLISH, fqid._asdict()).first()
    if found is None:
        return None
    is_buried = bool(found.is_buried)
    return publish_in_replica(tx, row, row.bundle.origin, change=change, is_buried=is_buried)


def publish_in_replica(
    tx: Tx, row: BundleRow, replica: Replica, *, change: int, is_buried: bool
) -> BundlePublication:
    """Publish a complete bundle in a replica and append its event, unless a tombstone hides it.

    The caller holds the lock of its head, whose change count is `change`.
    """
    bundle = row.bundle
    versions.record_stored(tx, "bundle", bundle.id, replica)
    if is_buried:
        return BundlePublication(is_buried=True)
    versions.publish(tx, "bundle", replica, bundle.fqid, bundle.id)
    event, is_new = events.append_if_new(tx, "CREATE", replica, bundle.fqid, bundle.id)
    if not is_new:
        # A lost record or a restored catalog: subscribers were notified already.
        documents.record_unindexed(tx, replica, [bundle.id], change=change, reason=REINDEX_REASON)
    return BundlePublication(event if is_new else None)


def reserve(tx: Tx, new: NewBundleVersion) -> BundleReservation:
    """Lock the head and insert the version with its manifest, or return what exists.

    `runs` hold `NamedEntryRow`s, whose files are looked up in the origin.
    """
    heads.lock(tx, "bundle", [new.fqid.uuid])
    row, is_buried = find_with_tombstone(tx, new.fqid)
    if row is not None or is_buried:
        return BundleReservation(row, is_buried)
    row = insert(tx, new, seen_in=new.origin)
    facts = _list_file_facts(tx, row.bundle.id)
    lacks_files = len(facts[0]) < row.bundle.file_count
    # On SQLite the transaction locks the whole catalog.
    if tx.dialect.name != "sqlite" and not lacks_files:
        lacks_files = _lacks_files(tx, new)
    return BundleReservation(row, is_buried, facts, lacks_files)


def _lacks_files(tx: Tx, new: NewBundleVersion) -> bool:
    """Return whether a file was purged before the manifest's entries referred to it."""
    if not purges.has_recent(tx):
        return False
    runs: Any = new.runs
    file_keys = [file for run in runs for _, file, _ in run]
    return len(catalog_files.look_up(tx, new.origin, file_keys)) < len(file_keys)


def _list_file_facts(tx: Tx, bundle_id: int) -> FileFacts:
    """Return the columns of a bundle's files, in manifest order."""
    names = ("f.content_type", "b.size", "b.sha1", "b.sha256", "b.crc32c", "f.s3_etag")
    file = bulk.join_one(tx, "files", "f", "f.id = e.file_id")
    blob = bulk.join_one(tx, "blobs", "b", "b.id = f.blob_id")
    source = (
        "bundle_segments AS s CROSS JOIN entries AS e"
        f" {file} {blob} WHERE s.bundle_id = :id AND e.segment_id = s.segment_id"
    )
    return bulk.fetch_columns(tx, names, source, "s.start, e.position", {"id": bundle_id})


REINDEX_REASON = "The bundle was published here before and will be indexed again."

_INSERT = (
    "INSERT INTO bundles (uuid, version, digest, origin, creator_uid, author, parent, file_count,"
    " event_id, created_us) VALUES (:uuid, :version, :digest, :origin, :creator_uid, :author,"
    f" :parent, :file_count, :event_id, :now) RETURNING {list_columns(bundles, 'bundles')}"
)


def insert(tx: Tx, new: NewBundleVersion, *, seen_in: Replica | None = None) -> BundleRow:
    """Insert a version with its manifest; the caller holds the lock and checked that it is new.

    With `seen_in`, `runs` hold `NamedEntryRow`s.
    """
    count = sum(map(manifests.count_entries, new.runs))
    values = {name: getattr(new, name) for name in new.__slots__ if name not in ("fqid", "runs")}
    row = execute_now(tx, _INSERT, {**values, **new.fqid._asdict(), "file_count": count}).one()
    manifests.insert_manifest(tx, row.id, new.runs, seen_in=seen_in)
    return _bundle_from_row(row)


def list_entries(
    tx: Tx, bundle_id: int, *, start: int, limit: int, span: int
) -> list[ManifestEntry]:
    """Return entries by ordinal, in manifest order; `span` is the most entries of a segment."""
    place = {"id": bundle_id, "above": start - span, "from": start, "to": start + limit}
    return [_entry_from_row(row) for row in tx.execute(_PAGE, place)]


_ENTRIES = join(bundle_segments, entries, entries.c.segment_id == bundle_segments.c.segment_id)
_ordinal = bundle_segments.c.start + entries.c.position
_PAGE: Select[Any] = (
    select(
        entries.c.name,
        files.c.uuid,
        files.c.version,
        entries.c.indexed,
        files.c.content_type,
        blobs.c.size,
        blobs.c.sha1,
        blobs.c.sha256,
        blobs.c.crc32c,
        files.c.s3_etag,
    )
    .select_from(_ENTRIES.join(files).join(blobs))
    .where(bundle_segments.c.bundle_id == bindparam("id"))
    .where(bundle_segments.c.start > bindparam("above"), bundle_segments.c.start < bindparam("to"))
    .where(_ordinal >= bindparam("from"), _ordinal < bindparam("to"))
    .order_by(bundle_segments.c.start, entries.c.position)
)


def _entry_from_row(row: Row[Any]) -> ManifestEntry:
    name, uuid, version, indexed, content_type, size, *checksums = tuple(row)
    fqid = FQID(uuid, version)
    return ManifestEntry(name, fqid, bool(indexed), content_type, size, Checksums(*checksums))


def list_file_ids(tx: Tx, bundle_id: int) -> list[int]:
    """Return the ids of the files in a bundle, without duplicates."""
    query = select(entries.c.file_id).select_from(_ENTRIES)
    named = query.where(bundle_segments.c.bundle_id == bundle_id)
    return list(tx.execute(named.distinct()).scalars())


def sum_bytes(tx: Tx, bundle_id: int) -> int:
    """Return the total bytes of a bundle's entries."""
    query = select(func.sum(blobs.c.size)).select_from(_ENTRIES.join(files).join(blobs))
    return int(tx.execute(query.where(bundle_segments.c.bundle_id == bundle_id)).scalar_one() or 0)
