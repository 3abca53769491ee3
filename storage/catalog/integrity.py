"""Integrity: time of last verification per object and replica, damaged objects, scrub totals.

An object is named by its key. The time of last verification is a column of the row that says that
a bucket holds it: `blob_replicas` for bytes, `presence` for records. Journals and purge markers
have rows of their own (`verified_objects.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, TextClause, select

from storage import keys
from storage.catalog import bulk, verified_objects
from storage.catalog.engine import Catalog, Tx, execute_now, now_us, sql
from storage.catalog.schema import bundles, collections, files, tombstones
from storage.model import FQID, Replica

DAY_US = 86_400_000_000
SLACK_US = 1_000_000
"""By how much the clocks of bucket and catalog may differ; more costs only reading."""
DEBT_DAYS = 60
"""Days that a budget which was exceeded is remembered for."""
PAGE = 500
_VERSIONED: Mapping[str, Table] = {"file": files, "bundle": bundles, "collection": collections}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a bucket should hold. `sha256` and `size` are those of the blob; None for
    records, whose bytes follow from the catalog's rows."""

    replica: Replica
    key: str
    verified_us: int
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that was found damaged and is not repaired."""

    replica: Replica
    key: str
    reason: str
    found_us: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Objects of one replica. `damaged` are so now; `found`, `repaired` and `verified_bytes` are
    totals since the catalog was made. `oldest_us` is the longest time since an object was last
    verified, or, if it never was, since the bucket has held it; None without objects."""

    objects: int
    verified: int
    damaged: int
    repaired: int
    oldest_us: int | None
    verified_bytes: int
    found: int


# Literals: for a parameter no engine would look at the index of these rows alone.
_DUE_BLOBS = sql(
    "SELECT b.sha256, b.size, r.verified_us FROM blob_replicas AS r"
    " JOIN blobs AS b ON b.id = r.blob_id"
    " WHERE r.replica = :replica AND r.state = 'present' AND r.verified_us < :before"
    " ORDER BY r.verified_us LIMIT :limit"
)
_DUE_RECORDS = sql(
    "SELECT kind, id, verified_us FROM presence"
    " WHERE replica = :replica AND verified_us < :before ORDER BY verified_us LIMIT :limit"
)


_DAMAGED_KEYS = sql(
    "SELECT key FROM damaged_objects WHERE replica = :replica AND repaired_us IS NULL"
)


def due(tx: Tx, replica: Replica, before_us: int, *, limit: int) -> list[StoredObject]:
    """Objects of a bucket last verified before a time, the longest ago first, without those that
    are known to be damaged."""
    known = set(tx.execute(_DAMAGED_KEYS, {"replica": replica}).scalars())
    asked = {"replica": replica, "before": before_us, "limit": limit + len(known)}
    found = [
        StoredObject(replica, keys.blob(row.sha256), row.verified_us, row.sha256, row.size)
        for row in tx.execute(_DUE_BLOBS, asked)
    ]
    found += _records(tx, replica, tx.execute(_DUE_RECORDS, asked).all())
    found = [one for one in found if one.key not in known]
    return sorted(found, key=lambda one: one.verified_us)[:limit]


def _records(tx: Tx, replica: Replica, rows: Sequence[Any]) -> list[StoredObject]:
    """Rows of `presence` with the keys of their records."""
    idents: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        idents[row.kind].append(row.id)
    names = {kind: _record_keys(tx, kind, some) for kind, some in idents.items()}
    return [
        StoredObject(replica, names[row.kind][row.id], row.verified_us)
        for row in rows
        if row.id in names[row.kind]
    ]


def _record_keys(tx: Tx, kind: str, idents: Sequence[int]) -> dict[int, str]:
    if kind == "tombstone":
        stones = tx.execute(select(tombstones).where(tombstones.c.id.in_(idents))).all()
        return {row.id: keys.tombstone(row.kind, row.uuid, row.version or None) for row in stones}
    table = _VERSIONED[kind]
    query = select(table.c.id, table.c.uuid, table.c.version).where(table.c.id.in_(idents))
    named = next(one for one in keys.KINDS if one == kind)
    return {row.id: keys.record(named, FQID(row.uuid, row.version)) for row in tx.execute(query)}


def pages(catalog: Catalog, replica: Replica) -> Iterator[list[StoredObject]]:
    """Every object that a bucket should hold, blobs by SHA-256, then records; a page at a time, in
    a unit of work of its own."""
    last = ""
    while blobs := _page(catalog, _PAGE_BLOBS, {"replica": replica, "after": last}):
        yield [
            StoredObject(replica, keys.blob(row.sha256), row.verified_us, row.sha256, row.size)
            for row in blobs
        ]
        last = blobs[-1].sha256
    for kind in (*_VERSIONED, "tombstone"):
        asked, after = {"replica": replica, "kind": kind}, 0
        while rows := _page(catalog, _PAGE_RECORDS, {**asked, "after": after}):
            with catalog.read() as tx:
                found = _records(tx, replica, rows)
            yield found
            after = rows[-1].id


def _page(catalog: Catalog, statement: TextClause, asked: Mapping[str, Any]) -> Sequence[Any]:
    with catalog.read() as tx:
        return tx.execute(statement, {**asked, "limit": PAGE}).all()


_PAGE_BLOBS = sql(
    "SELECT b.sha256, b.size, r.verified_us FROM blobs AS b"
    " JOIN blob_replicas AS r ON r.blob_id = b.id AND r.replica = :replica"
    " WHERE r.state = 'present' AND b.sha256 > :after ORDER BY b.sha256 LIMIT :limit"
)
_PAGE_RECORDS = sql(
    "SELECT kind, id, verified_us FROM presence"
    " WHERE kind = :kind AND replica = :replica AND id > :after ORDER BY id LIMIT :limit"
)


def record_verified(tx: Tx, replica: Replica, found: Iterable[str], *, size: int = 0) -> None:
    """Objects of these keys, `size` bytes in all, were read just now and are right: what was found
    damaged before is repaired."""
    sums: list[str] = []
    records: dict[str, list[tuple[str, str]]] = defaultdict(list)
    every = sorted(set(found))
    if not every:
        return
    for key in every:
        if (sha256 := keys.parse_blob(key)) is not None:
            sums.append(sha256)
        elif (record := keys.parse_record(key)) is not None:
            records[record.kind].append((record.fqid.uuid, record.fqid.version))
        elif (stone := keys.parse_tombstone(key)) is not None:
            records["tombstone " + stone.kind].append((stone.uuid, stone.version or ""))
    if sums:
        source, given = bulk.derived(tx, "found", {"sha256": ("text", sums)})
        verified = _VERIFIED_BLOBS.format(source=source)
        execute_now(tx, verified, {**given, "replica": replica})
    verified_objects.record(tx, replica, every)
    for kind, names in records.items():
        _verify_records(tx, replica, kind, names)
    source, given = bulk.derived(tx, "found", {"key": ("text", every)})
    repaired = execute_now(tx, _REPAIRED.format(source=source), {**given, "replica": replica})
    _add(tx, replica, objects=len(every), bytes=size, repaired=repaired.rowcount)


def _verify_records(tx: Tx, replica: Replica, kind: str, names: list[tuple[str, str]]) -> None:
    named, _, of = kind.partition(" ")
    columns: bulk.Columns = {
        "uuid": ("text", [uuid for uuid, _ in names]),
        "version": ("text", [version for _, version in names]),
    }
    source, given = bulk.derived(tx, "found", columns)
    same = "t.uuid = found.uuid AND t.version = found.version"
    if of:
        same += f" AND t.kind = '{of}'"
    row = bulk.one_each(tx, f"{named}s", "t", same)
    verified = _VERIFIED_RECORDS.format(source=source, row=row)
    execute_now(tx, verified, {**given, "replica": replica, "kind": named})


_VERIFIED_BLOBS = (
    "UPDATE blob_replicas SET verified_us = :now WHERE replica = :replica AND blob_id IN"
    " (SELECT b.id FROM {source} JOIN blobs AS b ON b.sha256 = found.sha256)"
)
_VERIFIED_RECORDS = (
    "UPDATE presence SET verified_us = :now WHERE replica = :replica AND kind = :kind AND id IN"
    " (SELECT t.id FROM {source} {row})"
)
_REPAIRED = (
    "UPDATE damaged_objects SET repaired_us = :now WHERE replica = :replica"
    " AND repaired_us IS NULL AND key IN (SELECT key FROM {source})"
)


def changed_since(tx: Tx, replica: Replica, modified: Mapping[str, int]) -> set[str]:
    """Blobs and records that were changed, by their bucket's clock, after they were last verified
    or seen there."""
    found: set[str] = set()
    sums = {keys.parse_blob(key): at_us for key, at_us in modified.items() if keys.parse_blob(key)}
    if sums:
        columns: bulk.Columns = {
            "sha256": ("text", list(sums)),
            "at_us": ("bigint", list(sums.values())),
        }
        source, given = bulk.derived(tx, "found", columns)
        row = bulk.one_each(tx, "blobs", "b", "b.sha256 = found.sha256")
        held = bulk.one_each(tx, "blob_replicas", "r", "r.blob_id = b.id AND r.replica = :replica")
        statement = sql(f"SELECT found.sha256 FROM {source} {row} {held} WHERE {_CHANGED}")
        asked = {**given, "replica": replica, "slack": SLACK_US}
        found |= {keys.blob(sha256) for sha256 in tx.execute(statement, asked).scalars()}
    for kind in keys.KINDS:
        found |= _changed_records(tx, replica, kind, modified)
    return found


def _changed_records(
    tx: Tx, replica: Replica, kind: keys.Kind, modified: Mapping[str, int]
) -> set[str]:
    parsed = [(keys.parse_record(key), at_us) for key, at_us in modified.items()]
    named = [(key.fqid, at_us) for key, at_us in parsed if key is not None and key.kind == kind]
    if not named:
        return set()
    columns: bulk.Columns = {
        **bulk.fqids(fqid for fqid, _ in named),
        "at_us": ("bigint", [at_us for _, at_us in named]),
    }
    source, given = bulk.derived(tx, "found", columns)
    same = "t.uuid = found.uuid AND t.version = found.version"
    row = bulk.one_each(tx, f"{kind}s", "t", same)
    same = "r.kind = :kind AND r.id = t.id AND r.replica = :replica"
    held = bulk.one_each(tx, "presence", "r", same)
    statement = sql(f"SELECT found.uuid, found.version FROM {source} {row} {held} WHERE {_CHANGED}")
    asked = {**given, "kind": kind, "replica": replica, "slack": SLACK_US}
    return {keys.record(kind, FQID(*one)) for one in tx.execute(statement, asked).all()}


_CHANGED = "r.verified_us + :slack < found.at_us AND r.at_us + :slack < found.at_us"


def record_damage(tx: Tx, replica: Replica, key: str, reason: str) -> bool:
    """Note that an object is damaged; False when that is known already."""
    row = {"replica": replica, "key": key, "reason": reason}
    known = execute_now(tx, _TRIED, row).rowcount > 0
    if not known:
        execute_now(tx, _DAMAGED, row)
        _add(tx, replica, damaged=1)
    return not known


def record_read(tx: Tx, replica: Replica, size: int) -> None:
    """Count bytes that were read again and were not right."""
    _add(tx, replica, bytes=size)


_TRIED = (
    "UPDATE damaged_objects SET reason = :reason, tried_us = :now"
    " WHERE replica = :replica AND key = :key AND repaired_us IS NULL"
)
_DAMAGED = (
    "INSERT INTO damaged_objects (replica, key, reason, found_us, tried_us)"
    " VALUES (:replica, :key, :reason, :now, :now) ON CONFLICT (replica, key) DO UPDATE"
    " SET reason = excluded.reason, found_us = excluded.found_us, tried_us = excluded.tried_us,"
    " repaired_us = NULL"
)


def damaged(tx: Tx, *, before_us: int | None = None, limit: int) -> list[Damage]:
    """Objects that are damaged and not repaired, those first whose repair was tried longest ago;
    with `before_us` only those tried before that time."""
    before = now_us(tx) + 1 if before_us is None else before_us
    rows = tx.execute(_OPEN, {"before": before, "limit": limit})
    return [Damage(*row) for row in rows]


_OPEN = sql(
    "SELECT replica, key, reason, found_us FROM damaged_objects"
    " WHERE repaired_us IS NULL AND tried_us < :before ORDER BY tried_us, replica, key LIMIT :limit"
)


def count_damaged(tx: Tx) -> int:
    """Objects that are damaged and not repaired, in all replicas."""
    query = sql("SELECT count(*) FROM damaged_objects WHERE repaired_us IS NULL")
    return int(tx.execute(query).scalar_one())


def among_damaged(tx: Tx, replica: Replica, some: Sequence[str]) -> dict[str, str]:
    """Of these keys those that are damaged, with the reason."""
    source, given = bulk.derived(tx, "wanted", {"key": ("text", list(some))})
    same = "d.replica = :replica AND d.key = wanted.key AND d.repaired_us IS NULL"
    one = bulk.one_each(tx, "damaged_objects", "d", same)
    statement = sql(f"SELECT d.key, d.reason FROM {source} {one}")
    return {row.key: row.reason for row in tx.execute(statement, {**given, "replica": replica})}


def forget(tx: Tx, replica: Replica, key: str) -> None:
    """The object was removed on purpose: its findings are no concern any more."""
    tx.execute(
        sql("DELETE FROM damaged_objects WHERE replica = :replica AND key = :key"),
        {"replica": replica, "key": key},
    )
    verified_objects.forget(tx, replica, key)


def count(tx: Tx, replica: Replica, *, since_us: int) -> Counts:
    """Counts of a replica, each from a range of one index."""
    asked = {"replica": replica, "since": since_us}
    row = tx.execute(_COUNTS, asked).one()
    starts = [one for one in tx.execute(_OLDEST, asked).scalars() if one is not None]
    return Counts(
        objects=row.blobs + row.records,
        verified=row.blobs + row.records - row.late_blobs - row.late_records,
        damaged=row.damaged,
        repaired=int(row.repaired),
        oldest_us=now_us(tx) - min(starts) if starts else None,
        verified_bytes=int(row.bytes),
        found=int(row.found),
    )


_COUNTS = sql(
    "SELECT"
    " (SELECT count(*) FROM blob_replicas WHERE replica = :replica AND state = 'present') AS blobs,"
    " (SELECT count(*) FROM blob_replicas WHERE replica = :replica AND state = 'present'"
    " AND verified_us < :since) AS late_blobs,"
    " (SELECT count(*) FROM presence WHERE replica = :replica) AS records,"
    " (SELECT count(*) FROM presence WHERE replica = :replica AND verified_us < :since)"
    " AS late_records,"
    " (SELECT count(*) FROM damaged_objects WHERE replica = :replica AND repaired_us IS NULL)"
    " AS damaged,"
    " (SELECT coalesce(sum(repaired), 0) FROM scrubbed WHERE replica = :replica) AS repaired,"
    " (SELECT coalesce(sum(damaged), 0) FROM scrubbed WHERE replica = :replica) AS found,"
    " (SELECT coalesce(sum(bytes), 0) FROM scrubbed WHERE replica = :replica) AS bytes"
)
_OLDEST = sql(
    "SELECT * FROM (SELECT CASE WHEN verified_us = 0 THEN at_us ELSE verified_us END FROM"
    " blob_replicas WHERE replica = :replica AND state = 'present' ORDER BY verified_us LIMIT 1)"
    " AS blob UNION ALL"
    " SELECT * FROM (SELECT CASE WHEN verified_us = 0 THEN at_us ELSE verified_us END FROM"
    " presence WHERE replica = :replica ORDER BY verified_us LIMIT 1) AS record"
)


_ADD = sql(
    "INSERT INTO scrubbed (replica, day, objects, bytes, damaged, repaired)"
    " VALUES (:replica, :day, :objects, :bytes, :damaged, :repaired)"
    " ON CONFLICT (replica, day) DO UPDATE SET objects = scrubbed.objects + excluded.objects,"
    " bytes = scrubbed.bytes + excluded.bytes, damaged = scrubbed.damaged + excluded.damaged,"
    " repaired = scrubbed.repaired + excluded.repaired"
)


def _add(tx: Tx, replica: Replica, **more: int) -> None:
    """Add to today's totals of a replica."""
    row = {"objects": 0, "bytes": 0, "damaged": 0, "repaired": 0, **more}
    tx.execute(_ADD, {**row, "replica": replica, "day": now_us(tx) // DAY_US})


def allowance(tx: Tx, bytes_per_day: int) -> int:
    """Bytes that may still be read today. Days on which one object exceeded the budget are paid for
    by those that follow."""
    today = now_us(tx) // DAY_US
    query = sql(
        "SELECT day, sum(bytes) AS bytes FROM scrubbed WHERE day > :from GROUP BY day ORDER BY day"
    )
    debt, last = 0, today
    for row in tx.execute(query, {"from": today - DEBT_DAYS}):
        debt = max(0, debt - bytes_per_day * max(0, row.day - last)) + int(row.bytes)
        last = row.day
    return bytes_per_day - max(0, debt - bytes_per_day * (today - last))
