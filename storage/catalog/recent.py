"""The bundles that a replica got lately, with the events that told of them."""

from dataclasses import replace

from sqlalchemy import text

from storage.catalog import bulk, events
from storage.catalog.engine import Tx, sql
from storage.model import FQID, Event, Replica

LOOKED = 20
"""Bundles looked at for each that is wanted: some are gone again, or not yet in this replica."""

_LATEST = """
    SELECT b.id, b.uuid, b.version, b.published_us
    FROM (SELECT * FROM bundles WHERE published_us IS NOT NULL ORDER BY id DESC LIMIT :looked) b
    JOIN visible v ON v.kind = 'bundle' AND v.replica = :replica
        AND v.uuid = b.uuid AND v.version = b.version
    ORDER BY b.id DESC LIMIT :limit
"""


def created(tx: Tx, replica: Replica, *, limit: int) -> list[Event]:
    """The CREATE events of the latest bundles that readers of a replica see, the latest first."""
    asked = {"replica": replica, "limit": limit, "looked": limit * LOOKED}
    found = []
    for row in tx.execute(sql(_LATEST), asked):
        fqid = FQID(row.uuid, row.version)
        ident = events.event_id("CREATE", replica, fqid)
        found.append(Event(ident, replica, "CREATE", fqid, row.id, row.published_us))
    known = _times(tx, [event.id for event in found])
    return [replace(event, at_us=known.get(event.id, event.at_us)) for event in found]


def _times(tx: Tx, idents: list[str]) -> dict[str, int]:
    if not idents:
        return {}
    source, parameters = bulk.derived(tx, "wanted", {"id": ("text", sorted(idents))})
    one = bulk.one_each(tx, "events", "e", "e.id = wanted.id")
    rows = tx.execute(text(f"SELECT e.id, e.at_us FROM {source} {one}"), parameters)
    return {row.id: row.at_us for row in rows}
