"""Purges: permanent removal, progress by replica, and deletion of rows.

The row of a purge is never deleted: its name can never be used again.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Select, delete, func, select, update

from storage.catalog import sql, versions
from storage.catalog.sql import Tx
from storage.catalog.tables.event_log import events
from storage.catalog.tables.jobs import checkouts, tasks
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    bundle_segments,
    bundles,
    documents,
    entries,
    files,
    presence,
    purge_replicas,
    purges,
    segments,
)
from storage.model import FQID, REPLICAS, Replica

RECENT_US = 3_600_000_000
"""Longer than any write takes from looking its files up to referring to them."""
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Purge:
    """A permanent removal; `version` is empty for a whole uuid."""

    id: int
    kind: str
    uuid: str
    version: str
    reason: str
    author: str
    origin: Replica
    digest: str
    event_id: str
    created_us: int
    finished_us: int | None

    @property
    def name(self) -> str:
        """`<uuid>[.<version>]`."""
        return f"{self.uuid}.{self.version}" if self.version else self.uuid


def insert(tx: Tx, new: Purge) -> Purge:
    """Insert a purge, or return the existing one; the caller holds the lock of its head.

    The catalog sets id and time.
    """
    row = {**asdict(new), "created_us": sql.clock(tx)}
    del row["id"]
    sql.insert_missing(tx, purges, [row])
    existing = find(tx, new.kind, new.uuid, new.version)
    assert existing is not None
    rows = [{"purge_id": existing.id, "replica": replica} for replica in REPLICAS]
    sql.insert_missing(tx, purge_replicas, rows)
    return existing


def find(tx: Tx, kind: str, uuid: str, version: str) -> Purge | None:
    """Return exactly this purge; an empty version means that of the whole uuid."""
    query = select(purges).filter_by(kind=kind, uuid=uuid, version=version)
    return sql.find_row(tx, Purge, query)


def list_unfinished(tx: Tx, *, limit: int) -> list[Purge]:
    """List unfinished purges, the oldest first."""
    query = select(purges).where(purges.c.finished_us.is_(None))
    return sql.map_rows(Purge, tx.execute(query.order_by(purges.c.created_us).limit(limit)))


def filter_purged(tx: Tx, kind: str, fqids: Collection[FQID]) -> dict[FQID, bool]:
    """Return purged versions; True where every bucket has the marker: erasure has begun."""
    if not fqids:
        return {}
    columns = (
        "p.uuid, p.version, NOT EXISTS (SELECT 1 FROM purge_replicas AS r"
        " WHERE r.purge_id = p.id AND r.marked_us IS NULL)"
    )
    same = "p.kind = :kind AND p.uuid = wanted.uuid AND p.version = wanted.version"
    wanted = sql.fqid_columns(fqids)
    rows = sql.look_up_rows(tx, columns, wanted, ("purges", "p", same), kind=kind)
    return {FQID(row[0], row[1]): bool(row[2]) for row in rows}


def has_recent(tx: Tx) -> bool:
    """Return whether a file was purged since a writer looked its files up: one index probe."""
    return sql.execute(tx, _SELECT_RECENT, {}).first() is not None


_SELECT_RECENT = (
    f"SELECT id FROM purges WHERE kind = 'file' AND created_us > :now - {RECENT_US} LIMIT 1"
)


def record_marker(tx: Tx, purge: Purge, replica: Replica) -> bool:
    """Record a bucket's marker; True when every bucket has it. The caller locked the head."""
    return _record_confirmation(tx, purge, replica, "marked_us")


def record_erasure(tx: Tx, purge: Purge, replica: Replica) -> bool:
    """Record an erasure in a bucket; True when every bucket is done. The caller locked the head."""
    table = VERSION_TABLES[purge.kind]
    ident = select(table.c.id).where(table.c.uuid == purge.uuid, table.c.version == purge.version)
    statement = delete(presence).filter_by(kind=purge.kind, replica=replica)
    tx.execute(statement.where(presence.c.id.in_(ident.scalar_subquery())))
    return _record_confirmation(tx, purge, replica, "erased_us")


def _record_confirmation(tx: Tx, purge: Purge, replica: Replica, column: str) -> bool:
    c = purge_replicas.c
    confirmed = update(purge_replicas).where(c.purge_id == purge.id, c.replica == replica)
    tx.execute(confirmed.values({column: sql.clock(tx)}))
    lacking = select(c.replica).where(c.purge_id == purge.id, c[column].is_(None))
    return tx.execute(lacking).first() is None


def finish(tx: Tx, purge: Purge) -> None:
    """Mark a purge finished."""
    finished = func.coalesce(purges.c.finished_us, sql.clock(tx))
    tx.execute(update(purges).filter_by(id=purge.id).values(finished_us=finished))


def read_progress(tx: Tx, purge: Purge) -> dict[str, str]:
    """Return the state of each replica: `waiting`, `marked` or `erased`."""
    rows = tx.execute(select(purge_replicas).filter_by(purge_id=purge.id))
    return {
        row.replica: "erased" if row.erased_us else "marked" if row.marked_us else "waiting"
        for row in rows
    }


def lock_unreferenced(tx: Tx, idents: Sequence[int]) -> list[int]:
    """Lock and return files that only purged bundles refer to, which no bucket holds any more.

    A writer that refers to one of them waits, and then finds it gone. The caller holds the locks of
    their heads.
    """
    locked = select(files.c.id).where(files.c.id.in_(idents)).order_by(files.c.id)
    left = set(tx.execute(locked.with_for_update()).scalars())
    named = (
        select(entries.c.file_id)
        .join(bundle_segments, bundle_segments.c.segment_id == entries.c.segment_id)
        .join(bundles, bundles.c.id == bundle_segments.c.bundle_id)
        .where(entries.c.file_id.in_(idents))
        .where(~_select_erased_bundles().exists())
        .distinct()
    )
    return sorted(left - set(tx.execute(named).scalars()))


def _select_erased_bundles() -> Select[tuple[int]]:
    """Select the purge of a bundle whose records are erased from every bucket."""
    there = select(purge_replicas.c.replica).where(
        purge_replicas.c.purge_id == purges.c.id, purge_replicas.c.erased_us.is_(None)
    )
    return (
        select(purges.c.id)
        .where(purges.c.kind == "bundle", ~there.exists())
        .where(purges.c.uuid == bundles.c.uuid, purges.c.version == bundles.c.version)
    )


def filter_named_only_by(tx: Tx, idents: Sequence[int], bundle_ids: Sequence[int]) -> list[int]:
    """Return those files that no bundle but these refers to."""
    others: set[int] = set()
    for start in range(0, len(idents), _CHUNK):
        query = (
            select(entries.c.file_id)
            .join(bundle_segments, bundle_segments.c.segment_id == entries.c.segment_id)
            .where(entries.c.file_id.in_(idents[start : start + _CHUNK]))
            .where(bundle_segments.c.bundle_id.not_in(bundle_ids))
        )
        others |= set(tx.execute(query.distinct()).scalars())
    return [ident for ident in idents if ident not in others]


def is_referenced(tx: Tx, ident: int) -> bool:
    """Return whether any bundle refers to this file."""
    query = select(entries.c.name).where(entries.c.file_id == ident)
    return tx.execute(query.limit(1)).first() is not None


def delete_bundle(tx: Tx, bundle_id: int, event_ids: Sequence[str]) -> None:
    """Delete a bundle's rows, and segments that no other version shares.

    The caller holds the lock of its head. Events stay, but refer to no bundle: its id may be
    reused.
    """
    condition = bundle_segments.c.bundle_id == bundle_id
    shared = list(tx.execute(select(bundle_segments.c.segment_id).where(condition)).scalars())
    tx.execute(delete(bundle_segments).where(condition))
    for start in range(0, len(shared), _CHUNK):
        _delete_segments(tx, shared[start : start + _CHUNK])
    tx.execute(update(events).where(events.c.id.in_(event_ids)).values(bundle_id=0))
    tx.execute(update(checkouts).filter_by(bundle_id=bundle_id).values(bundle_id=0))
    indexed = documents.c.replica.in_(REPLICAS) & (documents.c.bundle_id == bundle_id)
    tx.execute(delete(documents).where(indexed))
    _delete_replica_rows(tx, "bundle", bundle_id)
    tx.execute(delete(bundles).filter_by(id=bundle_id))


def _delete_segments(tx: Tx, idents: Sequence[int]) -> None:
    used = select(bundle_segments.c.segment_id).where(bundle_segments.c.segment_id.in_(idents))
    free = sorted(set(idents) - set(tx.execute(used).scalars()))
    tx.execute(delete(entries).where(entries.c.segment_id.in_(free)))
    tx.execute(delete(segments).where(segments.c.id.in_(free)))


def delete_file(tx: Tx, ident: int, fqid: FQID) -> None:
    """Delete a file's rows and its ingest tasks; the caller holds the lock of its head."""
    versions.unpublish(tx, "file", *fqid)
    _delete_replica_rows(tx, "file", ident)
    tx.execute(delete(files).filter_by(id=ident))
    named = (tasks.c.uuid == fqid.uuid) & (tasks.c.version == fqid.version)
    tx.execute(delete(tasks).where(named, tasks.c.finished_us.is_not(None)))


def _delete_replica_rows(tx: Tx, kind: str, ident: int) -> None:
    tx.execute(delete(presence).filter_by(kind=kind, id=ident))


def list_versions(tx: Tx, uuid: str) -> list[FQID]:
    """List all versions of a bundle that were reserved and are not purged yet."""
    query = select(bundles.c.version).where(bundles.c.uuid == uuid).order_by(bundles.c.version)
    return [FQID(uuid, version) for version in tx.execute(query).scalars()]


def list_checkouts(tx: Tx, bundle_id: int, replica: Replica) -> list[tuple[str, str]]:
    """List id and state of checkouts of a bundle whose copies are in the store's own area."""
    here = (checkouts.c.bundle_id == bundle_id) & (checkouts.c.replica == replica)
    query = select(checkouts.c.id, checkouts.c.state).where(here, checkouts.c.state != "EXPIRED")
    return [(row[0], row[1]) for row in tx.execute(query)]
