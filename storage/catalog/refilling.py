"""Filling a catalog from the records of a bucket: many rows a statement, each as it was.

Whatever is there already stays as it is: filling again, or from another bucket, adds what lacks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Table, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, StatementError

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, now_us, sql
from storage.catalog.files import NewFile
from storage.catalog.purges import Purge
from storage.catalog.schema import (
    bundles,
    collections,
    files,
    heads,
    presence,
    purge_replicas,
    purges,
    tombstones,
    visible,
)
from storage.catalog.tombstones import Tombstone
from storage.errors import Damaged
from storage.model import FQID, REPLICAS, Replica

_TABLES = {"file": files, "bundle": bundles, "collection": collections}


@contextmanager
def trial(tx: Tx) -> Iterator[None]:
    """All that the block writes, or none of it: Damaged for values that no catalog keeps."""
    try:
        with tx.begin_nested():
            yield
    except (StatementError, OverflowError, ValueError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        raise Damaged(f"The catalog cannot keep it ({type(error).__name__}).") from error


def add(tx: Tx, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert those that are not there; returns how many were not."""
    if not rows:
        return 0
    engine = sqlite if tx.dialect.name == "sqlite" else postgresql
    # One statement: of many that go out together nobody counts the rows.
    fresh = engine.insert(table).values(list(rows)).on_conflict_do_nothing()
    return tx.execute(fresh, execution_options={"preserve_rowcount": True}).rowcount


def lift(tx: Tx, kind: str, uuids: Iterable[str], floor: int) -> None:
    """Count the changes of locked heads from here on: beyond whatever an index was told before."""
    few = sorted(set(uuids))
    low = update(heads).where(heads.c.kind == kind, heads.c.uuid.in_(few), heads.c.changes < floor)
    tx.execute(low.values(changes=floor))


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


def add_files(tx: Tx, found: Sequence[tuple[NewFile, int]]) -> None:
    """Files with the times at which they were made, which are those of their publication."""
    news = [new for new, _ in found]
    columns: bulk.Columns = {
        **bulk.fqids(new.fqid for new in news),
        "digest": ("text", [new.digest for new in news]),
        "origin": ("text", [new.origin for new in news]),
        "creator_uid": ("bigint", [new.creator_uid for new in news]),
        "author": ("text", [new.author for new in news]),
        "content_type": ("text", [new.content_type for new in news]),
        "event_id": ("text", [new.event_id for new in news]),
        "created_us": ("bigint", [created_us for _, created_us in found]),
        "size": ("bigint", [new.size for new in news]),
        "sha1": ("text", [new.checksums.sha1 for new in news]),
        "sha256": ("text", [new.checksums.sha256 for new in news]),
        "crc32c": ("text", [new.checksums.crc32c for new in news]),
        "s3_etag": ("text", [new.checksums.s3_etag for new in news]),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    blob = bulk.one_each(tx, "blobs", "b", "b.sha256 = fresh.sha256")
    tx.execute(sql(_BLOBS.format(source=source)), parameters)
    tx.execute(sql(_FILES.format(source=source, blob=blob)), parameters)


def digests(tx: Tx, kind: str, fqids: Sequence[FQID]) -> dict[FQID, tuple[int, str]]:
    """Ids and digests of those of these versions that the catalog knows."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    same = "t.uuid = wanted.uuid AND t.version = wanted.version"
    row = bulk.one_each(tx, _TABLES[kind].name, "t", same)
    found = tx.execute(
        sql(f"SELECT t.uuid, t.version, t.id, t.digest FROM {source} {row}"), parameters
    )
    return {FQID(each[0], each[1]): (each[2], each[3]) for each in found}


def seen(tx: Tx, kind: str, replica: Replica, idents: Iterable[int]) -> None:
    """Their records are in this bucket."""
    now = now_us(tx)
    rows = [{"kind": kind, "id": ident, "replica": replica, "at_us": now} for ident in idents]
    add(tx, presence, [{**row, "diverged": False} for row in rows])


_PRESENT = (
    "INSERT INTO blob_replicas (blob_id, replica, state, at_us)"
    " SELECT b.id, :replica, 'present', :now FROM {source} {blob} WHERE true"
    " ON CONFLICT (blob_id, replica) DO NOTHING"
)


def blobs_there(tx: Tx, replica: Replica, listed: Sequence[tuple[str, int]]) -> None:
    """A bucket holds bytes of these checksums and sizes."""
    columns: bulk.Columns = {
        "sha256": ("text", [sha256 for sha256, _ in listed]),
        "size": ("bigint", [size for _, size in listed]),
    }
    source, parameters = bulk.derived(tx, "there", columns)
    blob = bulk.one_each(tx, "blobs", "b", "b.sha256 = there.sha256 AND b.size = there.size")
    execute_now(tx, _PRESENT.format(source=source, blob=blob), {**parameters, "replica": replica})


_WHOLE = sql(
    "SELECT p.id, f.uuid, f.version, r.blob_id IS NOT NULL AS whole FROM presence AS p"
    " JOIN files AS f ON f.id = p.id LEFT JOIN blob_replicas AS r ON r.blob_id = f.blob_id"
    " AND r.replica = :replica AND r.state = 'present'"
    " WHERE p.kind = 'file' AND p.replica = :replica AND p.id > :after ORDER BY p.id LIMIT :limit"
)


def files_after(
    tx: Tx, replica: Replica, after: int, *, limit: int
) -> list[tuple[int, FQID, bool]]:
    """Files whose records are in a bucket, by id, and whether their bytes are, too."""
    asked = {"replica": replica, "after": after, "limit": limit}
    rows = tx.execute(_WHOLE, asked)
    return [(row.id, FQID(row.uuid, row.version), bool(row.whole)) for row in rows]


def show(tx: Tx, kind: str, replica: Replica, found: Sequence[tuple[int, FQID]]) -> None:
    """Let readers of a replica see these versions."""
    place = {"kind": kind, "replica": replica}
    add(tx, visible, [{**place, **fqid._asdict(), "id": ident} for ident, fqid in found])


def add_tombstones(tx: Tx, found: Sequence[Tombstone]) -> None:
    """Tombstones as their records tell."""
    add(tx, tombstones, [_without_id(one) for one in found])


def add_purges(tx: Tx, found: Sequence[Purge], replica: Replica) -> None:
    """Purges as their markers tell, which are in this bucket."""
    add(tx, purges, [_without_id(one) for one in found])
    marked = update(purge_replicas).where(purge_replicas.c.marked_us.is_(None))
    for one in found:
        query = select(purges.c.id).where(
            purges.c.kind == one.kind, purges.c.uuid == one.uuid, purges.c.version == one.version
        )
        ident = tx.execute(query).scalar_one()
        rows = [{"purge_id": ident, "replica": name} for name in REPLICAS]
        add(tx, purge_replicas, rows)
        ours = (purge_replicas.c.purge_id == ident) & (purge_replicas.c.replica == replica)
        tx.execute(marked.where(ours).values(marked_us=now_us(tx)))


def _without_id(one: Tombstone | Purge) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__ if name != "id"}


def purges_after(tx: Tx, after: int, *, limit: int) -> list[Purge]:
    """Purges by id, after a given one."""
    query = select(purges).where(purges.c.id > after).order_by(purges.c.id).limit(limit)
    return [Purge(**row._mapping) for row in tx.execute(query)]


def tombstones_after(tx: Tx, after: int, *, limit: int) -> list[Tombstone]:
    """Tombstones by id, after a given one."""
    query = select(tombstones).where(tombstones.c.id > after).order_by(tombstones.c.id)
    return [Tombstone(**row._mapping) for row in tx.execute(query.limit(limit))]


def buried(tx: Tx, kind: str, fqids: Sequence[FQID]) -> set[FQID]:
    """Those of these versions that a tombstone hides, their own or the whole uuid's."""
    query = select(tombstones.c.uuid, tombstones.c.version).where(
        tombstones.c.kind == kind, tombstones.c.uuid.in_(sorted({fqid.uuid for fqid in fqids}))
    )
    graves = {(row[0], row[1]) for row in tx.execute(query)}
    return {fqid for fqid in fqids if {(fqid.uuid, ""), tuple(fqid)} & graves}
