"""Journals: which ranges of sequenced events are stored in which objects of a bucket.

A transaction that begins, records or ends a journal holds the replica's lock. An object is put only
under the key of a `writing` row. Recording makes it `current` in place of the journals it covers,
which become `past` and are deleted after a while. So every object has a row until it is gone.

A number that any journal used is never assigned again: the numbers in a bucket's keys are a floor
for the sequencer, even if the journals cannot be read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import select, update

from storage.catalog import sql, store_state, versions
from storage.catalog.events import MAX_SEQUENCE, SequencedEvent
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.event_log import events, journals
from storage.errors import DamagedObjectError
from storage.keys import JournalKey
from storage.model import Replica

JournalState = Literal["writing", "current", "past"]
JOURNAL_HEAD = "journal"


@dataclass(frozen=True, slots=True)
class JournalObject:
    """One object with the lines of the events from `first` to `last`."""

    id: int
    replica: Replica
    first: int
    last: int
    generation: int
    tier: int
    state: JournalState
    size: int
    at_us: int
    """Time of the latest change of state."""

    @property
    def key(self) -> JournalKey:
        """The key of the object."""
        return JournalKey(self.replica, self.first, self.last, self.generation)

    @property
    def count(self) -> int:
        """The number of events."""
        return self.last - self.first + 1


class LinePosition(NamedTuple):
    """Position of an event's line in its journal."""

    seq: int
    offset: int
    size: int


_COLUMNS = "id, replica, first_seq AS first, last_seq AS last, generation, tier, state, size, at_us"


def _select_journals(tx: Tx, where: str, **parameters: Any) -> list[JournalObject]:
    statement = f"SELECT {_COLUMNS} FROM journals WHERE {where}"
    return sql.map_rows(JournalObject, sql.execute(tx, statement, parameters))


def _find_first(tx: Tx, where: str, **parameters: Any) -> JournalObject | None:
    found = _select_journals(tx, f"{where} LIMIT 1", **parameters)
    return found[0] if found else None


def lock(tx: Tx, replica: Replica) -> None:
    """Lock the journals of a replica."""
    versions.lock_heads(tx, JOURNAL_HEAD, [replica])


def find_last_sequence(tx: Tx, replica: Replica) -> int:
    """Return the last number in a journal; 0 when there is none."""
    where = "replica = :replica AND state = 'current' ORDER BY last_seq DESC"
    journal = _find_first(tx, where, replica=replica)
    return journal.last if journal else 0


def find_begun(tx: Tx, replica: Replica, first: int) -> JournalObject | None:
    """Return the journal that was begun at this number and is not recorded."""
    where = "replica = :replica AND state <> 'current' AND state = 'writing' AND first_seq = :first"
    return _find_first(tx, f"{where} ORDER BY last_seq", replica=replica, first=first)


def begin(tx: Tx, replica: Replica, first: int, last: int, *, tier: int) -> JournalObject:
    """Return the row whose key an object may be put under: an unrecorded one, or a new one."""
    span: dict[str, Any] = {"replica": replica, "first": first, "last": last}
    where = "replica = :replica AND first_seq = :first AND last_seq = :last"
    latest = _find_first(tx, f"{where} ORDER BY generation DESC", **span)
    if latest and latest.state == "writing":
        return latest
    generation = latest.generation + 1 if latest else 0
    result = sql.execute(
        tx,
        "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, at_us)"
        " VALUES (:replica, :first, :last, :generation, :tier, 'writing', :now)"
        f" RETURNING {_COLUMNS}",
        {**span, "generation": generation, "tier": tier},
    )
    return sql.map_row(JournalObject, result.one())


def find(tx: Tx, key: JournalKey) -> JournalObject | None:
    """Return a journal by its key, in any state."""
    where = (
        "replica = :replica AND first_seq = :first AND last_seq = :last"
        " AND generation = :generation"
    )
    return _find_first(tx, where, **asdict(key))


def record(
    tx: Tx,
    journal: JournalObject,
    places: Sequence[LinePosition],
    *,
    size: int,
    instead: Iterable[JournalObject],
) -> bool:
    """Record that the object is stored, and make it current.

    False, without any change, when it was given up meanwhile or no longer replaces exactly
    `instead`.
    """
    now = find(tx, journal.key)
    before = list_current(tx, journal.replica, journal.first, journal.last)
    if now is None or now.state != "writing":
        return False
    if [one.id for one in before] != [one.id for one in instead]:
        return False
    mark_past(tx, before)
    changed = "UPDATE journals SET state = 'current', size = :size, at_us = :now WHERE id = :id"
    sql.execute(tx, changed, {"id": now.id, "size": size})
    record_positions(tx, journal.replica, places)
    return True


def record_positions(tx: Tx, replica: Replica, places: Sequence[LinePosition]) -> None:
    """Store the positions of lines of events."""
    columns: sql.Columns = {
        # A column, though always the same: the number alone would not lead to the index.
        "replica": ("text", [replica] * len(places)),
        "place": ("bigint", [place.offset for place in places]),
        **sql.attribute_columns(places, bigint="seq size"),
    }
    pointed = (
        "UPDATE events SET byte_offset = fresh.place, byte_size = fresh.size FROM {source}"
        " WHERE events.replica = fresh.replica AND events.seq = fresh.seq"
    )
    sql.execute_with(tx, pointed, "fresh", columns)


def mark_past(tx: Tx, covered: Iterable[JournalObject]) -> None:
    """Mark journals past, to be deleted later."""
    past = "UPDATE journals SET state = 'past', at_us = :now WHERE id = :id"
    for journal in covered:
        sql.execute(tx, past, {"id": journal.id})


def list_current(tx: Tx, replica: Replica, first: int, last: int) -> list[JournalObject]:
    """List current journals that overlap a range, in order."""
    return list_range(tx, replica, first, last + 1, limit=last - first + 1)


def list_not_current(tx: Tx, replica: Replica, seq: int) -> list[JournalObject]:
    """List journals with this number that are being written or are past."""
    where = "replica = :replica AND state <> 'current' AND first_seq <= :seq AND last_seq >= :seq"
    return _select_journals(tx, where, replica=replica, seq=seq)


def list_range(
    tx: Tx, replica: Replica, first: int, until: int, *, limit: int
) -> list[JournalObject]:
    """List current journals with numbers from `first` up to, but not including, `until`."""
    # They do not overlap: the first that ends at `until` or later is the last to look at.
    in_order = "replica = :replica AND state = 'current' AND last_seq >= {} ORDER BY last_seq LIMIT"
    end = f"SELECT last_seq FROM journals WHERE {in_order.format(':until')} 1"
    following = (
        f"SELECT {_COLUMNS} FROM journals WHERE last_seq <= coalesce(({end}), {MAX_SEQUENCE})"
        f" AND {in_order.format(':first')} :limit"
    )
    statement = f"SELECT * FROM ({following}) AS following WHERE first < :until ORDER BY last"
    given = {"replica": replica, "first": first, "until": until, "limit": limit}
    return sql.map_rows(JournalObject, sql.execute(tx, statement, given))


def list_oldest(tx: Tx, replica: Replica, tier: int, *, limit: int) -> list[JournalObject]:
    """List the oldest current journals of a tier, in order."""
    where = "replica = :replica AND state = 'current' AND tier = :tier"
    where += " ORDER BY first_seq LIMIT :limit"
    return _select_journals(tx, where, replica=replica, tier=tier, limit=limit)


def promote(tx: Tx, journal: JournalObject, tier: int) -> None:
    """Move a journal, which is large enough, to this tier as it is."""
    tx.execute(update(journals).filter_by(id=journal.id).values(tier=tier))


def list_aged(tx: Tx, replica: Replica, age_us: int, *, limit: int) -> list[JournalObject]:
    """List journals that were past or unrecorded for so long."""
    where = "replica = :replica AND state <> 'current' AND at_us < :before"
    where += " ORDER BY at_us LIMIT :limit"
    return _select_journals(tx, where, replica=replica, before=now_us(tx) - age_us, limit=limit)


def delete(tx: Tx, journal: JournalObject) -> None:
    """Delete a row, after the objects are gone from every bucket."""
    tx.execute(
        sql.parse("DELETE FROM journals WHERE id = :id AND state = 'past'"), {"id": journal.id}
    )


SEQUENCE_FLOOR_PREFIX = "numbered/"
"""Row of `meta` with the greatest number in the keys of a replica's journals."""


def raise_sequence_floor(tx: Tx, replica: Replica, number: int) -> None:
    """Assign no number up to this one again; the caller holds the lock of the journals."""
    before = int(store_state.read_value(tx, SEQUENCE_FLOOR_PREFIX + replica) or 0)
    if number > before:
        store_state.write_value(tx, SEQUENCE_FLOOR_PREFIX + replica, str(number))


def is_known(tx: Tx, replica: Replica, key: JournalKey) -> bool:
    """Return whether the catalog has a journal of these numbers that is as good."""
    # They do not overlap: only the first that ends in or after these numbers can cover them.
    first = list_range(tx, replica, key.first, key.last + 1, limit=1)
    return any(_covers(journal, key) for journal in first)


def adopt(tx: Tx, key: JournalKey, size: int, journal_events: Sequence[SequencedEvent]) -> bool:
    """Insert a bucket's journal and its events; False when the catalog has one as good.

    Raises DamagedObjectError when its numbers belong to other events. The caller holds the lock of
    the journals.
    """
    replica = journal_events[0].event.replica
    before = list_current(tx, replica, key.first, key.last)
    if any(_covers(one, key) for one in before):
        insert_journal(tx, replica, key, size, state="past")
        return False
    if any(one.first < key.first or one.last > key.last for one in before):
        raise DamagedObjectError(f"The journal {key} overlaps another one.")
    _insert_sequenced(tx, journal_events)
    mark_past(tx, before)
    insert_journal(tx, replica, key, size, state="current")
    places = [LinePosition(each.seq, each.offset or 0, each.size or 0) for each in journal_events]
    record_positions(tx, replica, places)
    return True


def _covers(journal: JournalObject, key: JournalKey) -> bool:
    if (journal.first, journal.last) == (key.first, key.last):
        return journal.generation >= key.generation
    return journal.first <= key.first and journal.last >= key.last


def insert_journal(tx: Tx, replica: Replica, key: JournalKey, size: int, *, state: str) -> None:
    """Insert a bucket's journal, or change the state of one that is being written."""
    past = "" if state == "current" else " WHERE journals.state = 'writing'"
    sql.execute(
        tx,
        "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, size, at_us)"
        " VALUES (:replica, :first, :last, :generation, 0, :state, :size, :now)"
        " ON CONFLICT (replica, first_seq, last_seq, generation) DO UPDATE"
        f" SET state = excluded.state, size = excluded.size, at_us = excluded.at_us{past}",
        {**asdict(key), "replica": replica, "size": size, "state": state},
    )


_INSERT_SEQUENCED = (
    "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq, seq_us)"
    " SELECT fresh.id, fresh.replica, fresh.type, fresh.uuid, fresh.version,"
    " coalesce((SELECT b.id FROM bundles AS b WHERE b.uuid = fresh.uuid"
    " AND b.version = fresh.version), 0), fresh.at_us, fresh.seq, fresh.seq_us"
    " FROM {source} WHERE true ON CONFLICT (id) DO UPDATE"
    " SET at_us = excluded.at_us, seq = excluded.seq, seq_us = excluded.seq_us"
    " WHERE events.seq IS NULL"
)


def _insert_sequenced(tx: Tx, found: Sequence[SequencedEvent]) -> None:
    recorded = [each.event for each in found]
    columns: sql.Columns = {
        **sql.attribute_columns(recorded, text="id replica type", bigint="at_us"),
        **sql.fqid_columns(event.fqid for event in recorded),
        **sql.attribute_columns(found, bigint="seq seq_us"),
    }
    sql.execute_with(tx, _INSERT_SEQUENCED, "fresh", columns)
    query = select(events.c.id, events.c.seq).where(events.c.id.in_([one.id for one in recorded]))
    known = {row[0]: row[1] for row in tx.execute(query)}
    if any(known.get(each.event.id) != each.seq for each in found):
        raise DamagedObjectError("Events of this journal have other numbers in the catalog.")
