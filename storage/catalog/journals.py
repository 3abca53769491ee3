"""Journals: which runs of numbered events lie in which objects of the buckets.

Whoever begins, records or ends one holds the replica's lock. An object is put only under the name
of a row that is `writing`; recording makes it `current` in the place of those that it covers, which
are `past` from then on, and are dropped after a while. So every object has a row until it is gone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Row, text

from storage.catalog import bulk, heads
from storage.catalog.engine import Tx, execute_now, now_us, sql
from storage.keys import JournalKey
from storage.model import Replica

State = Literal["writing", "current", "past"]
HEAD = "journal"


@dataclass(frozen=True, slots=True)
class Journal:
    """One object with the lines of the events from `first` to `last`."""

    id: int
    replica: Replica
    first: int
    last: int
    generation: int
    tier: int
    state: State
    size: int
    at_us: int
    """Since when it is so."""

    @property
    def key(self) -> JournalKey:
        """Under which it lies in a bucket."""
        return JournalKey(self.replica, self.first, self.last, self.generation)

    @property
    def count(self) -> int:
        """How many events it has."""
        return self.last - self.first + 1


class Place(NamedTuple):
    """Where the line of an event lies."""

    seq: int
    offset: int
    size: int


def _journal(row: Row[Any]) -> Journal:
    return Journal(
        row.id,
        row.replica,
        row.first_seq,
        row.last_seq,
        row.generation,
        row.tier,
        row.state,
        row.size,
        row.at_us,
    )


def _journals(tx: Tx, where: str, asked: dict[str, Any]) -> list[Journal]:
    return [
        _journal(row) for row in tx.execute(sql(f"SELECT * FROM journals WHERE {where}"), asked)
    ]


def lock(tx: Tx, replica: Replica) -> None:
    """Nobody else begins, records or ends a journal of this replica meanwhile."""
    heads.lock(tx, HEAD, [replica])


def covered(tx: Tx, replica: Replica) -> int:
    """The last number that is journalled; 0 when none is."""
    where = "replica = :replica AND state = 'current' ORDER BY last_seq DESC LIMIT 1"
    found = _journals(tx, where, {"replica": replica})
    return found[0].last if found else 0


def begun(tx: Tx, replica: Replica, first: int) -> Journal | None:
    """The journal that somebody began at this number and did not record."""
    where = "replica = :replica AND state <> 'current' AND state = 'writing' AND first_seq = :first"
    found = _journals(
        tx, f"{where} ORDER BY last_seq LIMIT 1", {"replica": replica, "first": first}
    )
    return found[0] if found else None


def begin(tx: Tx, replica: Replica, first: int, last: int, *, tier: int) -> Journal:
    """The row under whose name an object may be put: one that was begun before, or a new one."""
    span = {"replica": replica, "first": first, "last": last}
    where = "replica = :replica AND first_seq = :first AND last_seq = :last"
    found = _journals(tx, f"{where} ORDER BY generation DESC LIMIT 1", span)
    if found and found[0].state == "writing":
        return found[0]
    generation = found[0].generation + 1 if found else 0
    made = execute_now(
        tx,
        "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, at_us)"
        " VALUES (:replica, :first, :last, :generation, :tier, 'writing', :now) RETURNING *",
        {**span, "generation": generation, "tier": tier},
    )
    return _journal(made.one())


def find(tx: Tx, key: JournalKey) -> Journal | None:
    """The journal of that key, however it stands."""
    where = (
        "replica = :replica AND first_seq = :first AND last_seq = :last"
        " AND generation = :generation"
    )
    asked = {
        "replica": key.replica,
        "first": key.first,
        "last": key.last,
        "generation": key.generation,
    }
    found = _journals(tx, where, asked)
    return found[0] if found else None


def record(
    tx: Tx, journal: Journal, places: Sequence[Place], *, size: int, instead: Iterable[Journal]
) -> bool:
    """The object is there: from now on it is the current one of its events. False, and nothing
    done, when it was given up meanwhile or is no longer what takes the place of just these."""
    now = find(tx, journal.key)
    before = current(tx, journal.replica, journal.first, journal.last)
    if now is None or now.state != "writing":
        return False
    if [one.id for one in before] != [one.id for one in instead]:
        return False
    end(tx, before)
    changed = "UPDATE journals SET state = 'current', size = :size, at_us = :now WHERE id = :id"
    execute_now(tx, changed, {"id": now.id, "size": size})
    point(tx, journal.replica, places)
    return True


def point(tx: Tx, replica: Replica, places: Sequence[Place]) -> None:
    """Say where the lines of these events lie."""
    columns: bulk.Columns = {
        # A column, though always the same: the number alone would not lead to the index.
        "replica": ("text", [replica] * len(places)),
        "seq": ("bigint", [place.seq for place in places]),
        "place": ("bigint", [place.offset for place in places]),
        "size": ("bigint", [place.size for place in places]),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    pointed = text(
        f"UPDATE events SET byte_offset = fresh.place, byte_size = fresh.size FROM {source}"
        " WHERE events.replica = fresh.replica AND events.seq = fresh.seq"
    )
    tx.execute(pointed, parameters)


def end(tx: Tx, gone: Iterable[Journal]) -> None:
    """They are past from now on, and will be dropped."""
    for journal in gone:
        execute_now(
            tx,
            "UPDATE journals SET state = 'past', at_us = :now WHERE id = :id",
            {"id": journal.id},
        )


def current(tx: Tx, replica: Replica, first: int, last: int) -> list[Journal]:
    """The current journals with any number of this range, in order."""
    where = "replica = :replica AND state = 'current' AND last_seq >= :first AND first_seq <= :last"
    asked = {"replica": replica, "first": first, "last": last}
    return _journals(tx, f"{where} ORDER BY last_seq", asked)


def others(tx: Tx, replica: Replica, seq: int) -> list[Journal]:
    """What is being written, or is past, and has this number."""
    where = "replica = :replica AND state <> 'current' AND first_seq <= :seq AND last_seq >= :seq"
    return _journals(tx, where, {"replica": replica, "seq": seq})


def page(tx: Tx, replica: Replica, first: int, until: int, *, limit: int) -> list[Journal]:
    """Current journals with numbers from `first` on and before `until`, in order."""
    where = "replica = :replica AND state = 'current' AND last_seq >= :first AND first_seq < :until"
    asked = {"replica": replica, "first": first, "until": until, "limit": limit}
    return _journals(tx, f"{where} ORDER BY last_seq LIMIT :limit", asked)


def oldest(tx: Tx, replica: Replica, tier: int, *, limit: int) -> list[Journal]:
    """The oldest current journals of a tier, in order."""
    where = "replica = :replica AND state = 'current' AND tier = :tier"
    asked = {"replica": replica, "tier": tier, "limit": limit}
    return _journals(tx, f"{where} ORDER BY first_seq LIMIT :limit", asked)


def promote(tx: Tx, journal: Journal, tier: int) -> None:
    """It is large enough to be of this tier as it is."""
    tx.execute(
        sql("UPDATE journals SET tier = :tier WHERE id = :id"), {"id": journal.id, "tier": tier}
    )


def aged(tx: Tx, replica: Replica, age_us: int, *, limit: int) -> list[Journal]:
    """What has been past, or was left unrecorded, for so long."""
    where = "replica = :replica AND state <> 'current' AND at_us < :before"
    asked = {"replica": replica, "before": now_us(tx) - age_us, "limit": limit}
    return _journals(tx, f"{where} ORDER BY at_us LIMIT :limit", asked)


def forget(tx: Tx, journal: Journal) -> None:
    """Its objects are gone from every bucket."""
    tx.execute(sql("DELETE FROM journals WHERE id = :id AND state = 'past'"), {"id": journal.id})
