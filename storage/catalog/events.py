"""Events: appended in the transaction of what happened, numbered afterwards by one sequencer.

Numbers given inside the transactions would not be in the order of the commits, and a reader that
remembers the last one it saw would miss those that commit late.
"""

import uuid
from collections.abc import Sequence

from sqlalchemy import bindparam, select

from storage.catalog import heads
from storage.catalog.engine import Tx, execute_now
from storage.catalog.schema import events
from storage.model import FQID, Event, EventType, Replica

NAMESPACE = uuid.UUID("6f2f7a52-51a1-5d0e-9a5b-6a3f0a1c7c11")
"""Frozen: event ids are UUIDv5 of `<type>/<replica>/<fqid>` in this namespace."""


def event_id(kind: EventType, replica: Replica, fqid: FQID) -> str:
    """The one id of this event, the same however often it is made."""
    return str(uuid.uuid5(NAMESPACE, f"{kind}/{replica}/{fqid}"))


def append(tx: Tx, kind: EventType, replica: Replica, fqid: FQID, bundle_id: int) -> str:
    """Record that it happened, once; returns its id."""
    return append_once(tx, kind, replica, fqid, bundle_id)[0]


def append_once(
    tx: Tx, kind: EventType, replica: Replica, fqid: FQID, bundle_id: int
) -> tuple[str, bool]:
    """The same; returns whether it is new, too."""
    ident = event_id(kind, replica, fqid)
    added = execute_now(
        tx,
        "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us)"
        " VALUES (:id, :replica, :type, :uuid, :version, :bundle_id, :now)"
        " ON CONFLICT (id) DO NOTHING",
        {
            "id": ident,
            "replica": replica,
            "type": kind,
            "uuid": fqid.uuid,
            "version": fqid.version,
            "bundle_id": bundle_id,
        },
    )
    return ident, bool(added.rowcount)


def get(tx: Tx, ident: str) -> Event | None:
    """The event of that id."""
    found = among(tx, [ident])
    return found[0] if found else None


def among(tx: Tx, idents: Sequence[str]) -> list[Event]:
    """The events of these ids, in the order in which they happened."""
    rows = tx.execute(_AMONG, {"idents": idents})
    return [
        Event(row.id, row.replica, row.type, FQID(row.uuid, row.version), row.bundle_id, row.at_us)
        for row in rows
    ]


_AMONG = (
    select(events)
    .where(events.c.id.in_(bindparam("idents", expanding=True)))
    .order_by(events.c.at_us, events.c.id)
)


def number(tx: Tx, *, limit: int = 1000) -> int:
    """Give committed events their place in the feed of their replica; returns how many."""
    # A second sequencer waits here, and then sees the numbers of the first.
    heads.lock(tx, "feed", ["sequence"])
    return execute_now(tx, _NUMBER, {"limit": limit}).rowcount


# What `rejournalling` learnt from a bucket is a floor: a number is never given twice.
# A clock that was set back does not take the feed's times back: windows are ranges of numbers.
_NUMBER = """
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


def unnumbered(tx: Tx) -> bool:
    """Whether any event waits for its number: one probe of an index."""
    return (
        tx.execute(select(events.c.id).where(events.c.seq.is_(None)).limit(1)).first() is not None
    )
