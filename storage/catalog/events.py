"""The event log: append, assign sequence numbers, read feeds, and replay.

Sequence numbers are assigned after commit. Numbers assigned inside the transactions would not
follow the order of commits, and a reader that continues after the last number would miss late
commits.

Times of a feed are those of its numbers (`seq_us`), which never decrease: a time window is a range
of numbers.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import bindparam, select, update

from storage.catalog import sql, store_state, versions
from storage.catalog.sql import Tx
from storage.catalog.tables.event_log import events, replays
from storage.model import FQID, REPLICAS, BundleEvent, EventType, Replica

EVENT_NAMESPACE = uuid.UUID("6f2f7a52-51a1-5d0e-9a5b-6a3f0a1c7c11")
"""Frozen: event ids are UUIDv5 of `<type>/<replica>/<fqid>` in this namespace."""


def make_event_id(kind: EventType, replica: Replica, fqid: FQID) -> str:
    """Return the id of an event: the same however often it is computed."""
    return str(uuid.uuid5(EVENT_NAMESPACE, f"{kind}/{replica}/{fqid}"))


def make_end_event_ids(replica: Replica, fqid: FQID) -> list[str]:
    """Return the ids of the events that end a version: its TOMBSTONE and its DELETE."""
    return [make_event_id("TOMBSTONE", replica, fqid), make_event_id("DELETE", replica, fqid)]


def append(tx: Tx, kind: EventType, replica: Replica, fqid: FQID, bundle_id: int) -> str:
    """Append an event, idempotently; return its id."""
    return append_if_new(tx, kind, replica, fqid, bundle_id)[0]


def append_if_new(
    tx: Tx, kind: EventType, replica: Replica, fqid: FQID, bundle_id: int
) -> tuple[str, bool]:
    """Append an event, idempotently; return its id and whether it is new."""
    ident = make_event_id(kind, replica, fqid)
    added = sql.execute(
        tx,
        "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us)"
        " VALUES (:id, :replica, :type, :uuid, :version, :bundle_id, :now)"
        " ON CONFLICT (id) DO NOTHING",
        {"id": ident, "replica": replica, "type": kind, "bundle_id": bundle_id, **fqid._asdict()},
    )
    return ident, bool(added.rowcount)


def find(tx: Tx, ident: str) -> BundleEvent | None:
    """Return an event by its id."""
    events_found = find_all(tx, [ident])
    return events_found[0] if events_found else None


def find_all(tx: Tx, idents: Sequence[str]) -> list[BundleEvent]:
    """Return events by id, in the order in which they happened."""
    return sql.map_rows(BundleEvent, tx.execute(_SELECT_BY_IDS, {"idents": idents}))


_SELECT_BY_IDS = (
    select(events)
    .where(events.c.id.in_(bindparam("idents", expanding=True)))
    .order_by(events.c.at_us, events.c.id)
)


def assign_sequence(tx: Tx, *, limit: int = 1000) -> int:
    """Assign sequence numbers to committed events; return how many."""
    # A second sequencer waits here and then sees the numbers of the first.
    versions.lock_heads(tx, "feed", ["sequence"])
    return sql.execute(tx, _ASSIGN_SEQUENCE, {"limit": limit}).rowcount


# The floor in `meta` comes from a bucket's journals after a restore: no number is assigned twice.
# `seq_us` does not decrease when the clock is set back: windows are ranges of numbers.
_ASSIGN_SEQUENCE = """
    UPDATE events SET seq = place.seq,
        seq_us = CASE WHEN place.seq_us > :now THEN place.seq_us ELSE :now END FROM (
        SELECT id, row_number() OVER (PARTITION BY replica ORDER BY at_us, id)
            + coalesce((SELECT max(given) FROM (
                SELECT max(seq) AS given FROM events AS e WHERE e.replica = w.replica
                UNION ALL SELECT CAST(value AS bigint) FROM meta
                WHERE meta.key = 'numbered/' || w.replica) AS ever), 0) AS seq,
            coalesce((SELECT max(seq_us) FROM events AS e WHERE e.replica = w.replica), 0) AS seq_us
        FROM (SELECT id, replica, at_us FROM events WHERE seq IS NULL ORDER BY at_us, id
              LIMIT :limit) AS w
    ) AS place WHERE events.id = place.id
"""


def has_unsequenced(tx: Tx) -> bool:
    """Return whether any event lacks its number: one index probe."""
    query = select(events.c.id).where(events.c.seq.is_(None))
    return tx.execute(query.limit(1)).first() is not None


@dataclass(frozen=True, slots=True)
class SequencedEvent:
    """An event with its place in the feed; `offset` and `size` locate its line in its journal."""

    event: BundleEvent
    seq: int
    seq_us: int
    offset: int | None = None
    size: int | None = None


_SELECT_RANGE = sql.parse(
    f"SELECT {sql.list_columns(events, 'events')} FROM events"
    " WHERE replica = :replica AND seq >= :first AND seq < :until ORDER BY seq LIMIT :limit"
)
MAX_SEQUENCE = 2**62
"""Greater than every sequence number."""


def list_range(
    tx: Tx, replica: Replica, first: int, until: int = MAX_SEQUENCE, *, limit: int
) -> list[SequencedEvent]:
    """List events by number, from `first` up to, but not including, `until`."""
    parameters = {"replica": replica, "first": first, "until": until, "limit": limit}
    return [
        SequencedEvent(
            sql.map_row(BundleEvent, row), row.seq, row.seq_us, row.byte_offset, row.byte_size
        )
        for row in tx.execute(_SELECT_RANGE, parameters)
    ]


def find_latest_sequence(tx: Tx, replica: Replica) -> int:
    """Return the last assigned number; 0 when there is none."""
    query = sql.parse("SELECT max(seq) FROM events WHERE replica = :replica")
    return int(tx.execute(query, {"replica": replica}).scalar_one() or 0)


def find_sequence_at(tx: Tx, replica: Replica, us: int) -> int | None:
    """Return the first number assigned at this time or later; None when there is none."""
    query = "SELECT seq FROM events WHERE replica = :replica AND seq_us >= :us"
    first = sql.parse(f"{query} ORDER BY seq_us, seq LIMIT 1")
    return tx.execute(first, {"replica": replica, "us": us}).scalar_one_or_none()


def filter_purged(tx: Tx, fqids: Collection[FQID]) -> set[FQID]:
    """Return those versions that are purged or about to be, judging by their DELETE events."""
    ends = {make_event_id("DELETE", replica, fqid): fqid for fqid in fqids for replica in REPLICAS}
    return {ends[ident] for ident in filter_existing(tx, ends)}


def filter_existing(tx: Tx, idents: Collection[str]) -> set[str]:
    """Return those of these event ids that exist."""
    return set(_find_times(tx, idents))


SEQUENCE_KEY = "numbering"
"""Row of `meta` that names the sequence; set by the first restore."""


def read_sequence_name(tx: Tx) -> str:
    """Return the name of the current sequence; another sequence may reuse its numbers."""
    return store_state.read_value(tx, SEQUENCE_KEY) or ""


def start_sequence(tx: Tx, name: str) -> None:
    """Start a new sequence: from now on, numbers may differ from those before a restore."""
    store_state.write_value(tx, SEQUENCE_KEY, name)


def find_sequence_time(tx: Tx, replica: Replica, seq: int) -> int:
    """Return when a number was assigned; 0 for the place before the first one."""
    query = sql.parse("SELECT seq_us FROM events WHERE replica = :replica AND seq = :seq")
    return int(tx.execute(query, {"replica": replica, "seq": seq}).scalar_one_or_none() or 0)


EVENT_TYPES: tuple[EventType, ...] = ("CREATE", "TOMBSTONE", "DELETE")


def list_sequence_numbers(tx: Tx, replica: Replica, fqid: FQID) -> list[int]:
    """Return the sequence numbers of all events of a version in a replica."""
    idents = [make_event_id(kind, replica, fqid) for kind in EVENT_TYPES]
    numbers = tx.execute(select(events.c.seq).where(events.c.id.in_(idents))).scalars()
    return sorted(seq for seq in numbers if seq is not None)


SCAN_FACTOR = 20
"""Bundles read for each one returned: some are hidden, or not in this replica."""

_SELECT_LATEST_BUNDLES = """
    SELECT b.id, b.uuid, b.version, b.published_us
    FROM (SELECT * FROM bundles WHERE published_us IS NOT NULL{same}
        ORDER BY id DESC LIMIT :looked) b
    JOIN visible v ON v.kind = 'bundle' AND v.replica = :replica
        AND v.uuid = b.uuid AND v.version = b.version
    ORDER BY b.id DESC LIMIT :limit
"""


def list_latest_created(
    tx: Tx, replica: Replica, *, limit: int, uuid: str | None = None
) -> list[BundleEvent]:
    """Return CREATE events of the latest bundles in a replica, or of one bundle's versions."""
    parameters = {"replica": replica, "limit": limit, "looked": limit * SCAN_FACTOR, "uuid": uuid}
    query = _SELECT_LATEST_BUNDLES.format(same="" if uuid is None else " AND uuid = :uuid")
    created = []
    for row in tx.execute(sql.parse(query), parameters):
        fqid = FQID(row.uuid, row.version)
        ident = make_event_id("CREATE", replica, fqid)
        created.append(BundleEvent(ident, replica, "CREATE", fqid, row.id, row.published_us))
    times = _find_times(tx, [event.id for event in created])
    return [replace(event, at_us=times.get(event.id, event.at_us)) for event in created]


def _find_times(tx: Tx, idents: Collection[str]) -> dict[str, int]:
    if not idents:
        return {}
    wanted = {"id": ("text", sorted(idents))}
    rows = sql.look_up_rows(tx, "e.id, e.at_us", wanted, ("events", "e", "e.id = wanted.id"))
    return {row.id: row.at_us for row in rows}


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay: events from `next_seq` up to, but not including, `end_seq` are still to be sent."""

    id: str
    subscription_id: int
    replica: Replica
    next_seq: int
    end_seq: int
    deliveries: int
    created_us: int
    finished_us: int | None


def insert_replay(
    tx: Tx, ident: str, subscription_id: int, replica: Replica, *, first: int, end: int
) -> bool:
    """Insert a replay; False when another one of this subscription is open."""
    row = {"id": ident, "subscription_id": subscription_id, "replica": replica}
    span = {"next_seq": first, "end_seq": end, "created_us": sql.clock(tx)}
    return bool(sql.insert_missing(tx, replays, [row | span]))


def find_replay(tx: Tx, ident: str) -> Replay | None:
    """Return a replay by its id."""
    return sql.find_row(tx, Replay, select(replays).filter_by(id=ident))


def list_replays(tx: Tx, subscription_id: int, *, limit: int) -> list[Replay]:
    """List the replays of a subscription, the latest first."""
    query = select(replays).filter_by(subscription_id=subscription_id)
    rows = tx.execute(query.order_by(replays.c.created_us.desc()).limit(limit))
    return [sql.map_row(Replay, row) for row in rows]


def advance_replay(tx: Tx, replay: Replay, next_seq: int, *, deliveries: int) -> None:
    """Record progress of a replay, and how many deliveries it made."""
    values = {"next_seq": next_seq, "deliveries": replays.c.deliveries + deliveries}
    tx.execute(update(replays).filter_by(id=replay.id).values(**values))


def finish_replay(tx: Tx, replay: Replay) -> None:
    """Mark a replay finished."""
    tx.execute(update(replays).filter_by(id=replay.id).values(finished_us=sql.clock(tx)))


def expire_replays(tx: Tx, before_us: int, *, limit: int) -> int:
    """Delete up to `limit` replays that finished before a moment; return how many."""
    return sql.delete_oldest(tx, "replays", before_us=before_us, time="finished_us", limit=limit)
