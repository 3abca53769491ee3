"""Bundle versions: reserve, publish, and read entries.

A manifest is a sequence of immutable segments of entries, which versions share. Changing a few of
many entries rewrites only the segments that contain them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, func, join, select
from sqlalchemy.exc import IntegrityError

from storage.catalog import documents, events, purges, sql, versions
from storage.catalog import files as catalog_files
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import (
    blobs,
    bundle_segments,
    bundles,
    entries,
    files,
    segments,
)
from storage.errors import Invalid, NotFoundError
from storage.model import FQID, BundleVersion, Checksums, ManifestEntry, Replica

EntryRow = tuple[int, str, bool]
"""(file id, name, indexed) of one entry."""
NamedEntryRow = tuple[str, tuple[str, str], bool]
"""(name, (uuid, version), indexed) of one entry whose file is still to be looked up."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """An existing segment."""

    segment_id: int
    count: int


ManifestRun = StoredSegment | Sequence[EntryRow] | Sequence[NamedEntryRow]
"""An existing segment, or the entries of a new one."""


def _insert_segments(tx: Tx, counts: Sequence[int]) -> list[int]:
    """Insert segments and return their ids; empty segments of one size are interchangeable."""
    if not counts:
        return []
    statement = (
        "INSERT INTO segments (entry_count) SELECT entry_count FROM {source}"
        " RETURNING id, entry_count"
    )
    inserted = sql.execute_with(tx, statement, "fresh", {"entry_count": ("integer", counts)})
    of_size: dict[int, list[int]] = defaultdict(list)
    for ident, count in sorted(map(tuple, inserted), reverse=True):
        of_size[count].append(ident)
    return [of_size[count].pop() for count in counts]


def _insert_on_sqlite(
    tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Any]], seen_in: Replica | None
) -> None:
    """Insert the entries of each segment from a JSON array of strings, which SQL cuts."""
    # Takes two thirds of the time of binding five values per row.
    if seen_in is None:
        statement = _INSERT_BY_ID
        lines = [[f"{file}/{'01'[flag]}{name}" for file, name, flag in run] for run in runs]
    else:
        statement = _INSERT_BY_NAME
        lines = [
            [f"{uuid}{version}{'01'[flag]}{name}" for name, (uuid, version), flag in run]
            for run in runs
        ]
    parameters = [
        {"segment_id": ident, "lines": orjson.dumps(values), "replica": seen_in}
        for ident, values in zip(idents, lines, strict=True)
    ]
    tx.exec_driver_sql(statement, parameters)


_INSERT_ENTRIES = "INSERT INTO entries (segment_id, position, file_id, name, indexed)"
_LINES = "json_each(CAST(:lines AS text)) AS line"
_INSERT_BY_ID = (
    f"{_INSERT_ENTRIES} SELECT :segment_id, key, CAST(value AS integer),"
    " substr(value, instr(value, '/') + 2), substr(value, instr(value, '/') + 1, 1)"
    f" FROM {_LINES}"
)
# A uuid has 36 characters, a version 25.
_INSERT_BY_NAME = (
    f"{_INSERT_ENTRIES} SELECT :segment_id, key, v.id, substr(value, 63), substr(value, 62, 1)"
    f" FROM {_LINES} CROSS JOIN visible AS v ON v.kind = 'file' AND v.replica = :replica"
    " AND v.uuid = substr(value, 1, 36) AND v.version = substr(value, 37, 25)"
)


def _insert_on_postgresql(
    tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Any]], seen_in: Replica | None
) -> None:
    """Insert the entries of all segments from one array per column."""
    places = [
        (ident, at) for ident, run in zip(idents, runs, strict=True) for at in range(len(run))
    ]
    rows: Any = zip(places, chain.from_iterable(runs), strict=True)
    kinds = {"segment_id": "bigint", "position": "integer", "name": "text", "indexed": "boolean"}
    if seen_in is None:
        file_id, join = "file_id", ""
        flat = [(*place, name, flag, file) for place, (file, name, flag) in rows]
        columns = sql.tuple_columns(flat, **kinds, file_id="bigint")
    else:
        # In index order of the files: neighbours lie on one page.
        file_id, join = "v.id", sql.join_one(tx, "visible", "v", _IS_PUBLISHED)
        named = sorted((*file, *place, name, flag) for place, (name, file, flag) in rows)
        columns = sql.tuple_columns(named, uuid="text", version="text", **kinds)
    statement = (
        f"{_INSERT_ENTRIES} SELECT segment_id, position, {file_id}, name, indexed"
        f" FROM {{source}} {join}"
    )
    sql.execute_with(tx, statement, "fresh", columns, replica=seen_in)


_IS_PUBLISHED = (
    "v.kind = 'file' AND v.replica = :replica AND v.uuid = fresh.uuid AND v.version = fresh.version"
)


def list_segments(tx: Tx, bundle_id: int) -> list[StoredSegment]:
    """List a bundle's segments in manifest order."""
    query = (
        select(segments.c.id, segments.c.entry_count)
        .join(bundle_segments, bundle_segments.c.segment_id == segments.c.id)
        .where(bundle_segments.c.bundle_id == bundle_id)
        .order_by(bundle_segments.c.start)
    )
    return [StoredSegment(row.id, row.entry_count) for row in tx.execute(query)]


def read_segment_rows(tx: Tx, idents: Sequence[int]) -> Mapping[int, list[EntryRow]]:
    """Return the entries of these segments, in order."""
    query = (
        select(entries.c.segment_id, entries.c.file_id, entries.c.name, entries.c.indexed)
        .where(entries.c.segment_id.in_(idents))
        .order_by(entries.c.segment_id, entries.c.position)
    )
    rows: dict[int, list[EntryRow]] = defaultdict(list)
    for row in tx.execute(query):
        rows[row.segment_id].append((row.file_id, row.name, bool(row.indexed)))
    return rows


FileFacts = Sequence[Sequence[Any]]
"""Columns of a manifest's files: content type, size, sha1, sha256, crc32c, s3_etag."""


@dataclass(frozen=True, slots=True)
class BundleReservation:
    """Result of reserving a version: its row, and whether a tombstone hides it.

    `facts` are set if the row is new. With `lacks_files` the caller must roll back: the origin does
    not publish all files.
    """

    row: BundleVersion | None
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
    runs: Sequence[ManifestRun]


def get(tx: Tx, ident: int) -> BundleVersion:
    """Return a row by its id; raise NotFoundError once it was purged."""
    row = sql.find_row(tx, BundleVersion, _BY_ID, {"id": ident})
    if row is None:
        raise NotFoundError("This bundle was purged.")
    return row


_BY_ID = select(bundles).where(bundles.c.id == bindparam("id"))
_BY_FQID = select(bundles).where(
    bundles.c.uuid == bindparam("uuid"), bundles.c.version == bindparam("version")
)


def find(tx: Tx, fqid: FQID) -> BundleVersion | None:
    """Return the row of a version, published or not."""
    return sql.find_row(tx, BundleVersion, _BY_FQID, fqid._asdict())


def find_all(tx: Tx, fqids: Sequence[FQID]) -> list[BundleVersion]:
    """Return the rows of those versions that exist, in any order."""
    bundle = ("bundles", "b", "b.uuid = wanted.uuid AND b.version = wanted.version")
    rows = sql.look_up_rows(tx, sql.list_columns(bundles, "b"), sql.fqid_columns(fqids), bundle)
    return sql.map_rows(BundleVersion, rows)


_IS_BURIED = (
    "EXISTS (SELECT 1 FROM tombstones AS t WHERE t.kind = 'bundle' AND t.uuid = :uuid"
    " AND t.version IN ('', :version))"
)
_SELECT_WITH_TOMBSTONE = (
    f"SELECT {_IS_BURIED} AS is_buried, {sql.list_columns(bundles, 'b')}"
    " FROM (SELECT 1 AS one) AS one"
    " LEFT JOIN bundles AS b ON b.uuid = :uuid AND b.version = :version"
)
_PUBLISH = (
    "UPDATE bundles SET published_us = :now WHERE uuid = :uuid AND version = :version"
    f" AND published_us IS NULL RETURNING {_IS_BURIED} AS is_buried"
)


def find_with_tombstone(tx: Tx, fqid: FQID) -> tuple[BundleVersion | None, bool]:
    """Return the row of a version, and whether a tombstone hides it: one query."""
    row = sql.execute(tx, _SELECT_WITH_TOMBSTONE, fqid._asdict()).one()
    return None if row.id is None else sql.map_row(BundleVersion, row), bool(row.is_buried)


def publish(tx: Tx, row: BundleVersion) -> BundlePublication | None:
    """Lock the head and publish a version in its origin; None if published before, or purged."""
    fqid = row.fqid
    change = versions.count_change(tx, "bundle", fqid.uuid)
    found = sql.execute(tx, _PUBLISH, fqid._asdict()).first()
    if found is None:
        return None
    is_buried = bool(found.is_buried)
    return publish_in_replica(tx, row, row.origin, change=change, is_buried=is_buried)


def publish_in_replica(
    tx: Tx, row: BundleVersion, replica: Replica, *, change: int, is_buried: bool
) -> BundlePublication:
    """Publish a complete bundle in a replica and append its event, unless a tombstone hides it.

    The caller holds the lock of its head, whose change count is `change`.
    """
    versions.record_stored(tx, "bundle", row.id, replica)
    if is_buried:
        return BundlePublication(is_buried=True)
    versions.publish(tx, "bundle", replica, row.fqid, row.id)
    event, is_new = events.append_if_new(tx, "CREATE", replica, row.fqid, row.id)
    if not is_new:
        # A lost record or a restored catalog: subscribers were notified already.
        documents.record_unindexed(tx, replica, [row.id], change=change, reason=REINDEX_REASON)
    return BundlePublication(event if is_new else None)


def reserve(tx: Tx, new: NewBundleVersion) -> BundleReservation:
    """Lock the head and insert the version with its manifest, or return what exists.

    `runs` hold `NamedEntryRow`s, whose files are looked up in the origin.
    """
    versions.lock_heads(tx, "bundle", [new.fqid.uuid])
    row, is_buried = find_with_tombstone(tx, new.fqid)
    if row is not None or is_buried:
        return BundleReservation(row, is_buried)
    row = insert(tx, new, seen_in=new.origin)
    facts = _list_file_facts(tx, row.id)
    lacks_files = len(facts[0]) < row.file_count
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
    file = sql.join_one(tx, "files", "f", "f.id = e.file_id")
    blob = sql.join_one(tx, "blobs", "b", "b.id = f.blob_id")
    source = (
        "bundle_segments AS s CROSS JOIN entries AS e"
        f" {file} {blob} WHERE s.bundle_id = :id AND e.segment_id = s.segment_id"
    )
    return sql.fetch_columns(tx, names, source, "s.start, e.position", {"id": bundle_id})


REINDEX_REASON = "The bundle was published here before and will be indexed again."

_INSERT = (
    "INSERT INTO bundles (uuid, version, digest, origin, creator_uid, author, parent, file_count,"
    " event_id, created_us) VALUES (:uuid, :version, :digest, :origin, :creator_uid, :author,"
    f" :parent, :file_count, :event_id, :now) RETURNING {sql.list_columns(bundles, 'bundles')}"
)


def insert(tx: Tx, new: NewBundleVersion, *, seen_in: Replica | None = None) -> BundleVersion:
    """Insert a version with its manifest; the caller holds the lock and checked that it is new.

    The manifest takes three statements, whatever its size. With `seen_in` the runs hold
    `NamedEntryRow`s: files are looked up among those published in this replica, and entries without
    such a file are left out.
    """
    counts = [run.count if isinstance(run, StoredSegment) else len(run) for run in new.runs]
    values = {name: getattr(new, name) for name in new.__slots__ if name not in ("fqid", "runs")}
    values |= {**new.fqid._asdict(), "file_count": sum(counts)}
    row = sql.map_row(BundleVersion, sql.execute(tx, _INSERT, values).one())
    if not new.runs:
        return row
    fresh: list[Any] = [run for run in new.runs if not isinstance(run, StoredSegment)]
    new_ids = _insert_segments(tx, [len(run) for run in fresh])
    unused = iter(new_ids)
    idents = [
        run.segment_id if isinstance(run, StoredSegment) else next(unused) for run in new.runs
    ]
    starts = [*accumulate(counts[:-1], initial=0)]
    columns: sql.Columns = {"start": ("integer", starts), "segment_id": ("bigint", idents)}
    statement = (
        "INSERT INTO bundle_segments (bundle_id, start, segment_id)"
        " SELECT :bundle_id, start, segment_id FROM {source}"
    )
    sql.execute_with(tx, statement, "fresh", columns, bundle_id=row.id)
    insert_entries = _insert_on_sqlite if tx.dialect.name == "sqlite" else _insert_on_postgresql
    try:
        if fresh:
            insert_entries(tx, new_ids, fresh, seen_in)
    except IntegrityError as error:
        message = "A file of the bundle was purged meanwhile."
        raise Invalid(message, code="file_missing") from error
    return row


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


def list_containing(
    tx: Tx,
    replica: Replica,
    file_uuid: str,
    file_version: str | None,
    *,
    after: FQID | None,
    limit: int,
) -> list[FQID]:
    """List visible versions that contain a file (any version of it by default), in order."""
    bundle = sql.join_one(tx, "bundles", "b", "b.id = s.bundle_id")
    visible = sql.join_one(tx, "visible", "v", _IS_BUNDLE_PUBLISHED)
    condition = "f.uuid = :uuid" + ("" if file_version is None else " AND f.version = :version")
    if after is not None:
        condition += " AND (b.uuid, b.version) > (:after_uuid, :after_version)"
    source = (
        "files AS f CROSS JOIN entries AS e CROSS JOIN bundle_segments AS s"
        f" {bundle} {visible} WHERE {condition}"
        " AND e.file_id = f.id AND s.segment_id = e.segment_id"
    )
    statement = f"SELECT DISTINCT b.uuid, b.version FROM {source} ORDER BY 1, 2 LIMIT :limit"
    parameters = {"uuid": file_uuid, "version": file_version, "replica": replica, "limit": limit}
    if after is not None:
        parameters |= {"after_uuid": after.uuid, "after_version": after.version}
    return [FQID(*row) for row in tx.execute(sql.parse(statement), parameters)]


_IS_BUNDLE_PUBLISHED = (
    "v.kind = 'bundle' AND v.replica = :replica AND v.uuid = b.uuid AND v.version = b.version"
)


def sum_bytes(tx: Tx, bundle_id: int) -> int:
    """Return the total bytes of a bundle's entries."""
    query = select(func.sum(blobs.c.size)).select_from(_ENTRIES.join(files).join(blobs))
    return int(tx.execute(query.where(bundle_segments.c.bundle_id == bundle_id)).scalar_one() or 0)
