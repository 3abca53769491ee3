"""Replays: windows of events that one subscription is told once more, a bounded run at a time."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from storage.catalog.engine import Tx, execute_now, sql
from storage.model import Replica


@dataclass(frozen=True, slots=True)
class Replay:
    """What is still to be told: events from `next_seq` on and before `end_seq`."""

    id: str
    subscription_id: int
    replica: Replica
    next_seq: int
    end_seq: int
    deliveries: int
    created_us: int
    finished_us: int | None


def _replay(row: Row[Any]) -> Replay:
    return Replay(**row._mapping)


def add(
    tx: Tx, ident: str, subscription_id: int, replica: Replica, *, first: int, end: int
) -> bool:
    """Record one; False when another of this subscription is open."""
    added = execute_now(
        tx,
        "INSERT INTO replays (id, subscription_id, replica, next_seq, end_seq, created_us)"
        " VALUES (:id, :subscription_id, :replica, :first, :end, :now) ON CONFLICT DO NOTHING",
        {
            "id": ident,
            "subscription_id": subscription_id,
            "replica": replica,
            "first": first,
            "end": end,
        },
    )
    return bool(added.rowcount)


def find(tx: Tx, ident: str) -> Replay | None:
    """The replay of that id."""
    row = tx.execute(sql("SELECT * FROM replays WHERE id = :id"), {"id": ident}).first()
    return None if row is None else _replay(row)


def advance(tx: Tx, one: Replay, next_seq: int, *, deliveries: int) -> None:
    """Told up to here; so many deliveries were made."""
    tx.execute(
        sql(
            "UPDATE replays SET next_seq = :next_seq, deliveries = deliveries + :made"
            " WHERE id = :id"
        ),
        {"id": one.id, "next_seq": next_seq, "made": deliveries},
    )


def finish(tx: Tx, one: Replay) -> None:
    """Nothing is left to be told."""
    execute_now(tx, "UPDATE replays SET finished_us = :now WHERE id = :id", {"id": one.id})


def expire(tx: Tx, before_us: int, *, limit: int) -> int:
    """Forget replays that ended before then, a bounded number; returns how many."""
    gone = sql(
        "DELETE FROM replays WHERE id IN (SELECT id FROM replays"
        " WHERE finished_us < :before ORDER BY finished_us LIMIT :limit)"
    )
    return tx.execute(gone, {"before": before_us, "limit": limit}).rowcount
