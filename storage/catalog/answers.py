"""Answers that are given again when a request comes again with the same Idempotency-Key."""

from dataclasses import dataclass

from storage.catalog.engine import Tx, execute_now, sql

FORGOTTEN = 1_000
"""Answers that one statement forgets."""


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked, as a digest, and what was answered."""

    digest: str
    answer: str


_FIND = sql("SELECT digest, answer FROM answers WHERE owner = :owner AND key = :key")


def find(tx: Tx, owner: str, key: str) -> Given | None:
    """What this key of this owner was answered."""
    row = tx.execute(_FIND, {"owner": owner, "key": key}).first()
    return None if row is None else Given(row.digest, row.answer)


def add(tx: Tx, owner: str, key: str, given: Given) -> bool:
    """Keep an answer; False when the key has one already."""
    added = execute_now(
        tx,
        "INSERT INTO answers (owner, key, digest, answer, created_us)"
        " VALUES (:owner, :key, :digest, :answer, :now) ON CONFLICT DO NOTHING",
        {"owner": owner, "key": key, "digest": given.digest, "answer": given.answer},
    )
    return bool(added.rowcount)


_FORGET = sql(
    "DELETE FROM answers WHERE (owner, key) IN"
    " (SELECT owner, key FROM answers WHERE created_us < :before ORDER BY created_us LIMIT :limit)"
)


def forget(tx: Tx, before_us: int) -> int:
    """Forget a bounded number of old ones; returns how many."""
    return tx.execute(_FORGET, {"before": before_us, "limit": FORGOTTEN}).rowcount
