"""Time of last verification of each object, damaged objects, and scrub totals.

Objects are identified by their keys. The time of last verification is a column of the row that
records the storage: `blob_replicas` for blobs, `presence` for records. Journals and purge markers
have rows of their own in `verified_objects`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Select, TextClause, delete, select

from storage import keys
from storage.catalog import sql, statistics
from storage.catalog.engine import Catalog
from storage.catalog.files import select_stored_blobs
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    blobs,
    damaged_objects,
    presence,
    purge_replicas,
    purges,
    tombstones,
    verified_objects,
)
from storage.model import FQID, Replica

# Without a condition SQLite would take ON for that of a join.
_RECORD = (
    "INSERT INTO verified_objects (replica, key, verified_us)"
    " SELECT :replica, found.key, :now FROM {source} WHERE true"
    " ON CONFLICT (replica, key) DO UPDATE SET verified_us = excluded.verified_us"
)


def find_verified_times(tx: Tx, replica: Replica, objects: Sequence[str]) -> dict[str, int]:
    """Return when these objects were last verified, without those that never were."""
    wanted = {"key": ("text", list(objects))}
    verified = ("verified_objects", "v", "v.replica = :replica AND v.key = wanted.key")
    rows = sql.look_up_rows(tx, "v.key, v.verified_us", wanted, verified, replica=replica)
    return {row.key: row.verified_us for row in rows}


DAY_US = 86_400_000_000
CLOCK_SKEW_US = 1_000_000
"""Allowed difference between the clocks of bucket and catalog; more only causes extra reads."""
BUDGET_DAYS = 60
"""Days for which an exceeded budget is remembered."""
OBJECTS_PER_PAGE = 500


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a bucket should hold; `sha256` and `size` are None for records."""

    replica: Replica
    key: str
    verified_us: int
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class DamagedObjectRow:
    """A damaged object that is not repaired yet."""

    replica: Replica
    key: str
    reason: str
    found_us: int


@dataclass(frozen=True, slots=True)
class IntegrityCounts:
    """Object counts of one replica.

    `damaged` counts objects damaged now; `found`, `repaired` and `verified_bytes` are totals since
    the catalog was created. `oldest_us` is the longest time since an object was verified, or stored
    if it never was; None without objects.
    """

    objects: int
    verified: int
    damaged: int
    repaired: int
    oldest_us: int | None
    verified_bytes: int
    found: int


# Literals: with a parameter no engine would use the partial index.
_DUE_BLOBS = sql.parse(
    "SELECT b.sha256, b.size, r.verified_us FROM blob_replicas AS r"
    " JOIN blobs AS b ON b.id = r.blob_id"
    " WHERE r.replica = :replica AND r.state = 'present' AND r.verified_us < :before"
    " ORDER BY r.verified_us LIMIT :limit"
)
_DUE_RECORDS = sql.parse(
    "SELECT kind, id, verified_us FROM presence"
    " WHERE replica = :replica AND verified_us < :before ORDER BY verified_us LIMIT :limit"
)


def list_due(tx: Tx, replica: Replica, before_us: int, *, limit: int) -> list[StoredObject]:
    """List objects verified before a moment, the longest ago first, without damaged ones."""
    query = sql.parse(
        "SELECT key FROM damaged_objects WHERE replica = :replica AND repaired_us IS NULL"
    )
    damaged = set(tx.execute(query, {"replica": replica}).scalars())
    parameters = {"replica": replica, "before": before_us, "limit": limit + len(damaged)}
    found = _blobs_from_rows(replica, tx.execute(_DUE_BLOBS, parameters))
    found += _load_records(tx, replica, tx.execute(_DUE_RECORDS, parameters).all())
    found = [item for item in found if item.key not in damaged]
    return sorted(found, key=lambda item: item.verified_us)[:limit]


def _blobs_from_rows(replica: Replica, rows: Iterable[Any]) -> list[StoredObject]:
    return [
        StoredObject(replica, keys.blob_key(row.sha256), row.verified_us, row.sha256, row.size)
        for row in rows
    ]


def _load_records(tx: Tx, replica: Replica, rows: Sequence[Any]) -> list[StoredObject]:
    """Return rows of `presence` with the keys of their records."""
    idents: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        idents[row.kind].append(row.id)
    names = {kind: _find_record_keys(tx, kind, ids) for kind, ids in idents.items()}
    return [
        StoredObject(replica, names[row.kind][row.id], row.verified_us)
        for row in rows
        if row.id in names[row.kind]
    ]


def _find_record_keys(tx: Tx, kind: str, idents: Sequence[int]) -> dict[int, str]:
    if kind == "tombstone":
        stones = tx.execute(select(tombstones).where(tombstones.c.id.in_(idents))).all()
        return {
            row.id: keys.tombstone_key(row.kind, row.uuid, row.version or None) for row in stones
        }
    table = VERSION_TABLES[kind]
    query = select(table.c.id, table.c.uuid, table.c.version).where(table.c.id.in_(idents))
    named = next(one for one in keys.KINDS if one == kind)
    return {
        row.id: keys.record_key(named, FQID(row.uuid, row.version)) for row in tx.execute(query)
    }


def iterate_pages(catalog: Catalog, replica: Replica) -> Iterator[list[StoredObject]]:
    """Iterate over all objects a bucket should hold: blobs by SHA-256, then records, page by page.

    Each page is read in a separate transaction.
    """
    last = ""
    while blobs := _fetch_page(catalog, _PAGE_BLOBS, {"replica": replica, "after": last}):
        yield _blobs_from_rows(replica, blobs)
        last = blobs[-1].sha256
    for kind in (*VERSION_TABLES, "tombstone"):
        parameters, after = {"replica": replica, "kind": kind}, 0
        while rows := _fetch_page(catalog, _PAGE_RECORDS, {**parameters, "after": after}):
            with catalog.read() as tx:
                found = _load_records(tx, replica, rows)
            yield found
            after = rows[-1].id


def _fetch_page(
    catalog: Catalog, statement: TextClause, parameters: Mapping[str, Any]
) -> Sequence[Any]:
    with catalog.read() as tx:
        return tx.execute(statement, {**parameters, "limit": OBJECTS_PER_PAGE}).all()


_PAGE_BLOBS = sql.parse(
    "SELECT b.sha256, b.size, r.verified_us FROM blobs AS b"
    " JOIN blob_replicas AS r ON r.blob_id = b.id AND r.replica = :replica"
    " WHERE r.state = 'present' AND b.sha256 > :after ORDER BY b.sha256 LIMIT :limit"
)
_PAGE_RECORDS = sql.parse(
    "SELECT kind, id, verified_us FROM presence"
    " WHERE kind = :kind AND replica = :replica AND id > :after ORDER BY id LIMIT :limit"
)


def record_verified(tx: Tx, replica: Replica, found: Iterable[str], *, size: int = 0) -> None:
    """Record that objects, `size` bytes in all, are intact; damaged ones count as repaired."""
    sums: list[str] = []
    records: dict[str, list[FQID]] = defaultdict(list)
    every = sorted(set(found))
    if not every:
        return
    for key in every:
        if (sha256 := keys.parse_blob(key)) is not None:
            sums.append(sha256)
        elif (record := keys.parse_record(key)) is not None:
            records[record.kind].append(record.fqid)
        elif (stone := keys.parse_tombstone(key)) is not None:
            records["tombstone " + stone.kind].append(FQID(stone.uuid, stone.version or ""))
    if sums:
        columns = {"sha256": ("text", sums)}
        sql.execute_with(tx, _UPDATE_VERIFIED_BLOBS, "found", columns, replica=replica)
    _record_verified_objects(tx, replica, every)
    for kind, names in records.items():
        _record_verified_versions(tx, replica, kind, names)
    names_found = {"key": ("text", every)}
    repaired = sql.execute_with(tx, _UPDATE_REPAIRED, "found", names_found, replica=replica)
    add_totals(tx, replica, objects=len(every), bytes=size, repaired=repaired.rowcount)


def _record_verified_objects(tx: Tx, replica: Replica, objects: Sequence[str]) -> None:
    """Record that journals and markers were verified now; skip keys of blobs and records."""
    rest = [key for key in objects if key.startswith((keys.JOURNALS, keys.PURGE_MARKERS))]
    if rest:
        sql.execute_with(tx, _RECORD, "found", {"key": ("text", rest)}, replica=replica)


def _record_verified_versions(tx: Tx, replica: Replica, kind: str, names: list[FQID]) -> None:
    named, _, of = kind.partition(" ")
    same = "t.uuid = found.uuid AND t.version = found.version"
    if of:
        same += f" AND t.kind = '{of}'"
    row = sql.join_one(tx, f"{named}s", "t", same)
    columns = sql.fqid_columns(names)
    statement = f"{_UPDATE_VERIFIED_RECORDS} (SELECT t.id FROM {{source}} {row})"
    sql.execute_with(tx, statement, "found", columns, replica=replica, kind=named)


_UPDATE_VERIFIED_BLOBS = (
    "UPDATE blob_replicas SET verified_us = :now WHERE replica = :replica AND blob_id IN"
    " (SELECT b.id FROM {source} JOIN blobs AS b ON b.sha256 = found.sha256)"
)
_UPDATE_VERIFIED_RECORDS = (
    "UPDATE presence SET verified_us = :now WHERE replica = :replica AND kind = :kind AND id IN"
)
_UPDATE_REPAIRED = (
    "UPDATE damaged_objects SET repaired_us = :now WHERE replica = :replica"
    " AND repaired_us IS NULL AND key IN (SELECT key FROM {source})"
)


def filter_changed(tx: Tx, replica: Replica, modified: Mapping[str, int]) -> set[str]:
    """Return blobs and records that changed in the bucket after they were verified or stored."""
    found: set[str] = set()
    sums = {keys.parse_blob(key): at_us for key, at_us in modified.items() if keys.parse_blob(key)}
    if sums:
        changed = sql.look_up_rows(
            tx,
            "wanted.sha256",
            sql.tuple_columns(sums.items(), sha256="text", at_us="bigint"),
            ("blobs", "b", "b.sha256 = wanted.sha256"),
            ("blob_replicas", "r", f"r.blob_id = b.id AND r.replica = :replica{_IS_CHANGED}"),
            replica=replica,
            slack=CLOCK_SKEW_US,
        )
        found |= {keys.blob_key(sha256) for sha256 in changed.scalars()}
    for kind in keys.KINDS:
        found |= _filter_changed_records(tx, replica, kind, modified)
    return found


def _filter_changed_records(
    tx: Tx, replica: Replica, kind: keys.Kind, modified: Mapping[str, int]
) -> set[str]:
    parsed = [(keys.parse_record(key), at_us) for key, at_us in modified.items()]
    named = [(*key.fqid, at_us) for key, at_us in parsed if key is not None and key.kind == kind]
    if not named:
        return set()
    columns = sql.tuple_columns(named, uuid="text", version="text", at_us="bigint")
    stored = f"r.kind = :kind AND r.id = t.id AND r.replica = :replica{_IS_CHANGED}"
    changed = sql.look_up_rows(
        tx,
        "wanted.uuid, wanted.version",
        columns,
        (f"{kind}s", "t", "t.uuid = wanted.uuid AND t.version = wanted.version"),
        ("presence", "r", stored),
        kind=kind,
        replica=replica,
        slack=CLOCK_SKEW_US,
    )
    return {keys.record_key(kind, FQID(row.uuid, row.version)) for row in changed}


_IS_CHANGED = " AND r.verified_us + :slack < wanted.at_us AND r.at_us + :slack < wanted.at_us"


def record_damage(tx: Tx, replica: Replica, key: str, reason: str) -> bool:
    """Record that an object is damaged; False when that is known already."""
    row = {"replica": replica, "key": key, "reason": reason}
    existing = sql.execute(tx, _UPDATE_DAMAGE, row).rowcount > 0
    if not existing:
        sql.execute(tx, _INSERT_DAMAGE, row)
        add_totals(tx, replica, damaged=1)
    return not existing


_UPDATE_DAMAGE = (
    "UPDATE damaged_objects SET reason = :reason, tried_us = :now"
    " WHERE replica = :replica AND key = :key AND repaired_us IS NULL"
)
_INSERT_DAMAGE = (
    "INSERT INTO damaged_objects (replica, key, reason, found_us, tried_us)"
    " VALUES (:replica, :key, :reason, :now, :now) ON CONFLICT (replica, key) DO UPDATE"
    " SET reason = excluded.reason, found_us = excluded.found_us, tried_us = excluded.tried_us,"
    " repaired_us = NULL"
)


def list_damaged(tx: Tx, *, before_us: int | None = None, limit: int) -> list[DamagedObjectRow]:
    """List unrepaired objects, those whose repair was tried longest ago first.

    `before_us` selects only those tried before that time.
    """
    before = now_us(tx) + 1 if before_us is None else before_us
    query = sql.parse(
        "SELECT replica, key, reason, found_us FROM damaged_objects WHERE repaired_us IS NULL"
        " AND tried_us < :before ORDER BY tried_us, replica, key LIMIT :limit"
    )
    return [DamagedObjectRow(*row) for row in tx.execute(query, {"before": before, "limit": limit})]


def count_damaged(tx: Tx) -> int:
    """Count unrepaired objects in all replicas."""
    query = sql.parse("SELECT count(*) FROM damaged_objects WHERE repaired_us IS NULL")
    return int(tx.execute(query).scalar_one())


def filter_damaged(tx: Tx, replica: Replica, some: Sequence[str]) -> dict[str, str]:
    """Return which of these keys are damaged, with the reason."""
    same = "d.replica = :replica AND d.key = wanted.key AND d.repaired_us IS NULL"
    wanted, damaged = {"key": ("text", list(some))}, ("damaged_objects", "d", same)
    rows = sql.look_up_rows(tx, "d.key, d.reason", wanted, damaged, replica=replica)
    return {row.key: row.reason for row in rows}


def forget_object(tx: Tx, replica: Replica, key: str) -> None:
    """Forget the findings about an object that was deleted deliberately."""
    for table in (damaged_objects, verified_objects):
        tx.execute(delete(table).filter_by(replica=replica, key=key))


def count_objects(
    tx: Tx, replica: Replica, *, since_us: int, exact_ids: int = statistics.EXACT_IDS
) -> IntegrityCounts:
    """Return the counts of a replica; those of all objects from a sample if it has many more."""
    parameters = {"replica": replica, "since": since_us}
    tables = {"blob": blobs, **VERSION_TABLES, "tombstone": tombstones}
    last_ids = {kind: statistics.find_last_id(tx, table) for kind, table in tables.items()}
    if max(last_ids.values()) <= exact_ids:
        objects, verified = tx.execute(_COUNT_STORED, parameters).one()
    else:
        parts = [_estimate_stored(tx, kind, last_ids[kind], parameters) for kind in last_ids]
        objects, verified = map(sum, zip(*parts, strict=True))
    row = tx.execute(_TOTALS, parameters).one()
    starts = [one for one in tx.execute(_SELECT_OLDEST, parameters).scalars() if one is not None]
    return IntegrityCounts(
        objects=objects,
        verified=verified,
        damaged=row.damaged,
        repaired=int(row.repaired),
        oldest_us=now_us(tx) - min(starts) if starts else None,
        verified_bytes=int(row.bytes),
        found=int(row.found),
    )


def _estimate_stored(tx: Tx, kind: str, last: int, given: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many objects of a kind are stored, and verified, judging by a sample."""
    table, same = _STORED.get(kind, ("presence", f"s.kind = '{kind}' AND s.id = wanted.id"))
    sample = statistics.choose_ids(last)
    counts = "count(*), count(CASE WHEN s.verified_us >= :since THEN 1 END)"
    stored = (table, "s", f"{same} AND s.replica = :replica")
    rows = sql.look_up_rows(tx, counts, {"id": ("bigint", sample.ids)}, stored, **given)
    number, verified = rows.one()
    return sample.scale(number), sample.scale(verified)


_STORED = {"blob": ("blob_replicas", "s.blob_id = wanted.id AND s.state = 'present'")}
_COUNT_STORED = sql.parse(
    "SELECT blobs + records, blobs + records - late_blobs - late_records FROM (SELECT"
    " (SELECT count(*) FROM blob_replicas WHERE replica = :replica AND state = 'present') AS blobs,"
    " (SELECT count(*) FROM blob_replicas WHERE replica = :replica AND state = 'present'"
    " AND verified_us < :since) AS late_blobs,"
    " (SELECT count(*) FROM presence WHERE replica = :replica) AS records,"
    " (SELECT count(*) FROM presence WHERE replica = :replica AND verified_us < :since)"
    " AS late_records) AS counted"
)
_TOTALS = sql.parse(
    "SELECT (SELECT count(*) FROM damaged_objects WHERE replica = :replica AND repaired_us IS NULL)"
    " AS damaged,"
    " (SELECT coalesce(sum(repaired), 0) FROM scrubbed WHERE replica = :replica) AS repaired,"
    " (SELECT coalesce(sum(damaged), 0) FROM scrubbed WHERE replica = :replica) AS found,"
    " (SELECT coalesce(sum(bytes), 0) FROM scrubbed WHERE replica = :replica) AS bytes"
)
# With their tables' names: PostgreSQL names a CASE after its last column, and would sort by it.
_SELECT_OLDEST = sql.parse(
    "SELECT * FROM (SELECT CASE WHEN verified_us = 0 THEN at_us ELSE verified_us END FROM"
    " blob_replicas AS r WHERE replica = :replica AND state = 'present'"
    " ORDER BY r.verified_us LIMIT 1) AS blob UNION ALL"
    " SELECT * FROM (SELECT CASE WHEN verified_us = 0 THEN at_us ELSE verified_us END FROM"
    " presence AS p WHERE replica = :replica ORDER BY p.verified_us LIMIT 1) AS record"
)


def add_totals(tx: Tx, replica: Replica, **more: int) -> None:
    """Add to today's totals of a replica."""
    row = {"objects": 0, "bytes": 0, "damaged": 0, "repaired": 0, **more}
    sql.execute(
        tx,
        "INSERT INTO scrubbed (replica, day, objects, bytes, damaged, repaired)"
        " VALUES (:replica, :day, :objects, :bytes, :damaged, :repaired)"
        " ON CONFLICT (replica, day) DO UPDATE SET objects = scrubbed.objects + excluded.objects,"
        " bytes = scrubbed.bytes + excluded.bytes, damaged = scrubbed.damaged + excluded.damaged,"
        " repaired = scrubbed.repaired + excluded.repaired",
        {**row, "replica": replica, "day": now_us(tx) // DAY_US},
    )


def compute_allowance(tx: Tx, bytes_per_day: int) -> int:
    """Return how many bytes may still be read today, after paying back days over budget."""
    today = now_us(tx) // DAY_US
    query = sql.parse(
        "SELECT day, sum(bytes) AS bytes FROM scrubbed WHERE day > :from GROUP BY day ORDER BY day"
    )
    debt, last = 0, today
    for row in tx.execute(query, {"from": today - BUDGET_DAYS}):
        debt = max(0, debt - bytes_per_day * max(0, row.day - last)) + int(row.bytes)
        last = row.day
    return bytes_per_day - max(0, debt - bytes_per_day * (today - last))


def list_expected_blobs(tx: Tx, replica: Replica, after: str, *, limit: int) -> list[str]:
    """Return SHA-256 sums of blobs that a bucket should hold, in order, after a given one."""
    query = select_stored_blobs(replica).where(blobs.c.sha256 > after)
    return list(tx.execute(query.order_by(blobs.c.sha256).limit(limit)).scalars())


def is_blob_expected(tx: Tx, replica: Replica, sha256: str) -> bool:
    """Return whether a bucket should hold a blob."""
    query = select_stored_blobs(replica).where(blobs.c.sha256 == sha256)
    return tx.execute(query).first() is not None


def find_blob_size(tx: Tx, sha256: str) -> int | None:
    """Return the size of a blob; None if it is unknown."""
    query = select(blobs.c.size).where(blobs.c.sha256 == sha256)
    return tx.execute(query).scalar_one_or_none()


RecordSection = Literal["record", "tombstone", "purge"]
"""Records of versions, or markers of tombstones or purges; those of a whole uuid have no version.
"""


def list_expected(
    tx: Tx, section: RecordSection, kind: str, replica: Replica, after: FQID, *, limit: int
) -> list[FQID]:
    """Return the versions of a kind whose record or marker a bucket should hold, after a given one.

    In the byte order of uuid and version.
    """
    return sql.fetch_versions(
        tx, _select_expected(section, kind, replica), after=after, limit=limit
    )


def is_expected(tx: Tx, section: RecordSection, kind: str, replica: Replica, fqid: FQID) -> bool:
    """Return whether a bucket should hold the record or marker of a version."""
    query = _select_expected(section, kind, replica)
    uuid, version = query.selected_columns
    return tx.execute(query.where(uuid == fqid.uuid, version == fqid.version)).first() is not None


def _select_expected(section: RecordSection, kind: str, replica: Replica) -> Select[Any]:
    if section == "purge":
        return (
            select(purges.c.uuid, purges.c.version)
            .join(purge_replicas, purge_replicas.c.purge_id == purges.c.id)
            .where(purge_replicas.c.replica == replica, purge_replicas.c.marked_us.is_not(None))
            .where(purges.c.kind == kind)
        )
    table = tombstones if section == "tombstone" else VERSION_TABLES[kind]
    query = (
        select(table.c.uuid, table.c.version)
        .join(presence, presence.c.id == table.c.id)
        .where(presence.c.kind == ("tombstone" if section == "tombstone" else kind))
        .where(presence.c.replica == replica, ~presence.c.diverged)
    )
    if section == "tombstone":
        return query.where(table.c.kind == kind)
    purged = select(purges.c.id).where(
        purges.c.kind == kind, purges.c.uuid == table.c.uuid, purges.c.version == table.c.version
    )
    return query.where(~purged.exists())
