"""Counts of what the store holds, of what each owner has, and the latest bundles.

Large tables are counted by a sample of their ids, in a time that does not grow with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Integer, Select, Table, cast, exists, func, literal, select

from storage.catalog import events, sql, versions
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.jobs import tasks
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    area_files,
    area_uploads,
    areas,
    blobs,
    bundles,
    files,
    presence,
    visible,
)
from storage.keys import Kind
from storage.model import FQID, REPLICAS, Replica

EXACT_IDS = 1_000_000
"""Tables of so many ids are counted; of larger ones a sample is."""
SPANS, SPAN_IDS = 100, 40
"""A sample is so many runs of ids, evenly spaced: neighbours lie on one page."""


@dataclass(frozen=True, slots=True)
class IdSample:
    """Ids of a table, and for how many ids each of them stands."""

    ids: Sequence[int]
    weight: float

    def scale(self, counted: int) -> int:
        """Return how many there are in the table, judging by those counted in the sample."""
        return round(counted * self.weight)


def find_last_id(tx: Tx, table: Table) -> int:
    """Return the greatest id of a table; 0 without rows."""
    return int(tx.execute(select(func.max(table.c.id))).scalar_one() or 0)


def find_last_version_id(tx: Tx, kind: Kind) -> int:
    """Return the greatest id of the versions of a kind; 0 without any."""
    return find_last_id(tx, VERSION_TABLES[kind])


def choose_ids(last_id: int) -> IdSample:
    """Return a sample of the ids from 1 to `last_id`: all of them if they are few."""
    step = max(SPAN_IDS, -(-last_id // SPANS))
    ids = [
        ident
        for first in range(1, last_id + 1, step)
        for ident in range(first, min(first + SPAN_IDS, last_id + 1))
    ]
    return IdSample(ids, last_id / len(ids) if ids else 0.0)


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Live bundle and file versions per replica, and the bytes of distinct contents."""

    bundles: dict[Replica, int]
    files: dict[Replica, int]
    bytes: int
    is_estimate: bool = False
    """Whether they are those of a sample, multiplied."""


@dataclass(frozen=True, slots=True)
class DailyGrowth:
    """File versions that arrived in a replica within 24 hours, and their bytes."""

    began_us: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LatestBundle:
    """A live bundle version that arrived recently."""

    fqid: FQID
    file_count: int
    created_us: int


@dataclass(frozen=True, slots=True)
class PublishedBundle:
    """A live bundle version, when it was published, and the id of its CREATE event."""

    fqid: FQID
    file_count: int
    published_us: int
    event_id: str


def count_store(tx: Tx, *, exact_ids: int = EXACT_IDS) -> StoreCounts:
    """Count what is live; estimate it from a sample where a table has more ids than these."""
    last_ids = {table: find_last_id(tx, table) for table in (bundles, files, blobs)}
    if max(last_ids.values()) <= exact_ids:
        return _count_all(tx)
    chosen = {table: choose_ids(last_id) for table, last_id in last_ids.items()}
    wanted = {"id": ("bigint", chosen[blobs].ids)}
    looked_up = sql.look_up_rows(tx, "sum(b.size)", wanted, ("blobs", "b", "b.id = wanted.id"))
    return StoreCounts(
        {name: _estimate_visible(tx, "bundle", name, chosen[bundles]) for name in REPLICAS},
        {name: _estimate_visible(tx, "file", name, chosen[files]) for name in REPLICAS},
        chosen[blobs].scale(int(looked_up.scalar() or 0)),
        is_estimate=True,
    )


def _estimate_visible(tx: Tx, kind: Kind, replica: Replica, sample: IdSample) -> int:
    seen = "v.kind = :kind AND v.replica = :replica AND v.uuid = t.uuid AND v.version = t.version"
    rows = sql.look_up_rows(
        tx,
        "count(*)",
        {"id": ("bigint", sample.ids)},
        (VERSION_TABLES[kind].name, "t", "t.id = wanted.id"),
        ("visible", "v", seen),
        kind=kind,
        replica=replica,
    )
    return sample.scale(int(rows.scalar_one()))


def _count_all(tx: Tx) -> StoreCounts:
    query = select(visible.c.kind, visible.c.replica, func.count()).group_by(
        visible.c.kind, visible.c.replica
    )
    counts = {(kind, replica): number for kind, replica, number in tx.execute(query)}
    return StoreCounts(
        {replica: counts.get(("bundle", replica), 0) for replica in REPLICAS},
        {replica: counts.get(("file", replica), 0) for replica in REPLICAS},
        int(tx.execute(select(func.sum(blobs.c.size))).scalar() or 0),
    )


def list_latest_bundles(tx: Tx, replica: Replica, *, limit: int) -> list[LatestBundle]:
    """Return the live bundle versions that arrived last in a replica, latest first."""
    # Joined in this order: planners would read all visible bundles otherwise.
    bundle = sql.join_one(tx, "bundles", "b", "b.id = a.id")
    seen = sql.join_one(tx, "visible", "v", _IS_VISIBLE)
    statement = (
        "SELECT b.uuid, b.version, b.file_count, b.created_us FROM (SELECT id FROM presence"
        " WHERE replica = :replica AND kind = 'bundle' ORDER BY at_us DESC LIMIT :looked) AS a"
        f" {bundle} {seen} ORDER BY b.created_us DESC, b.id DESC LIMIT :limit"
    )
    parameters = {"replica": replica, "looked": 4 * limit, "limit": limit}
    rows = tx.execute(sql.parse(statement), parameters)
    return [LatestBundle(FQID(row[0], row[1]), row[2], row[3]) for row in rows]


def list_published_bundles(
    tx: Tx, replica: Replica, *, before: int | None, limit: int
) -> tuple[list[PublishedBundle], int | None]:
    """Return those of the next `limit` published bundles that are live in a replica, latest first.

    The second value is the id to continue before; None at the end. Order is that of the ids.
    """
    columns = (*bundles.c["id", "uuid", "version", "file_count", "published_us"],)
    query = select(*columns).where(bundles.c.published_us.is_not(None))
    if before is not None:
        query = query.where(bundles.c.id < before)
    rows = tx.execute(query.order_by(bundles.c.id.desc()).limit(limit + 1)).all()
    page = rows[:limit]
    live = versions.filter_published(
        tx, "bundle", replica, [FQID(row.uuid, row.version) for row in page]
    )
    found = []
    for row in page:
        fqid = FQID(row.uuid, row.version)
        if fqid in live:
            event_id = events.make_event_id("CREATE", replica, fqid)
            found.append(PublishedBundle(fqid, row.file_count, row.published_us, event_id))
    return found, page[-1].id if len(rows) > limit else None


_IS_VISIBLE = (
    "v.kind = 'bundle' AND v.replica = :replica AND v.uuid = b.uuid AND v.version = b.version"
)

DAY_US = 86_400_000_000


def list_growth(tx: Tx, replica: Replica, *, days: int) -> list[DailyGrowth]:
    """Return what arrived in each of the last days, the current one first."""
    now = now_us(tx)
    age = (now - presence.c.at_us) / DAY_US
    day = cast(func.floor(age), Integer)
    query = (
        select(day, func.count(), func.sum(blobs.c.size))
        .select_from(presence)
        .join(files, files.c.id == presence.c.id)
        .join(blobs, blobs.c.id == files.c.blob_id)
        .where(
            presence.c.replica == replica,
            presence.c.kind == "file",
            presence.c.at_us > now - days * DAY_US,
        )
        .group_by(day)
    )
    found = {int(row[0]): (int(row[1]), int(row[2] or 0)) for row in tx.execute(query)}
    return [
        DailyGrowth(now - (number + 1) * DAY_US, *found.get(number, (0, 0)))
        for number in range(days)
    ]


def list_bundles_of_author(tx: Tx, author: str, *, limit: int) -> list[LatestBundle]:
    """Return the live bundle versions that an author wrote last, latest first."""
    is_live = (
        select(visible.c.id)
        .where(
            visible.c.kind == "bundle",
            visible.c.replica.in_(REPLICAS),
            visible.c.uuid == bundles.c.uuid,
            visible.c.version == bundles.c.version,
        )
        .exists()
    )
    query = (
        select(bundles.c.uuid, bundles.c.version, bundles.c.file_count, bundles.c.created_us)
        # A range, as equality lets a planner walk all bundles backwards, of any author.
        .where(bundles.c.author >= author, bundles.c.author <= author, is_live)
        .order_by(bundles.c.author.desc(), bundles.c.id.desc())
        .limit(limit)
    )
    return [LatestBundle(FQID(row[0], row[1]), row[2], row[3]) for row in tx.execute(query)]


class OwnerTotal(NamedTuple):
    """How many of something an owner has, and their bytes."""

    owner: str
    number: int
    size: int


def count_versions(
    tx: Tx, kind: Kind, after_id: int, until_id: int, *, lacking_in: Replica | None = None
) -> list[OwnerTotal]:
    """Count the published versions of a range of ids by owner; bytes are those of files.

    With `lacking_in` those that are not complete in this replica.
    """
    table = VERSION_TABLES[kind]
    size = func.sum(blobs.c.size, type_=BigInteger) if kind == "file" else literal(0)
    joined = table.join(blobs, blobs.c.id == files.c.blob_id) if kind == "file" else table
    query = select(table.c.author, func.count(), size).select_from(joined)
    query = query.where(
        table.c.id > after_id, table.c.id <= until_id, table.c.published_us.is_not(None)
    )
    if lacking_in is not None:
        query = query.where(
            ~exists().where(
                presence.c.kind == kind,
                presence.c.id == table.c.id,
                presence.c.replica == lacking_in,
            )
        )
    return _read_totals(tx, query.group_by(table.c.author))


def _read_totals(tx: Tx, query: Select[Any]) -> list[OwnerTotal]:
    return [OwnerTotal(owner, number, int(size)) for owner, number, size in tx.execute(query)]


def list_areas(tx: Tx, *, after: str, limit: int) -> list[tuple[str, str]]:
    """List uuid and owner of upload areas that are not deleted, by uuid after a given one."""
    query = select(areas.c.uuid, areas.c.owner).where(
        areas.c.uuid > after, areas.c.state != "DELETED"
    )
    return [(uuid, owner) for uuid, owner in tx.execute(query.order_by(areas.c.uuid).limit(limit))]


def count_area_files(tx: Tx, uuids: Sequence[str]) -> list[OwnerTotal]:
    """Count the files of upload areas by owner."""
    query = (
        select(areas.c.owner, func.count(), func.sum(area_files.c.size, type_=BigInteger))
        .join_from(areas, area_files, area_files.c.area == areas.c.uuid)
        .where(areas.c.uuid.in_(uuids))
        .group_by(areas.c.owner)
    )
    return _read_totals(tx, query)


def count_area_uploads(tx: Tx) -> list[OwnerTotal]:
    """Count unfinished uploads to areas by owner, with the sizes of their files."""
    query = (
        select(areas.c.owner, func.count(), func.sum(area_uploads.c.size, type_=BigInteger))
        .join_from(areas, area_uploads, area_uploads.c.area == areas.c.uuid)
        .group_by(areas.c.owner)
    )
    return _read_totals(tx, query)


def count_open_tasks(tx: Tx) -> list[OwnerTotal]:
    """Count files that are being verified by owner."""
    query = select(tasks.c.author, func.count(), func.sum(tasks.c.size, type_=BigInteger))
    return _read_totals(tx, query.where(tasks.c.finished_us.is_(None)).group_by(tasks.c.author))
