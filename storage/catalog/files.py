"""Files: reserved once verified, published once their record is in the origin's bucket."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, func, select

from storage.catalog import bulk, purges
from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.schema import blob_replicas, blobs, files
from storage.catalog.schema import purges as purge_rows
from storage.model import FQID, Checksums, FileVersion, Replica


@dataclass(frozen=True, slots=True)
class Reserved:
    """A file's row with all that its record needs."""

    file: FileVersion
    blob_id: int
    digest: str
    author: str
    event_id: str
    published: bool


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a verified file is made of."""

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


_COLUMNS = (
    files.c.id,
    files.c.uuid,
    files.c.version,
    files.c.creator_uid,
    files.c.content_type,
    blobs.c.size,
    blobs.c.sha1,
    blobs.c.sha256,
    blobs.c.crc32c,
    files.c.s3_etag,
    files.c.origin,
    files.c.created_us,
)


def _file(row: Row[tuple[object, ...]]) -> FileVersion:
    checksums = Checksums(row.sha1, row.sha256, row.crc32c, row.s3_etag)
    return FileVersion(
        id=row.id,
        fqid=FQID(row.uuid, row.version),
        creator_uid=row.creator_uid,
        content_type=row.content_type,
        size=row.size,
        checksums=checksums,
        origin=row.origin,
        created_us=row.created_us,
    )


def _reserved(row: Row[tuple[object, ...]]) -> Reserved:
    published = row.published_us is not None
    return Reserved(_file(row), row.blob_id, row.digest, row.author, row.event_id, published)


_WHOLE: Select[Any] = select(
    *_COLUMNS,
    files.c.blob_id,
    files.c.digest,
    files.c.author,
    files.c.event_id,
    files.c.published_us,
).join(blobs, blobs.c.id == files.c.blob_id)
# Built once: that takes longer than running them.
_BY_ID = _WHOLE.where(files.c.id == bindparam("id"))
_BY_FQID = _WHOLE.where(files.c.uuid == bindparam("uuid"), files.c.version == bindparam("version"))
_NAMED = ", ".join(str(column) for column in _WHOLE.selected_columns)


def by_id(tx: Tx, ident: int) -> Reserved:
    """The row of a known id."""
    return _reserved(tx.execute(_BY_ID, {"id": ident}).one())


def by_ids(tx: Tx, idents: Sequence[int]) -> list[Reserved]:
    """The rows of known ids, a few hundred at a time, by id."""
    source, parameters = bulk.derived(tx, "wanted", {"id": ("bigint", sorted(idents))})
    file = bulk.one_each(tx, "files", "files", "files.id = wanted.id")
    blob = bulk.one_each(tx, "blobs", "blobs", "blobs.id = files.blob_id")
    statement = f"SELECT {_NAMED} FROM {source} {file} {blob} ORDER BY wanted.id"
    return [_reserved(row) for row in tx.execute(sql(statement), parameters)]


def by_fqid(tx: Tx, fqid: FQID) -> Reserved | None:
    """The row of a version, published or not, wherever it is."""
    row = tx.execute(_BY_FQID, fqid._asdict()).first()
    return None if row is None else _reserved(row)


def latest_anywhere(tx: Tx, uuid: str) -> Reserved | None:
    """The greatest published version of a uuid in any replica."""
    query = _WHOLE.where(files.c.uuid == uuid, files.c.published_us.is_not(None))
    purged = select(purge_rows.c.id).where(
        purge_rows.c.kind == "file",
        purge_rows.c.uuid == uuid,
        purge_rows.c.version == files.c.version,
    )
    query = query.where(~purged.exists())
    row = tx.execute(query.order_by(files.c.version.desc()).limit(1)).first()
    return None if row is None else _reserved(row)


def by_fqids(tx: Tx, fqids: Sequence[FQID]) -> list[Reserved]:
    """The rows of several versions, in any order; nothing for one that there is not."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    same = "files.uuid = wanted.uuid AND files.version = wanted.version"
    file = bulk.one_each(tx, "files", "files", same)
    blob = bulk.one_each(tx, "blobs", "blobs", "blobs.id = files.blob_id")
    rows = tx.execute(sql(f"SELECT {_NAMED} FROM {source} {file} {blob}"), parameters)
    return [_reserved(row) for row in rows]


def reserve(tx: Tx, new: NewFile) -> Reserved:
    """Insert the version, or return the row that has it already (compare the digests)."""
    (reserved,) = reserve_all(tx, [new])
    return reserved


def reserve_all(tx: Tx, new: Sequence[NewFile]) -> list[Reserved]:
    """The same for several versions, in any order. The caller holds their heads."""
    columns: bulk.Columns = {
        "sha256": ("text", [file.checksums.sha256 for file in new]),
        "sha1": ("text", [file.checksums.sha1 for file in new]),
        "crc32c": ("text", [file.checksums.crc32c for file in new]),
        "blob_etag": ("text", [file.blob_etag for file in new]),
        "size": ("bigint", [file.size for file in new]),
        **bulk.fqids(file.fqid for file in new),
        "digest": ("text", [file.digest for file in new]),
        "origin": ("text", [file.origin for file in new]),
        "creator_uid": ("bigint", [file.creator_uid for file in new]),
        "author": ("text", [file.author for file in new]),
        "content_type": ("text", [file.content_type for file in new]),
        "s3_etag": ("text", [file.checksums.s3_etag for file in new]),
        "event_id": ("text", [file.event_id for file in new]),
    }
    source, parameters = bulk.derived(tx, "new", columns)
    for statement in _RESERVE:
        execute_now(tx, statement.format(source=source), parameters)
    return by_fqids(tx, [file.fqid for file in new])


_RESERVE = (
    # Sorted, so that two that insert the same blobs wait for each other in one direction only.
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


def reveal(tx: Tx, rows: Sequence[Reserved], replica: Replica) -> None:
    """These files are whole in a bucket, bytes and record: readers see them there, and a condemned
    blob of theirs is revived. The caller holds their heads."""
    columns: bulk.Columns = {
        "id": ("bigint", [row.file.id for row in rows]),
        "uuid": ("text", [row.file.fqid.uuid for row in rows]),
        "version": ("text", [row.file.fqid.version for row in rows]),
        "blob_id": ("bigint", [row.blob_id for row in rows]),
    }
    source, parameters = bulk.derived(tx, "whole", columns)
    for statement in _REVEAL:
        execute_now(tx, statement.format(source=source), {**parameters, "replica": replica})


_REVEAL = (
    # One blob may be several files, and one statement must not touch a row twice; sorted, so that
    # two that reveal the same blobs wait for each other in one direction only.
    # Bytes that were there already were not read again.
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


def blobs_present(tx: Tx, replica: Replica, rows: Sequence[Reserved]) -> set[int]:
    """Those blobs of these files that the catalog knows in a replica's bucket."""
    wanted = sorted({row.blob_id for row in rows})
    source, parameters = bulk.derived(tx, "wanted", {"id": ("bigint", wanted)})
    held = "r.blob_id = wanted.id AND r.replica = :replica AND r.state = 'present'"
    there = bulk.one_each(tx, "blob_replicas", "r", held)
    statement = sql(f"SELECT wanted.id FROM {source} {there}")
    return set(tx.execute(statement, {**parameters, "replica": replica}).scalars())


def most_blobs(tx: Tx) -> int:
    """At least as many blobs as the catalog knows: the greatest id, which costs no counting."""
    return tx.execute(select(func.max(blobs.c.id))).scalar() or 0


def bytes_present(tx: Tx, replica: Replica, sums: Sequence[str]) -> set[str]:
    """Those of these SHA-256 whose bytes the catalog knows in a replica's bucket."""
    query = select(blobs.c.sha256).join(blob_replicas, blob_replicas.c.blob_id == blobs.c.id)
    known = query.where(
        blobs.c.sha256.in_(sums),
        blob_replicas.c.replica == replica,
        blob_replicas.c.state == "present",
    )
    return set(tx.execute(known).scalars())


# Cutting one string is a third of the work of taking an array apart; a uuid has 36 characters.
_SQLITE_WANTED = (
    "(SELECT key AS ordinal, substr(value, 1, 36) AS uuid, substr(value, 38) AS version"
    " FROM json_each(:wanted)) AS wanted"
)
_SEEN = (
    "v.kind = 'file' AND v.replica = :replica AND v.uuid = {of}.uuid AND v.version = {of}.version"
)

Key = tuple[str, str]
"""uuid and version, as an `FQID` or a plain pair."""

Found = tuple[int, int, str, int, str, str, str, str]
"""ordinal, id, content_type, size, sha1, sha256, crc32c, s3_etag of one looked-up file."""
_FOUND = (
    "wanted.ordinal",
    "f.id",
    "f.content_type",
    "b.size",
    "b.sha1",
    "b.sha256",
    "b.crc32c",
    "f.s3_etag",
)


def lookup(tx: Tx, replica: Replica, keys: Sequence[Key]) -> list[Found]:
    """The files of these keys that readers of a replica see, in the order of the keys: one query.

    `ordinal` is the key's place in `keys`.
    """
    source, parameters = lookup_source(tx, replica, keys)
    return sorted(bulk.fetch(tx, _FOUND, source, parameters))


def lookup_source(tx: Tx, replica: Replica, keys: Sequence[Key]) -> tuple[str, dict[str, Any]]:
    """The joined tables of `lookup`, spelled so that the planner takes the index of what is
    visible, key by key, however large the tables are."""
    if tx.dialect.name == "sqlite":
        source = _SQLITE_WANTED
        parameters: dict[str, Any] = {"wanted": orjson.dumps([*map(".".join, keys)]).decode()}
    else:
        # In the order of the index: neighbours lie on one page.
        order = sorted(range(len(keys)), key=keys.__getitem__)
        columns: bulk.Columns = {
            "ordinal": ("bigint", order),
            "uuid": ("text", [keys[place][0] for place in order]),
            "version": ("text", [keys[place][1] for place in order]),
        }
        source, parameters = bulk.derived(tx, "wanted", columns)
    seen = bulk.one_each(tx, "visible", "v", _SEEN.format(of="wanted"))
    file = bulk.one_each(tx, "files", "f", "f.id = v.id")
    blob = bulk.one_each(tx, "blobs", "b", "b.id = f.blob_id")
    return f"{source} {seen} {file} {blob}", {**parameters, "replica": replica}


def whereabouts(tx: Tx, keys: Sequence[FQID]) -> dict[FQID, str]:
    """Of these keys, those that are known at all: `elsewhere` (published) or `pending`."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(keys))
    same = "{0}.uuid = wanted.uuid AND {0}.version = wanted.version"
    file = bulk.one_each(tx, "files", "f", same.format("f"))
    known = tx.execute(
        sql(f"SELECT f.uuid, f.version, f.published_us IS NOT NULL FROM {source} {file}"),
        parameters,
    )
    places = {FQID(row[0], row[1]): "elsewhere" if row[2] else "pending" for row in known}
    for gone in purges.among(tx, "file", list(places)):
        del places[gone]
    task = bulk.one_each(tx, "tasks", "t", same.format("t") + " AND t.finished_us IS NULL")
    open_tasks = tx.execute(sql(f"SELECT t.uuid, t.version FROM {source} {task}"), parameters)
    for row in open_tasks:
        places.setdefault(FQID(row[0], row[1]), "pending")
    return places


def seen_by_id(tx: Tx, replica: Replica, idents: Sequence[int]) -> set[int]:
    """Which of these files readers of a replica see."""
    source, parameters = bulk.derived(tx, "wanted", {"id": ("bigint", idents)})
    file = bulk.one_each(tx, "files", "f", "f.id = wanted.id")
    seen = bulk.one_each(tx, "visible", "v", _SEEN.format(of="f"))
    statement = f"SELECT wanted.id FROM {source} {file} {seen}"
    rows = tx.execute(sql(statement), {**parameters, "replica": replica})
    return set(rows.scalars())


def blobs_after(
    tx: Tx, replica: Replica, after: tuple[str, int], *, before_us: int, limit: int
) -> list[tuple[str, int]]:
    """SHA-256 and size of blobs seen in a bucket before a moment, in order, after a given one."""
    query = (
        select(blobs.c.sha256, blobs.c.size)
        .join(blob_replicas, blob_replicas.c.blob_id == blobs.c.id)
        .where(blob_replicas.c.replica == replica, blob_replicas.c.state == "present")
        .where(blobs.c.sha256 > after[0], blob_replicas.c.at_us < before_us)
    )
    rows = tx.execute(query.order_by(blobs.c.sha256).limit(limit))
    return [(row.sha256, row.size) for row in rows]
