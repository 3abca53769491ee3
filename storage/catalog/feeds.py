"""Reading events by their numbers: feeds, windows of time, and what journals are made of.

Times of a feed are those of its numbers (`seq_us`), which never go back: a window of time is a
range of numbers.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text

from storage.catalog import bulk, events, switches
from storage.catalog.engine import Tx, sql
from storage.model import FQID, REPLICAS, Event, EventType, Replica


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event with its place in the feed of its replica; `offset` and `size` are those of its line
    in the current journal that covers it, None while there is none."""

    event: Event
    seq: int
    seq_us: int
    offset: int | None = None
    size: int | None = None


def _numbered(row: Row[Any]) -> Numbered:
    fqid = FQID(row.uuid, row.version)
    event = Event(row.id, row.replica, row.type, fqid, row.bundle_id, row.at_us)
    return Numbered(event, row.seq, row.seq_us, row.byte_offset, row.byte_size)


_SPAN = sql(
    "SELECT * FROM events WHERE replica = :replica AND seq >= :first AND seq < :until"
    " ORDER BY seq LIMIT :limit"
)
END = 2**62
"""Beyond every number."""


def span(tx: Tx, replica: Replica, first: int, until: int = END, *, limit: int) -> list[Numbered]:
    """Events by number, from `first` on and before `until`."""
    asked = {"replica": replica, "first": first, "until": until, "limit": limit}
    return [_numbered(row) for row in tx.execute(_SPAN, asked)]


_NEWEST = sql("SELECT max(seq) FROM events WHERE replica = :replica")


def newest(tx: Tx, replica: Replica) -> int:
    """The last number that was given; 0 when none was."""
    return int(tx.execute(_NEWEST, {"replica": replica}).scalar_one() or 0)


_FROM = sql(
    "SELECT seq FROM events WHERE replica = :replica AND seq_us >= :us ORDER BY seq_us, seq LIMIT 1"
)


def first_from(tx: Tx, replica: Replica, us: int) -> int | None:
    """The first number given at this time or later; None when there is none yet."""
    found = tx.execute(_FROM, {"replica": replica, "us": us}).scalar_one_or_none()
    return None if found is None else int(found)


def purged(tx: Tx, fqids: Collection[FQID]) -> set[FQID]:
    """Those of these versions that are purged, or about to be: a DELETE tells of it."""
    ends = {
        events.event_id("DELETE", replica, fqid): fqid for fqid in fqids for replica in REPLICAS
    }
    if not ends:
        return set()
    source, parameters = bulk.derived(tx, "wanted", {"id": ("text", sorted(ends))})
    one = bulk.one_each(tx, "events", "e", "e.id = wanted.id")
    found = tx.execute(text(f"SELECT e.id FROM {source} {one}"), parameters)
    return {ends[ident] for ident in found.scalars()}


NUMBERING = "numbering"
"""Row of `meta`: since which restoration numbers are given as they are; not there until one."""


def numbering(tx: Tx) -> str:
    """The name of the present numbering. Under another one the same numbers may have been given to
    other events."""
    return switches.value(tx, NUMBERING) or ""


def renumber(tx: Tx, name: str) -> None:
    """Whatever number is given from now on, another catalog may have given to another event."""
    switches.put(tx, NUMBERING, name)


def time_of(tx: Tx, replica: Replica, seq: int) -> int:
    """When a number was given; 0 for the place before the first one."""
    found = tx.execute(_TIME, {"replica": replica, "seq": seq}).scalar_one_or_none()
    return int(found or 0)


_TIME = sql("SELECT seq_us FROM events WHERE replica = :replica AND seq = :seq")

TYPES: tuple[EventType, ...] = ("CREATE", "TOMBSTONE", "DELETE")


def numbers_of(tx: Tx, replica: Replica, fqid: FQID) -> list[int]:
    """The numbers of all events of a version in a replica."""
    idents = [events.event_id(kind, replica, fqid) for kind in TYPES]
    asked = {f"id{place}": ident for place, ident in enumerate(idents)}
    which = ", ".join(f":{name}" for name in asked)
    found = tx.execute(sql(f"SELECT seq FROM events WHERE id IN ({which})"), asked).scalars()
    return sorted(seq for seq in found if seq is not None)
