"""File versions: reserve once verified, publish once their record is in the bucket."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Select, bindparam, func, select

from storage.catalog import purges as catalog_purges
from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import blob_replicas, blobs, files, purges
from storage.model import CHECKSUM_NAMES, FQID, Checksums, FileVersion, Replica


@dataclass(frozen=True, slots=True)
class NewFileVersion:
    """A verified file to be inserted."""

    fqid: FQID
    digest: str
    origin: Replica
    creator_uid: int
    author: str
    content_type: str
    size: int
    checksums: Checksums
    blob_etag: str
    event_id: str


_SELECT_ROWS: Select[Any] = select(
    *files.c, blobs.c.size, blobs.c.sha1, blobs.c.sha256, blobs.c.crc32c
).join(blobs, blobs.c.id == files.c.blob_id)
# Built once: building takes longer than running.
_BY_ID = _SELECT_ROWS.where(files.c.id == bindparam("id"))
_BY_FQID = _SELECT_ROWS.where(
    files.c.uuid == bindparam("uuid"), files.c.version == bindparam("version")
)
_ROW_COLUMNS = ", ".join(str(column) for column in _SELECT_ROWS.selected_columns)
_BLOB_OF_FILE = ("blobs", "blobs", "blobs.id = files.blob_id")


def get(tx: Tx, ident: int) -> FileVersion:
    """Return a row by its id."""
    return sql.map_row(FileVersion, tx.execute(_BY_ID, {"id": ident}).one())


def list_by_ids(tx: Tx, idents: Sequence[int]) -> list[FileVersion]:
    """Return a few hundred rows by their ids, in order."""
    wanted = {"id": ("bigint", sorted(idents))}
    rows = sql.look_up_rows(
        tx, _ROW_COLUMNS, wanted, ("files", "files", "files.id = wanted.id"), _BLOB_OF_FILE
    )
    return sorted(sql.map_rows(FileVersion, rows), key=lambda row: row.id)


def find(tx: Tx, fqid: FQID) -> FileVersion | None:
    """Return the row of a version, published or not, in any replica."""
    return sql.find_row(tx, FileVersion, _BY_FQID, fqid._asdict())


def find_latest(tx: Tx, uuid: str) -> FileVersion | None:
    """Return the greatest published version of a uuid in any replica."""
    newest = list_versions(tx, uuid, limit=1)
    return newest[0] if newest else None


def list_versions(tx: Tx, uuid: str, *, limit: int) -> list[FileVersion]:
    """List the published versions of a uuid in any replica, the greatest first."""
    query = _SELECT_ROWS.where(files.c.uuid == uuid, files.c.published_us.is_not(None))
    purged = select(purges.c.id).where(
        purges.c.kind == "file",
        purges.c.uuid == uuid,
        purges.c.version == files.c.version,
    )
    query = query.where(~purged.exists())
    rows = tx.execute(query.order_by(files.c.version.desc()).limit(limit))
    return sql.map_rows(FileVersion, rows)


def find_all(tx: Tx, fqids: Sequence[FQID]) -> list[FileVersion]:
    """Return the rows of those versions that exist, in any order."""
    file = ("files", "files", "files.uuid = wanted.uuid AND files.version = wanted.version")
    rows = sql.look_up_rows(tx, _ROW_COLUMNS, sql.fqid_columns(fqids), file, _BLOB_OF_FILE)
    return sql.map_rows(FileVersion, rows)


def reserve(tx: Tx, new: NewFileVersion) -> FileVersion:
    """Insert a version, or return its existing row; the caller compares digests."""
    (reserved,) = reserve_all(tx, [new])
    return reserved


def reserve_all(tx: Tx, new: Sequence[NewFileVersion]) -> list[FileVersion]:
    """Reserve several versions, in any order; the caller holds the locks of their heads."""
    source, parameters = sql.derive_table(tx, "new", new_file_columns(new))
    for statement in _RESERVE:
        sql.execute(tx, statement.format(source=source), parameters)
    return find_all(tx, [file.fqid for file in new])


def new_file_columns(new: Sequence[NewFileVersion]) -> sql.Columns:
    """Return the columns of files and of their blobs."""
    names = "blob_etag digest origin author content_type event_id"
    return {
        **sql.fqid_columns(file.fqid for file in new),
        **sql.attribute_columns(new, bigint="size creator_uid", text=names),
        **sql.attribute_columns([file.checksums for file in new], text=" ".join(CHECKSUM_NAMES)),
    }


_RESERVE = (
    # Sorted, so that two transactions that insert the same blobs cannot deadlock.
    "INSERT INTO blobs (sha256, sha1, crc32c, s3_etag, size)"
    " SELECT sha256, sha1, crc32c, blob_etag, size FROM {source} WHERE true ORDER BY sha256"
    " ON CONFLICT (sha256) DO NOTHING",
    "INSERT INTO files (uuid, version, digest, origin, creator_uid, author, content_type,"
    " s3_etag, blob_id, event_id, created_us)"
    " SELECT new.uuid, new.version, new.digest, new.origin, new.creator_uid, new.author,"
    " new.content_type, new.s3_etag,"
    " (SELECT b.id FROM blobs AS b WHERE b.sha256 = new.sha256), new.event_id, :now"
    " FROM {source} WHERE true ON CONFLICT (uuid, version) DO NOTHING",
)


def publish(tx: Tx, rows: Sequence[FileVersion], replica: Replica) -> None:
    """Publish files whose bytes and records are in a bucket, and revive their condemned blobs.

    The caller holds the locks of their heads.
    """
    columns: sql.Columns = {
        "id": ("bigint", [row.id for row in rows]),
        **sql.fqid_columns(row.fqid for row in rows),
        **sql.attribute_columns(rows, bigint="blob_id"),
    }
    source, parameters = sql.derive_table(tx, "whole", columns)
    for statement in _PUBLISH:
        sql.execute(tx, statement.format(source=source), {**parameters, "replica": replica})


_PUBLISH = (
    # DISTINCT: several files may share a blob, and one statement must not touch a row twice.
    # Sorted, so that two transactions that publish the same blobs cannot deadlock. `verified_us` of
    # existing rows stays: their bytes were not read again.
    "INSERT INTO blob_replicas (blob_id, replica, state, at_us, verified_us)"
    " SELECT DISTINCT blob_id, :replica, 'present', :now, :now FROM {source} WHERE true"
    " ORDER BY blob_id"
    " ON CONFLICT (blob_id, replica) DO UPDATE SET state = 'present', at_us = excluded.at_us",
    "INSERT INTO presence (kind, id, replica, at_us, diverged, verified_us)"
    " SELECT 'file', id, :replica, :now, false, :now FROM {source} WHERE true ORDER BY id"
    " ON CONFLICT (kind, id, replica) DO UPDATE SET at_us = excluded.at_us,"
    " diverged = excluded.diverged, verified_us = excluded.verified_us",
    "INSERT INTO visible (kind, replica, uuid, version, id)"
    " SELECT 'file', :replica, uuid, version, id FROM {source} WHERE true ORDER BY uuid, version"
    " ON CONFLICT DO NOTHING",
)


def filter_stored_blobs(tx: Tx, replica: Replica, rows: Sequence[FileVersion]) -> set[int]:
    """Return the blob ids of these files that are stored in a replica's bucket."""
    wanted = {"id": ("bigint", sorted({row.blob_id for row in rows}))}
    same = "r.blob_id = wanted.id AND r.replica = :replica AND r.state = 'present'"
    stored = ("blob_replicas", "r", same)
    return {*sql.look_up_rows(tx, "wanted.id", wanted, stored, replica=replica).scalars()}


def estimate_blob_count(tx: Tx) -> int:
    """Return an upper bound of the number of blobs: the greatest id, which needs no counting."""
    return tx.execute(select(func.max(blobs.c.id))).scalar() or 0


def filter_stored_checksums(tx: Tx, replica: Replica, sums: Sequence[str]) -> set[str]:
    """Return those of these SHA-256 sums that are stored in a replica's bucket."""
    return {*tx.execute(select_stored_blobs(replica).where(blobs.c.sha256.in_(sums))).scalars()}


def select_stored_blobs(replica: Replica) -> Select[Any]:
    """Select SHA-256 and size of the blobs that are stored in a replica's bucket."""
    query = select(blobs.c.sha256, blobs.c.size).join(blob_replicas)
    return query.where(blob_replicas.c.replica == replica, blob_replicas.c.state == "present")


# Cutting one string takes a third of the time of extracting from an array; a uuid has 36
# characters.
_SQLITE_WANTED = (
    "(SELECT key AS ordinal, substr(value, 1, 36) AS uuid, substr(value, 38) AS version"
    " FROM json_each(:wanted)) AS wanted"
)
_IS_PUBLISHED = (
    "v.kind = 'file' AND v.replica = :replica AND v.uuid = {of}.uuid AND v.version = {of}.version"
)

FileKey = tuple[str, str]
"""uuid and version, as an `FQID` or a plain pair."""

FoundFile = tuple[int, int, str, int, str, str, str, str]
"""ordinal, id, content_type, size, sha1, sha256, crc32c, s3_etag of one file."""
_FOUND_COLUMNS = (
    "wanted.ordinal",
    "f.id",
    "f.content_type",
    "b.size",
    "b.sha1",
    "b.sha256",
    "b.crc32c",
    "f.s3_etag",
)


def look_up(tx: Tx, replica: Replica, keys: Sequence[FileKey]) -> list[FoundFile]:
    """Look up published files of a replica by key, in the order of the keys: one query.

    `ordinal` is the index into `keys`.
    """
    source, parameters = build_lookup(tx, replica, keys)
    return sorted(sql.fetch_rows(tx, _FOUND_COLUMNS, source, parameters))


def build_lookup(tx: Tx, replica: Replica, keys: Sequence[FileKey]) -> tuple[str, dict[str, Any]]:
    """Return the joined tables of `look_up`, spelled so that planners use an index per key."""
    if tx.dialect.name == "sqlite":
        source = _SQLITE_WANTED
        parameters: dict[str, Any] = {"wanted": orjson.dumps([*map(".".join, keys)]).decode()}
    else:
        # In index order: neighbours lie on one page.
        order = sorted(range(len(keys)), key=keys.__getitem__)
        columns: sql.Columns = {
            "ordinal": ("bigint", order),
            "uuid": ("text", [keys[place][0] for place in order]),
            "version": ("text", [keys[place][1] for place in order]),
        }
        source, parameters = sql.derive_table(tx, "wanted", columns)
    published = sql.join_one(tx, "visible", "v", _IS_PUBLISHED.format(of="wanted"))
    file = sql.join_one(tx, "files", "f", "f.id = v.id")
    blob = sql.join_one(tx, "blobs", "b", "b.id = f.blob_id")
    return f"{source} {published} {file} {blob}", {**parameters, "replica": replica}


def locate(tx: Tx, keys: Sequence[FQID]) -> dict[FQID, str]:
    """Return which keys exist at all: `elsewhere` (published) or `pending`."""
    same = "t.uuid = wanted.uuid AND t.version = wanted.version"
    wanted = sql.fqid_columns(keys)
    # Tasks first: one that ends between the two queries has left its file for the second.
    task = ("tasks", "t", f"{same} AND t.finished_us IS NULL")
    tasks = sql.look_up_rows(tx, "t.uuid, t.version", wanted, task).all()
    columns = "t.uuid, t.version, t.published_us IS NOT NULL"
    rows = sql.look_up_rows(tx, columns, wanted, ("files", "t", same))
    places = {FQID(row[0], row[1]): "elsewhere" if row[2] else "pending" for row in rows}
    for purged in catalog_purges.filter_purged(tx, "file", list(places)):
        del places[purged]
    return {**{FQID(uuid, version): "pending" for uuid, version in tasks}, **places}


def filter_published_ids(tx: Tx, replica: Replica, idents: Sequence[int]) -> set[int]:
    """Return those of these file ids that are published in a replica."""
    wanted = {"id": ("bigint", idents)}
    file = ("files", "f", "f.id = wanted.id")
    published = ("visible", "v", _IS_PUBLISHED.format(of="f"))
    return {*sql.look_up_rows(tx, "wanted.id", wanted, file, published, replica=replica).scalars()}


def list_blobs(
    tx: Tx, replica: Replica, after: tuple[str, int], *, before_us: int, limit: int
) -> list[tuple[str, int]]:
    """List SHA-256 and size of blobs stored in a bucket before a moment, after a given one."""
    query = select_stored_blobs(replica).where(
        blobs.c.sha256 > after[0], blob_replicas.c.at_us < before_us
    )
    rows = tx.execute(query.order_by(blobs.c.sha256).limit(limit))
    return [(row.sha256, row.size) for row in rows]
