"""Stored responses for idempotency keys."""

from dataclasses import dataclass

from storage.catalog.statements import Tx, execute, find_row, make_mapper, sql

EXPIRE_BATCH = 1_000
"""Most responses that one statement deletes."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """Digest of a request, and its response."""

    digest: str
    answer: str


_response_from_row = make_mapper(StoredResponse)


def find(tx: Tx, owner: str, key: str) -> StoredResponse | None:
    """Return the stored response of an owner's key."""
    query = sql("SELECT digest, answer FROM answers WHERE owner = :owner AND key = :key")
    return find_row(tx, _response_from_row, query, {"owner": owner, "key": key})


def insert(tx: Tx, owner: str, key: str, response: StoredResponse) -> bool:
    """Store a response; False when the key has one already."""
    result = execute(
        tx,
        "INSERT INTO answers (owner, key, digest, answer, created_us)"
        " VALUES (:owner, :key, :digest, :answer, :now) ON CONFLICT DO NOTHING",
        {"owner": owner, "key": key, "digest": response.digest, "answer": response.answer},
    )
    return bool(result.rowcount)


def expire(tx: Tx, before_us: int) -> int:
    """Delete up to EXPIRE_BATCH old responses; return how many."""
    old = "SELECT owner, key FROM answers WHERE created_us < :before ORDER BY created_us"
    statement = sql(f"DELETE FROM answers WHERE (owner, key) IN ({old} LIMIT :limit)")
    return tx.execute(statement, {"before": before_us, "limit": EXPIRE_BATCH}).rowcount
