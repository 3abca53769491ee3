"""Purges: what is removed for good, how far each replica is, and the rows that go in the end.

A purge's row is never removed: what it names can never be put again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Row, Select, delete, select, update

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.schema import (
    bundle_segments,
    bundles,
    checkouts,
    collections,
    documents,
    entries,
    events,
    files,
    presence,
    purge_replicas,
    purges,
    segments,
    tasks,
    visible,
)
from storage.model import FQID, REPLICAS, Replica

LATELY_US = 3_600_000_000
"""No writer takes longer than this from looking its files up to naming them."""
_CHUNK = 500
_TABLES = {"file": files, "bundle": bundles, "collection": collections}


@dataclass(frozen=True, slots=True)
class Purge:
    """One thing to be removed for good; `version` is empty for a whole uuid."""

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


def _purge(row: Row[tuple[object, ...]]) -> Purge:
    return Purge(**row._mapping)


def add(tx: Tx, new: Purge) -> Purge:
    """Insert it, or return the one that is there; its id and time are the catalog's. The caller
    holds the head."""
    named = {"kind": new.kind, "uuid": new.uuid, "version": new.version}
    execute_now(
        tx,
        "INSERT INTO purges (kind, uuid, version, reason, author, origin, digest, event_id,"
        " created_us) VALUES (:kind, :uuid, :version, :reason, :author, :origin, :digest,"
        " :event_id, :now) ON CONFLICT (kind, uuid, version) DO NOTHING",
        {
            **named,
            "reason": new.reason,
            "author": new.author,
            "origin": new.origin,
            "digest": new.digest,
            "event_id": new.event_id,
        },
    )
    found = find(tx, new.kind, new.uuid, new.version)
    assert found is not None
    for replica in REPLICAS:
        tx.execute(
            sql(
                "INSERT INTO purge_replicas (purge_id, replica) VALUES (:id, :replica)"
                " ON CONFLICT DO NOTHING"
            ),
            {"id": found.id, "replica": replica},
        )
    return found


def find(tx: Tx, kind: str, uuid: str, version: str) -> Purge | None:
    """Exactly this purge; an empty version asks for the whole uuid's."""
    query = select(purges).where(
        purges.c.kind == kind, purges.c.uuid == uuid, purges.c.version == version
    )
    row = tx.execute(query).first()
    return None if row is None else _purge(row)


def unfinished(tx: Tx, *, limit: int) -> list[Purge]:
    """Purges that go on, the oldest first."""
    query = select(purges).where(purges.c.finished_us.is_(None))
    return [_purge(row) for row in tx.execute(query.order_by(purges.c.created_us).limit(limit))]


def among(tx: Tx, kind: str, fqids: Collection[FQID]) -> dict[FQID, bool]:
    """Those of these versions that are purged; True where every bucket has the marker, so that
    records are being erased."""
    if not fqids:
        return {}
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    same = "p.kind = :kind AND p.uuid = wanted.uuid AND p.version = wanted.version"
    found = bulk.one_each(tx, "purges", "p", same)
    rows = tx.execute(
        sql(
            "SELECT p.uuid, p.version, NOT EXISTS (SELECT 1 FROM purge_replicas AS r"
            f" WHERE r.purge_id = p.id AND r.marked_us IS NULL) FROM {source} {found}"
        ),
        {**parameters, "kind": kind},
    )
    return {FQID(row[0], row[1]): bool(row[2]) for row in rows}


def lately(tx: Tx) -> bool:
    """Whether any file was purged since a writer looked its files up: one probe of an index."""
    return execute_now(tx, _LATELY, {}).first() is not None


_LATELY = f"SELECT id FROM purges WHERE kind = 'file' AND created_us > :now - {LATELY_US} LIMIT 1"


def marked(tx: Tx, purge: Purge, replica: Replica) -> bool:
    """The marker is in this bucket; True when it is in every one. The caller holds the head."""
    return _confirmed(tx, purge, replica, "marked_us")


def erased(tx: Tx, purge: Purge, replica: Replica) -> bool:
    """No record is in this bucket any more; True when none is in any. The caller holds the head."""
    _forget_presence(tx, purge, replica)
    return _confirmed(tx, purge, replica, "erased_us")


def _confirmed(tx: Tx, purge: Purge, replica: Replica, column: str) -> bool:
    execute_now(
        tx,
        f"UPDATE purge_replicas SET {column} = :now WHERE purge_id = :id AND replica = :replica",
        {"id": purge.id, "replica": replica},
    )
    lacking = select(purge_replicas.c.replica).where(
        purge_replicas.c.purge_id == purge.id, purge_replicas.c[column].is_(None)
    )
    return tx.execute(lacking).first() is None


def _forget_presence(tx: Tx, purge: Purge, replica: Replica) -> None:
    table = _TABLES[purge.kind]
    ident = select(table.c.id).where(table.c.uuid == purge.uuid, table.c.version == purge.version)
    gone = delete(presence).where(presence.c.kind == purge.kind, presence.c.replica == replica)
    tx.execute(gone.where(presence.c.id.in_(ident.scalar_subquery())))


def finish(tx: Tx, purge: Purge) -> None:
    """Every replica confirmed, and nothing is left."""
    execute_now(
        tx,
        "UPDATE purges SET finished_us = coalesce(finished_us, :now) WHERE id = :id",
        {"id": purge.id},
    )


def progress(tx: Tx, purge: Purge) -> dict[str, str]:
    """How far each replica is: `waiting`, `marked` or `erased`."""
    rows = tx.execute(select(purge_replicas).where(purge_replicas.c.purge_id == purge.id))
    return {
        row.replica: "erased" if row.erased_us else "marked" if row.marked_us else "waiting"
        for row in rows
    }


def unreferenced(tx: Tx, idents: Sequence[int]) -> list[int]:
    """Those of these files that no bundle names but purged ones that no bucket holds any more. They
    are held from now on: whoever names one of them waits, and then finds it gone. The caller holds
    their heads."""
    held = select(files.c.id).where(files.c.id.in_(idents)).order_by(files.c.id)
    left = set(tx.execute(held.with_for_update()).scalars())
    named = (
        select(entries.c.file_id)
        .join(bundle_segments, bundle_segments.c.segment_id == entries.c.segment_id)
        .join(bundles, bundles.c.id == bundle_segments.c.bundle_id)
        .where(entries.c.file_id.in_(idents))
        .where(~_gone_everywhere().exists())
        .distinct()
    )
    return sorted(left - set(tx.execute(named).scalars()))


def _gone_everywhere() -> Select[tuple[int]]:
    """The purge of a bundle whose records were erased from every bucket."""
    there = select(purge_replicas.c.replica).where(
        purge_replicas.c.purge_id == purges.c.id, purge_replicas.c.erased_us.is_(None)
    )
    return (
        select(purges.c.id)
        .where(purges.c.kind == "bundle", ~there.exists())
        .where(purges.c.uuid == bundles.c.uuid, purges.c.version == bundles.c.version)
    )


def named_only_by(tx: Tx, idents: Sequence[int], bundle_ids: Sequence[int]) -> list[int]:
    """Those of these files that no bundle names but these."""
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


def named(tx: Tx, ident: int) -> bool:
    """Whether any bundle still names this file."""
    return (
        tx.execute(select(entries.c.name).where(entries.c.file_id == ident).limit(1)).first()
        is not None
    )


def remove_bundle(tx: Tx, bundle_id: int, event_ids: Sequence[str]) -> None:
    """Remove a bundle's rows, and the segments that no other version shares. The caller holds its
    head. Events stay, but lead to no bundle: its id may be given again."""
    held = bundle_segments.c.bundle_id == bundle_id
    shared = list(tx.execute(select(bundle_segments.c.segment_id).where(held)).scalars())
    tx.execute(delete(bundle_segments).where(held))
    for start in range(0, len(shared), _CHUNK):
        _remove_segments(tx, shared[start : start + _CHUNK])
    tx.execute(update(events).where(events.c.id.in_(event_ids)).values(bundle_id=0))
    tx.execute(update(checkouts).where(checkouts.c.bundle_id == bundle_id).values(bundle_id=0))
    tx.execute(
        delete(documents).where(
            documents.c.replica.in_(REPLICAS), documents.c.bundle_id == bundle_id
        )
    )
    _remove_whereabouts(tx, "bundle", bundle_id)
    tx.execute(delete(bundles).where(bundles.c.id == bundle_id))


def _remove_segments(tx: Tx, idents: Sequence[int]) -> None:
    used = select(bundle_segments.c.segment_id).where(bundle_segments.c.segment_id.in_(idents))
    free = sorted(set(idents) - set(tx.execute(used).scalars()))
    tx.execute(delete(entries).where(entries.c.segment_id.in_(free)))
    tx.execute(delete(segments).where(segments.c.id.in_(free)))


def remove_file(tx: Tx, ident: int, fqid: FQID) -> None:
    """Remove a file's rows, and those of the tasks that took it in. The caller holds its head."""
    hide_file(tx, fqid)
    _remove_whereabouts(tx, "file", ident)
    tx.execute(delete(files).where(files.c.id == ident))
    tx.execute(
        delete(tasks).where(
            tasks.c.uuid == fqid.uuid,
            tasks.c.version == fqid.version,
            tasks.c.finished_us.is_not(None),
        )
    )


def hide_file(tx: Tx, fqid: FQID) -> None:
    """Let nobody see a file any more."""
    tx.execute(
        delete(visible).where(
            visible.c.kind == "file",
            visible.c.replica.in_(REPLICAS),
            visible.c.uuid == fqid.uuid,
            visible.c.version == fqid.version,
        )
    )


def _remove_whereabouts(tx: Tx, kind: str, ident: int) -> None:
    tx.execute(delete(presence).where(presence.c.kind == kind, presence.c.id == ident))


def versions(tx: Tx, uuid: str) -> list[FQID]:
    """Every version of a bundle that was ever reserved and is not purged yet."""
    query = select(bundles.c.version).where(bundles.c.uuid == uuid).order_by(bundles.c.version)
    return [FQID(uuid, version) for version in tx.execute(query).scalars()]


def jobs_of(tx: Tx, bundle_id: int, replica: Replica) -> list[tuple[str, str]]:
    """(id, state) of the checkouts of a bundle whose copies are in our own area."""
    query = select(checkouts.c.id, checkouts.c.state).where(
        checkouts.c.bundle_id == bundle_id,
        checkouts.c.replica == replica,
        checkouts.c.state != "EXPIRED",
    )
    return [(row[0], row[1]) for row in tx.execute(query)]
