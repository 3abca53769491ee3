"""Pages of a bundle's entries by folder, its metadata files, and where its bytes are verified."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.model import FQID, REPLICAS, Checksums, ManifestEntry, Replica


class FolderItem(NamedTuple):
    """A folder, whose name ends in a slash, with number and bytes of its files, or one file."""

    name: str
    files: int
    size: int
    entry: ManifestEntry | None


def list_folder(
    tx: Tx, bundle_id: int, prefix: str, *, after: str = "", limit: int
) -> list[FolderItem]:
    """List what is directly below a prefix of names, in byte order, after a given name.

    Names are relative to the prefix. One query finds them, another one reads the files.
    """
    rows = tx.execute(
        sql.parse(_LIST_FOLDER[tx.dialect.name == "sqlite"]),
        {
            "id": bundle_id,
            "prefix": prefix,
            "length": len(prefix),
            "after": after,
            "limit": limit,
        },
    ).all()
    ordinals = [row.ordinal for row in rows if not row.child.endswith("/")]
    entries = _read_entries(tx, bundle_id, ordinals)
    return [
        FolderItem(row.child, row.files, int(row.size), entries.get(row.ordinal)) for row in rows
    ]


def _spell_listing(position: str, collation: str) -> str:
    rest = "substr(e.name, :length + 1)"
    slash = position.format(rest)
    child = f"CASE WHEN {slash} > 0 THEN substr({rest}, 1, {slash}) ELSE {rest} END"
    return (
        "SELECT child, count(*) AS files, sum(size) AS size, min(ordinal) AS ordinal FROM"
        f" (SELECT {child} AS child, s.start + e.position AS ordinal, b.size"
        " FROM bundle_segments AS s CROSS JOIN entries AS e"
        " CROSS JOIN files AS f CROSS JOIN blobs AS b"
        " WHERE s.bundle_id = :id AND e.segment_id = s.segment_id"
        " AND f.id = e.file_id AND b.id = f.blob_id"
        " AND substr(e.name, 1, :length) = :prefix) AS below"
        f" WHERE child{collation} > :after"
        f" GROUP BY child ORDER BY child{collation} LIMIT :limit"
    )


_LIST_FOLDER = {
    True: _spell_listing("instr({}, '/')", ""),
    False: _spell_listing("strpos({}, '/')", ' COLLATE "C"'),
}


_ENTRY_COLUMNS = (
    "s.start + e.position AS ordinal, e.name, f.uuid, f.version, e.indexed, f.content_type,"
    " b.size, b.sha1, b.sha256, b.crc32c, f.s3_etag"
)


def _read_entries(tx: Tx, bundle_id: int, ordinals: Sequence[int]) -> dict[int, ManifestEntry]:
    """Return entries by their ordinals."""
    if not ordinals:
        return {}
    source, parameters = sql.derive_table(tx, "wanted", {"ordinal": ("bigint", ordinals)})
    # The segment that holds an ordinal is the last one that starts at or before it.
    segment = (
        "(SELECT max(l.start) FROM bundle_segments AS l WHERE l.bundle_id = :id"
        " AND l.start <= wanted.ordinal)"
    )
    joins = (
        sql.join_one(tx, "bundle_segments", "s", f"s.bundle_id = :id AND s.start = {segment}"),
        sql.join_one(
            tx,
            "entries",
            "e",
            "e.segment_id = s.segment_id AND e.position = wanted.ordinal - s.start",
        ),
        sql.join_one(tx, "files", "f", "f.id = e.file_id"),
        sql.join_one(tx, "blobs", "b", "b.id = f.blob_id"),
    )
    statement = f"SELECT {_ENTRY_COLUMNS} FROM {source} {' '.join(joins)}"
    rows = tx.execute(sql.parse(statement), {**parameters, "id": bundle_id})
    return {row.ordinal: _entry_from_row(row) for row in rows}


def _entry_from_row(row: Any) -> ManifestEntry:
    _, name, uuid, version, indexed, content_type, size, *sums = tuple(row)
    fqid = FQID(uuid, version)
    return ManifestEntry(name, fqid, bool(indexed), content_type, size, Checksums(*sums))


_LIST_METADATA = (
    f"SELECT {_ENTRY_COLUMNS} FROM bundle_segments AS s CROSS JOIN entries AS e"
    " JOIN files AS f ON f.id = e.file_id JOIN blobs AS b ON b.id = f.blob_id"
    " WHERE s.bundle_id = :id AND e.segment_id = s.segment_id AND e.indexed"
    " AND lower(f.content_type) LIKE 'application/json%'"
    " ORDER BY s.start, e.position LIMIT :limit"
)


def list_metadata_entries(tx: Tx, bundle_id: int, *, limit: int) -> list[ManifestEntry]:
    """List the first indexed JSON files of a bundle, in manifest order."""
    rows = tx.execute(sql.parse(_LIST_METADATA), {"id": bundle_id, "limit": limit})
    return [_entry_from_row(row) for row in rows]


# Verification ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaVerification:
    """What is known of an object, or of several, in a replica.

    `stored_us` and `verified_us` are the earliest of them; None if nothing is stored.
    """

    objects: int
    stored_us: int | None
    verified_us: int | None
    damaged: int = 0


def find_record_verification(tx: Tx, bundle_id: int) -> dict[Replica, ReplicaVerification]:
    """Return when each replica's record of a bundle was last verified."""
    return _find_verification(tx, "presence WHERE kind = 'bundle' AND id = :id", bundle_id)


def find_blob_verification(tx: Tx, blob_id: int) -> dict[Replica, ReplicaVerification]:
    """Return when each replica's copy of a blob was last verified."""
    return _find_verification(
        tx, "blob_replicas WHERE blob_id = :id AND state = 'present'", blob_id
    )


def _find_verification(tx: Tx, rows: str, ident: int) -> dict[Replica, ReplicaVerification]:
    query = sql.parse(f"SELECT replica, at_us, verified_us FROM {rows} ORDER BY replica")
    return {
        row.replica: ReplicaVerification(1, row.at_us, row.verified_us)
        for row in tx.execute(query, {"id": ident})
    }


def summarize_verification(tx: Tx, bundle_id: int) -> dict[Replica, ReplicaVerification]:
    """Summarize, for each replica, when the bytes of a bundle's files were last verified."""
    file = sql.join_one(tx, "files", "f", "f.id = e.file_id")
    statement = (
        "SELECT r.replica, count(*), min(r.at_us), min(r.verified_us)"
        f" FROM bundle_segments AS s CROSS JOIN entries AS e {file}"
        " CROSS JOIN blob_replicas AS r WHERE s.bundle_id = :id AND e.segment_id = s.segment_id"
        " AND r.blob_id = f.blob_id AND r.state = 'present' GROUP BY r.replica"
    )
    found = {
        row[0]: ReplicaVerification(*row[1:])
        for row in tx.execute(sql.parse(statement), {"id": bundle_id})
    }
    return {name: found[name] for name in REPLICAS if name in found}
