"""Counts of what the store holds, and its latest bundles."""

from dataclasses import dataclass

from sqlalchemy import Integer, cast, func, select

from storage.catalog import events, samples, sql, versions
from storage.catalog.samples import IdSample
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    blobs,
    bundles,
    files,
    presence,
    visible,
)
from storage.keys import Kind
from storage.model import FQID, REPLICAS, Replica


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


def count_store(tx: Tx, *, exact_ids: int = samples.EXACT_IDS) -> StoreCounts:
    """Count what is live; estimate it from a sample where a table has more ids than these."""
    last_ids = {table: samples.find_last_id(tx, table) for table in (bundles, files, blobs)}
    if max(last_ids.values()) <= exact_ids:
        return _count_all(tx)
    chosen = {table: samples.choose_ids(last_id) for table, last_id in last_ids.items()}
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
