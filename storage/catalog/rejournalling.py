"""Journals, and the numbers of events, that a catalog learns from a bucket.

A number that any journal used is never given again: what a bucket tells of numbers is a floor for
the sequencer, also where the journal itself cannot be read.
"""

from collections.abc import Sequence

from sqlalchemy import select

from storage.catalog import bulk, journals, switches
from storage.catalog.engine import Tx, execute_now, sql
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Journal, Place
from storage.catalog.schema import events
from storage.errors import Damaged
from storage.keys import JournalKey
from storage.model import Replica

FLOOR = "numbered/"
"""Row of `meta` with the greatest number that a replica's journals ever used, by their names."""


def raise_floor(tx: Tx, replica: Replica, number: int) -> None:
    """Give no number up to this one again. The caller holds the journals' lock."""
    before = int(switches.value(tx, FLOOR + replica) or 0)
    if number > before:
        switches.put(tx, FLOOR + replica, str(number))


def known(tx: Tx, replica: Replica, key: JournalKey) -> bool:
    """Whether the catalog has this journal's numbers in as good a one."""
    return any(_as_good(one, key) for one in journals.current(tx, replica, key.first, key.last))


def take(tx: Tx, key: JournalKey, size: int, found: Sequence[Numbered]) -> bool:
    """Have a journal be the one of its numbers, and its events as it tells; False when the catalog
    knows as much already. Damaged when its numbers belong to other events. The caller holds the
    journals' lock."""
    replica = found[0].event.replica
    before = journals.current(tx, replica, key.first, key.last)
    if any(_as_good(one, key) for one in before):
        _kept(tx, replica, key, size, state="past")
        return False
    if any(one.first < key.first or one.last > key.last for one in before):
        raise Damaged(f"The journal {key} overlaps another one.")
    _number(tx, found)
    journals.end(tx, before)
    _kept(tx, replica, key, size, state="current")
    places = [Place(each.seq, each.offset or 0, each.size or 0) for each in found]
    journals.point(tx, replica, places)
    return True


def leave(tx: Tx, replica: Replica, key: JournalKey, size: int) -> None:
    """Another journal has the numbers of this one, which is dropped in its time."""
    _kept(tx, replica, key, size, state="past")


def _as_good(one: Journal, key: JournalKey) -> bool:
    if (one.first, one.last) == (key.first, key.last):
        return one.generation >= key.generation
    return one.first <= key.first and one.last >= key.last


def _kept(tx: Tx, replica: Replica, key: JournalKey, size: int, *, state: str) -> None:
    named = {
        "replica": replica,
        "first": key.first,
        "last": key.last,
        "generation": key.generation,
    }
    past = "" if state == "current" else " WHERE journals.state = 'writing'"
    execute_now(
        tx,
        "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, size, at_us)"
        " VALUES (:replica, :first, :last, :generation, 0, :state, :size, :now)"
        " ON CONFLICT (replica, first_seq, last_seq, generation) DO UPDATE"
        f" SET state = excluded.state, size = excluded.size, at_us = excluded.at_us{past}",
        {**named, "size": size, "state": state},
    )


_NUMBER = (
    "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq, seq_us)"
    " SELECT fresh.id, fresh.replica, fresh.type, fresh.uuid, fresh.version,"
    " coalesce((SELECT b.id FROM bundles AS b WHERE b.uuid = fresh.uuid"
    " AND b.version = fresh.version), 0), fresh.at_us, fresh.seq, fresh.seq_us"
    " FROM {source} WHERE true ON CONFLICT (id) DO UPDATE"
    " SET at_us = excluded.at_us, seq = excluded.seq, seq_us = excluded.seq_us"
    " WHERE events.seq IS NULL"
)


def _number(tx: Tx, found: Sequence[Numbered]) -> None:
    told = [each.event for each in found]
    columns: bulk.Columns = {
        "id": ("text", [event.id for event in told]),
        "replica": ("text", [event.replica for event in told]),
        "type": ("text", [event.type for event in told]),
        **bulk.fqids(event.fqid for event in told),
        "at_us": ("bigint", [event.at_us for event in told]),
        "seq": ("bigint", [each.seq for each in found]),
        "seq_us": ("bigint", [each.seq_us for each in found]),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    tx.execute(sql(_NUMBER.format(source=source)), parameters)
    query = select(events.c.id, events.c.seq).where(events.c.id.in_([one.id for one in told]))
    known = {row[0]: row[1] for row in tx.execute(query)}
    if any(known.get(each.event.id) != each.seq for each in found):
        raise Damaged("Events of this journal have other numbers in the catalog.")


def without(tx: Tx, idents: Sequence[str]) -> set[str]:
    """Those of these event ids that the catalog does not know."""
    known = tx.execute(select(events.c.id).where(events.c.id.in_(idents))).scalars()
    return set(idents) - set(known)
