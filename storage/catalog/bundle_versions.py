"""Versions of a bundle with their tombstones, and what distinguishes two of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from storage.catalog import bundles, sql
from storage.catalog.sql import Tx
from storage.catalog.tables.versions import bundles as bundle_rows
from storage.catalog.tables.versions import tombstones, visible
from storage.catalog.versions import Tombstone
from storage.model import REPLICAS, BundleVersion, Replica


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version that was published once: where it is visible, and the tombstone that hides it."""

    row: BundleVersion
    replicas: frozenset[Replica]
    tombstone: Tombstone | None


_PUBLISHED = (
    select(bundle_rows)
    .where(bundle_rows.c.uuid == bindparam("uuid"), bundle_rows.c.published_us.is_not(None))
    .where(bundle_rows.c.version < bindparam("before"))
    .order_by(bundle_rows.c.version.desc())
    .limit(bindparam("limit"))
)
_AFTER_ALL = "~"
"""Sorts after every version."""


def list_versions(
    tx: Tx, uuid: str, *, before: str | None = None, limit: int
) -> list[ListedVersion]:
    """List the published versions of a bundle, live and withdrawn, the greatest first."""
    parameters = {"uuid": uuid, "before": before or _AFTER_ALL, "limit": limit}
    rows = sql.map_rows(BundleVersion, tx.execute(_PUBLISHED, parameters))
    if not rows:
        return []
    names = [row.fqid.version for row in rows]
    seen: dict[str, set[Replica]] = {name: set() for name in names}
    query = select(visible.c.replica, visible.c.version).where(
        visible.c.kind == "bundle",
        visible.c.replica.in_(REPLICAS),
        visible.c.uuid == uuid,
        visible.c.version.in_(names),
    )
    for row in tx.execute(query):
        seen[row.version].add(row.replica)
    buried = _find_tombstones(tx, uuid, names)
    return [
        ListedVersion(
            row,
            frozenset(seen[row.fqid.version]),
            buried.get(row.fqid.version) or buried.get(""),
        )
        for row in rows
    ]


def _find_tombstones(tx: Tx, uuid: str, names: Collection[str]) -> dict[str, Tombstone]:
    """Return the tombstones of these versions, and that of the whole uuid under the empty name."""
    query = select(tombstones).where(
        tombstones.c.kind == "bundle",
        tombstones.c.uuid == uuid,
        tombstones.c.version.in_(["", *names]),
    )
    return {stone.version: stone for stone in sql.map_rows(Tombstone, tx.execute(query))}


def sum_bytes(tx: Tx, idents: Sequence[int], *, max_entries: int) -> Mapping[int, int]:
    """Return the bytes of each of these bundles, of shared segments only once.

    Bundles whose segments have more than `max_entries` in all are left out, the last ones first.
    """
    if not idents:
        return {}
    query = sql.parse(
        "SELECT bs.bundle_id, s.id, s.entry_count FROM bundle_segments AS bs"
        " JOIN segments AS s ON s.id = bs.segment_id WHERE bs.bundle_id IN :idents"
    ).bindparams(bindparam("idents", expanding=True))
    segments: dict[int, list[tuple[int, int]]] = {ident: [] for ident in idents}
    for bundle_id, segment_id, count in tx.execute(query, {"idents": list(idents)}):
        segments[bundle_id].append((segment_id, count))
    counts: dict[int, int] = {}
    summed: list[int] = []
    for ident in idents:
        more = {**counts, **dict(segments[ident])}
        if sum(more.values()) <= max_entries:
            counts = more
            summed.append(ident)
    sizes = _sum_segments(tx, list(counts))
    return {ident: sum(sizes[segment] for segment, _ in segments[ident]) for ident in summed}


def _sum_segments(tx: Tx, idents: Sequence[int]) -> Mapping[int, int]:
    """Return the bytes of each segment."""
    if not idents:
        return {}
    source, parameters = sql.derive_table(tx, "wanted", {"id": ("bigint", idents)})
    file = sql.join_one(tx, "files", "f", "f.id = e.file_id")
    blob = sql.join_one(tx, "blobs", "b", "b.id = f.blob_id")
    statement = (
        f"SELECT wanted.id, sum(b.size) FROM {source}"
        f" CROSS JOIN entries AS e {file} {blob} WHERE e.segment_id = wanted.id GROUP BY wanted.id"
    )
    return {row[0]: int(row[1]) for row in tx.execute(sql.parse(statement), parameters)}


# Differences -------------------------------------------------------------------------------

Line = tuple[str, str, str, int, str, str, int]
"""name, uuid, version, indexed, content type, SHA-256, size of one entry."""
_LINE_COLUMNS = (
    "e.name",
    "f.uuid",
    "f.version",
    "CAST(e.indexed AS integer)",
    "f.content_type",
    "b.sha256",
    "b.size",
)


def list_unshared_lines(tx: Tx, first: int, second: int) -> tuple[list[Line], list[Line]]:
    """Return the entries of two bundles, without those of segments that both have."""
    theirs = [
        {segment.segment_id for segment in bundles.list_segments(tx, ident)}
        for ident in (first, second)
    ]
    shared = theirs[0] & theirs[1]
    before, after = (_read_lines(tx, sorted(segments - shared)) for segments in theirs)
    return before, after


def _read_lines(tx: Tx, segments: Sequence[int]) -> list[Line]:
    if not segments:
        return []
    source, parameters = sql.derive_table(tx, "wanted", {"id": ("bigint", segments)})
    file = sql.join_one(tx, "files", "f", "f.id = e.file_id")
    blob = sql.join_one(tx, "blobs", "b", "b.id = f.blob_id")
    source = f"{source} CROSS JOIN entries AS e {file} {blob} WHERE e.segment_id = wanted.id"
    rows: list[Any] = sql.fetch_rows(tx, _LINE_COLUMNS, source, parameters)
    return rows
