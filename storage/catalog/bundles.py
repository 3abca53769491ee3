"""Bundles: heads, and manifests kept as immutable segments that versions share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, select

from storage.catalog import bulk, documents, events, files, heads, purges, segments, visibility
from storage.catalog.engine import Tx, execute_now, execute_sql, sql
from storage.catalog.schema import blobs, bundle_segments, bundles, entries
from storage.catalog.schema import files as file_rows
from storage.errors import NotFound
from storage.model import FQID, BundleVersion, Checksums, Entry, Replica


@dataclass(frozen=True, slots=True)
class Reserved:
    """A bundle's row with all that its record needs but the entries."""

    bundle: BundleVersion
    digest: str
    author: str
    event_id: str
    published: bool


Facts = Sequence[Sequence[Any]]
"""Columns of a manifest that its files know: content type, size, sha1, sha256, crc32c, s3_etag."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What asking for a version's name came to: its row, whether it is under a tombstone.

    `facts` are there if the row is new. With `lacks_files` nothing may be committed: readers of
    the origin do not see all files.
    """

    row: Reserved | None
    is_buried: bool
    facts: Facts | None = None
    lacks_files: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """What became of a bundle that is complete in a replica: the id of its CREATE event if that is
    new, and whether it is under a tombstone, so that nobody sees it."""

    event: str | None = None
    is_buried: bool = False


@dataclass(frozen=True, slots=True)
class NewBundle:
    """A bundle about to be reserved; `runs` are its manifest."""

    fqid: FQID
    digest: str
    origin: Replica
    creator_uid: int
    author: str
    parent: str | None
    event_id: str
    runs: Sequence[segments.Run]


def _reserved(row: Row[Any]) -> Reserved:
    bundle = BundleVersion(
        id=row.id,
        fqid=FQID(row.uuid, row.version),
        creator_uid=row.creator_uid,
        origin=row.origin,
        file_count=row.file_count,
        created_us=row.created_us,
        parent=row.parent,
    )
    return Reserved(bundle, row.digest, row.author, row.event_id, row.published_us is not None)


def by_id(tx: Tx, ident: int) -> Reserved:
    """The row of a known id; NotFound once it was purged."""
    row = tx.execute(_BY_ID, {"id": ident}).first()
    if row is None:
        raise NotFound("This bundle was purged.")
    return _reserved(row)


_BY_ID = select(bundles).where(bundles.c.id == bindparam("id"))
_BY_FQID = sql("SELECT * FROM bundles WHERE uuid = :uuid AND version = :version")


def by_fqid(tx: Tx, fqid: FQID) -> Reserved | None:
    """The row of a version, published or not."""
    row = tx.execute(_BY_FQID, {"uuid": fqid.uuid, "version": fqid.version}).first()
    return None if row is None else _reserved(row)


def by_fqids(tx: Tx, fqids: Sequence[FQID]) -> list[Reserved]:
    """The rows of several versions, in any order; nothing for one that there is not."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    same = "b.uuid = wanted.uuid AND b.version = wanted.version"
    bundle = bulk.one_each(tx, "bundles", "b", same)
    return [
        _reserved(row) for row in tx.execute(sql(f"SELECT b.* FROM {source} {bundle}"), parameters)
    ]


_IS_BURIED = (
    "EXISTS (SELECT 1 FROM tombstones AS t WHERE t.kind = 'bundle' AND t.uuid = :uuid"
    " AND t.version IN ('', :version))"
)
_EXISTING = (
    f"SELECT {_IS_BURIED} AS is_buried, b.* FROM (SELECT 1 AS one) AS one"
    " LEFT JOIN bundles AS b ON b.uuid = :uuid AND b.version = :version"
)
_PUBLISH = (
    "UPDATE bundles SET published_us = :now WHERE uuid = :uuid AND version = :version"
    f" AND published_us IS NULL RETURNING {_IS_BURIED} AS is_buried"
)


def existing(tx: Tx, fqid: FQID) -> tuple[Reserved | None, bool]:
    """The row of a version, and whether the version is under a tombstone: one query."""
    row = execute_sql(tx, _EXISTING, fqid._asdict()).one()
    return None if row.id is None else _reserved(row), bool(row.is_buried)


def publish(tx: Tx, row: Reserved) -> Publication | None:
    """Lock the head, and let readers of its origin see a reserved version; None if it was published
    before, or purged."""
    fqid = row.bundle.fqid
    change = heads.lock_and_change(tx, "bundle", fqid.uuid)
    found = execute_now(tx, _PUBLISH, fqid._asdict()).first()
    if found is None:
        return None
    is_buried = bool(found.is_buried)
    return show(tx, row, row.bundle.origin, change=change, is_buried=is_buried)


def show(tx: Tx, row: Reserved, replica: Replica, *, change: int, is_buried: bool) -> Publication:
    """A bundle is complete in a replica: let readers see it there and append its event, unless it
    is under a tombstone. The caller holds its head, whose count of changes is `change`."""
    bundle = row.bundle
    visibility.record_seen(tx, "bundle", bundle.id, replica)
    if is_buried:
        return Publication(is_buried=True)
    visibility.show(tx, "bundle", replica, bundle.fqid, bundle.id)
    event, is_new = events.append_once(tx, "CREATE", replica, bundle.fqid, bundle.id)
    if not is_new:
        # A record that was lost came back, or a catalog: its subscribers were told.
        documents.taken_in(tx, replica, [bundle.id], change=change, reason=CAME_BACK)
    return Publication(event if is_new else None)


def reserve(tx: Tx, new: NewBundle) -> Reservation:
    """Lock the head; take the version's name with its manifest, or say what exists.

    Its runs are of `segments.NamedRow`, whose files are looked up in its origin.
    """
    heads.lock(tx, "bundle", [new.fqid.uuid])
    row, is_buried = existing(tx, new.fqid)
    if row is not None or is_buried:
        return Reservation(row, is_buried)
    row = insert(tx, new, seen_in=new.origin)
    facts = _facts(tx, row.bundle.id)
    lacks_files = len(facts[0]) < row.bundle.file_count
    # SQLite's unit of work holds the whole catalog.
    if tx.dialect.name != "sqlite" and not lacks_files:
        lacks_files = _lost_files(tx, new)
    return Reservation(row, is_buried, facts, lacks_files)


def _lost_files(tx: Tx, new: NewBundle) -> bool:
    """Whether a file was purged before its entry came to hold it."""
    if not purges.lately(tx):
        return False
    runs: Any = new.runs
    named = [file for run in runs for _, file, _ in run]
    return len(files.lookup(tx, new.origin, named)) < len(named)


def _facts(tx: Tx, bundle_id: int) -> Facts:
    """What the files of a bundle know, in manifest order."""
    names = ("f.content_type", "b.size", "b.sha1", "b.sha256", "b.crc32c", "f.s3_etag")
    file = bulk.one_each(tx, "files", "f", "f.id = e.file_id")
    blob = bulk.one_each(tx, "blobs", "b", "b.id = f.blob_id")
    source = (
        "bundle_segments AS s CROSS JOIN entries AS e"
        f" {file} {blob} WHERE s.bundle_id = :id AND e.segment_id = s.segment_id"
    )
    return bulk.fetch_columns(tx, names, source, "s.start, e.position", {"id": bundle_id})


CAME_BACK = "It was seen here before; to be indexed again."

_INSERT = (
    "INSERT INTO bundles (uuid, version, digest, origin, creator_uid, author, parent, file_count,"
    " event_id, created_us) VALUES (:uuid, :version, :digest, :origin, :creator_uid, :author,"
    " :parent, :file_count, :event_id, :now) RETURNING id, created_us"
)


def insert(tx: Tx, new: NewBundle, *, seen_in: Replica | None = None) -> Reserved:
    """Insert the version with its manifest; the caller holds the head and saw that none exists.
    With `seen_in` its runs are of `segments.NamedRow`."""
    count = sum(map(segments.length, new.runs))
    values = {
        "uuid": new.fqid.uuid,
        "version": new.fqid.version,
        "digest": new.digest,
        "origin": new.origin,
        "creator_uid": new.creator_uid,
        "author": new.author,
        "parent": new.parent,
        "file_count": count,
        "event_id": new.event_id,
    }
    row = execute_now(tx, _INSERT, values).one()
    segments.write(tx, row.id, new.runs, seen_in=seen_in)
    return Reserved(
        BundleVersion(
            id=row.id,
            fqid=new.fqid,
            creator_uid=new.creator_uid,
            origin=new.origin,
            file_count=count,
            created_us=row.created_us,
            parent=new.parent,
        ),
        new.digest,
        new.author,
        new.event_id,
        published=False,
    )


def page(tx: Tx, bundle_id: int, *, start: int, limit: int, span: int) -> list[Entry]:
    """Entries by ordinal, in manifest order; `span` is the most entries of one segment."""
    place = {"id": bundle_id, "above": start - span, "from": start, "to": start + limit}
    return [_entry(row) for row in tx.execute(_PAGE, place)]


_ordinal = bundle_segments.c.start + entries.c.position
_PAGE: Select[Any] = (
    select(
        entries.c.name,
        file_rows.c.uuid,
        file_rows.c.version,
        entries.c.indexed,
        file_rows.c.content_type,
        blobs.c.size,
        blobs.c.sha1,
        blobs.c.sha256,
        blobs.c.crc32c,
        file_rows.c.s3_etag,
    )
    .select_from(bundle_segments)
    .join(entries, entries.c.segment_id == bundle_segments.c.segment_id)
    .join(file_rows, file_rows.c.id == entries.c.file_id)
    .join(blobs, blobs.c.id == file_rows.c.blob_id)
    .where(bundle_segments.c.bundle_id == bindparam("id"))
    .where(bundle_segments.c.start > bindparam("above"), bundle_segments.c.start < bindparam("to"))
    .where(_ordinal >= bindparam("from"), _ordinal < bindparam("to"))
    .order_by(bundle_segments.c.start, entries.c.position)
)


def _entry(row: Row[Any]) -> Entry:
    name, uuid, version, indexed, content_type, size, sha1, sha256, crc32c, s3_etag = tuple(row)
    return Entry(
        name,
        FQID(uuid, version),
        bool(indexed),
        content_type,
        size,
        Checksums(sha1, sha256, crc32c, s3_etag),
    )


def file_ids(tx: Tx, bundle_id: int) -> list[int]:
    """The catalog's ids of the files that a bundle names, each once."""
    query = (
        select(entries.c.file_id)
        .select_from(bundle_segments)
        .join(entries, entries.c.segment_id == bundle_segments.c.segment_id)
        .where(bundle_segments.c.bundle_id == bundle_id)
        .distinct()
    )
    return list(tx.execute(query).scalars())


def of_file(tx: Tx, file_id: int, *, after: int = 0, limit: int = 100) -> list[FQID]:
    """The bundles that hold a file: two index steps."""
    query = (
        select(bundles.c.id, bundles.c.uuid, bundles.c.version)
        .join(bundle_segments, bundle_segments.c.bundle_id == bundles.c.id)
        .join(entries, entries.c.segment_id == bundle_segments.c.segment_id)
        .where(entries.c.file_id == file_id, bundles.c.id > after)
        .distinct()
        .order_by(bundles.c.id)
        .limit(limit)
    )
    return [FQID(row.uuid, row.version) for row in tx.execute(query)]


def bytes_of(tx: Tx, bundle_id: int) -> int:
    """Bytes of all entries of a bundle."""
    row = tx.execute(
        sql(
            "SELECT coalesce(sum(b.size), 0) FROM bundle_segments AS s"
            " JOIN entries AS e ON e.segment_id = s.segment_id"
            " JOIN files AS f ON f.id = e.file_id JOIN blobs AS b ON b.id = f.blob_id"
            " WHERE s.bundle_id = :id"
        ),
        {"id": bundle_id},
    )
    return int(row.scalar_one())
