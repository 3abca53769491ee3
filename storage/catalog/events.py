"""Events: appended in the transaction of what happened, numbered afterwards by one sequencer.

Numbers given inside the transactions would not be in the order of the commits, and a reader that
remembers the last one it saw would miss those that commit late.
"""

import uuid

from sqlalchemy import func, select, update

from storage.catalog.engine import Tx, now_us, sql
from storage.catalog.schema import events
from storage.model import FQID, Event, EventType, Replica

NAMESPACE = uuid.UUID("6f2f7a52-51a1-5d0e-9a5b-6a3f0a1c7c11")
"""Frozen: event ids are UUIDv5 of `<type>/<replica>/<fqid>` in this namespace."""


def event_id(kind: EventType, replica: Replica, fqid: FQID) -> str:
    """The one id of this event, the same however often it is made."""
    return str(uuid.uuid5(NAMESPACE, f"{kind}/{replica}/{fqid}"))


def append(tx: Tx, kind: EventType, replica: Replica, fqid: FQID, bundle_id: int) -> str:
    """Record that it happened, once; returns its id."""
    ident = event_id(kind, replica, fqid)
    tx.execute(
        sql(
            "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us)"
            " VALUES (:id, :replica, :type, :uuid, :version, :bundle_id, :at_us)"
            " ON CONFLICT (id) DO NOTHING"
        ),
        {
            "id": ident,
            "replica": replica,
            "type": kind,
            "uuid": fqid.uuid,
            "version": fqid.version,
            "bundle_id": bundle_id,
            "at_us": now_us(tx),
        },
    )
    return ident


def get(tx: Tx, ident: str) -> Event | None:
    """The event of that id."""
    row = tx.execute(select(events).where(events.c.id == ident)).first()
    if row is None:
        return None
    fqid = FQID(row.uuid, row.version)
    return Event(row.id, row.replica, row.type, fqid, row.bundle_id, row.at_us)


def number(tx: Tx, *, limit: int = 1000) -> int:
    """Give committed events their place in the feed of their replica; returns how many."""
    waiting = select(events.c.id, events.c.replica).where(events.c.seq.is_(None))
    rows = tx.execute(waiting.order_by(events.c.at_us, events.c.id).limit(limit)).all()
    if not rows:
        return 0
    now = now_us(tx)
    last = {
        replica: tx.execute(
            select(func.coalesce(func.max(events.c.seq), 0)).where(events.c.replica == replica)
        ).scalar_one()
        for replica in {row.replica for row in rows}
    }
    for row in rows:
        last[row.replica] += 1
        place = {"seq": last[row.replica], "seq_us": now}
        tx.execute(update(events).where(events.c.id == row.id).values(**place))
    return len(rows)


def unnumbered(tx: Tx) -> bool:
    """Whether any event waits for its number: one probe of an index."""
    return (
        tx.execute(select(events.c.id).where(events.c.seq.is_(None)).limit(1)).first() is not None
    )
